"""One run of a loader over a store, as a process of its own; prints a line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from monarch.loader import Loader
from monarch.records import Records
from monarch.records.keys import KeyIndex
from monarch.records.stores.source import StoreSource, index_of

VALUES = 256
"""So many objects the store has; records take turns with them."""


def records_of(given: dict[str, Any]) -> Records:
    """Return the Records, by an index that is made here."""
    addresses = {
        "redis": f"redis://127.0.0.1:{given['port']}/0",
        "http": f"s3://{given.get('bucket', 'files')}/?endpoint=http://127.0.0.1:{given['port']}&anonymous=1",
        "cql": f"cassandra://127.0.0.1:{given['port']}/ks.data",
    }
    keys = [
        (given["keys"] % (number % VALUES)).encode()
        for number in range(given["records"])
    ]
    lengths = [given["bytes"]] * len(keys)
    index = KeyIndex.of(addresses[given["store"]], keys, lengths)
    return Records(StoreSource(index_of(index)), True)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Read some epochs."""
    given = json.loads(sys.argv[1])
    records = records_of(given)
    began_s = time.monotonic()
    with Loader(
        records,
        given["batch"],
        window=given["window"],
        in_order=given.get("in_order", False),
    ) as loader:
        batches = iter(loader)
        next(batches)
        first_s = time.monotonic() - began_s
        for _ in batches:
            pass
        pid = loader.stats()["reader_pid"]
        used_s, asked = cpu_s(pid), loader.stats()["requests"]
        begun_s, count = time.monotonic(), 0
        for _ in range(given["epochs"] - 1):
            for batch in loader:
                count += len(batch)
        took_s = time.monotonic() - begun_s
        stats = loader.stats()
        cpu_us = (cpu_s(pid) - used_s) / (stats["requests"] - asked) * 1e6
    print(
        json.dumps(
            {
                "rate": count / took_s,
                "cpu_us": cpu_us,
                "first_s": first_s,
                "most": stats["most_reads_at_once"],
                "peak_mib": stats["memory_peak_bytes"] / (1 << 20),
                "retries": stats["retries"],
                "requests": stats["requests"],
            }
        )
    )


if __name__ == "__main__":
    main()
