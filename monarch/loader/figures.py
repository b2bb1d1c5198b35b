"""The figures of a loader, and the progress that it prints."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from monarch.records.index import Progress, no_progress

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_QUIET_S: Final = 2.0
_LINE_S: Final = 10.0
_KEPT = 100_000

FIGURES: Final[Mapping[str, str]] = {
    "batches": "batches delivered to this rank",
    "records": "records in them",
    "bytes": "bytes of these records",
    "epochs": "completed epochs",
    "first_batch_s": "seconds from the loader's start to its first batch",
    "exposed_wait_s": "total seconds that `next()` waited",
    "exposed_wait_p50_s": "seconds, the median of the waits",
    "exposed_wait_p99_s": "seconds, the 99th percentile of the waits",
    "exposed_wait_max_s": "seconds, the longest wait",
    "accelerator_utilization": "share of the time in which the program worked",
    "shuffle_quality": "groups of a batch, as a share of those of a full shuffle",
    "late_records": "records delivered in a later batch than in order",
    "reader_restarts": "readers that ended and were replaced",
    "read_per_delivered": "bytes read for the node, as a multiple of `bytes`",
    "rank_peak_rss_bytes": "bytes, the most memory of this process",
    "requests": "reads at the source, for all ranks of the node",
    "request_bytes": "bytes of these reads",
    "request_sizes": "how many reads had 2^n bytes or more, by n",
    "retries": "retried reads",
    "hedges": "reads also sent to another replica",
    "most_reads_at_once": "the most reads of the reader at the same time",
    "store_delay_p50_s": "seconds to a reply of the store, the median of the last 512",
    "store_delay_p99_s": "seconds to a reply of the store, the 99th percentile",
    "store_window": "requests in flight to the store that the window allows now",
    "store_late": "requests sent to the store again after no reply",
    "store_reconnects": "lost connections to the store",
    "store_servers": "requests that each server of the store has answered",
    "memory_bytes": "bytes of all buffers of the node, now",
    "memory_peak_bytes": "bytes of all buffers of the node, at most",
    "reader_pid": "the process that reads for the node",
}
"""The meaning of each figure of `Loader.stats`."""
STORE_FIGURES: Final = tuple(name for name in FIGURES if name.startswith("store_"))
"""The figures that are None for records in files."""


@dataclass(slots=True)
class LoaderCounts:
    """The counts of one rank.

    Attributes:
        waits_s: wait of each `next()` for bytes: the exposed input/output.
        busy_s: total time of the program between batches.
        distinct_groups: sum over batches of the portions that their Records are from.
        expected_groups: the expected sum if all Records were shuffled.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    epochs: int = 0
    first_batch_s: float | None = None
    busy_s: float = 0.0
    waited_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    distinct_groups: float = 0.0
    expected_groups: float = 0.0
    late_records: int = 0
    began_s: float = field(default_factory=time.monotonic)

    def add_wait(self, wait_s: float) -> None:
        """Count a wait for a batch."""
        self.waited_s += wait_s
        if self.first_batch_s is None:
            self.first_batch_s = time.monotonic() - self.began_s
        if len(self.waits_s) < _KEPT:
            self.waits_s.append(wait_s)
        else:  # a random sample of all waits (Vitter's algorithm R)
            place = int(np.random.default_rng(self.batches).integers(self.batches + 1))
            if place < _KEPT:
                self.waits_s[place] = wait_s

    def add_batch(self, records: int, size: int, groups: int, of: int) -> None:
        """Count a batch.

        Args:
            groups: number of portions that its Records are from.
            of: number of all portions.
        """
        self.batches += 1
        self.records += records
        self.bytes += size
        self.distinct_groups += groups
        if of:
            self.expected_groups += of * (1 - (1 - 1 / of) ** records)

    def stats(self, reader: Mapping[str, Any], restarts: int) -> dict[str, Any]:
        """Return all figures by name; times in seconds, sizes in bytes."""
        waits = np.array(self.waits_s or [0.0])
        worked = self.busy_s + self.waited_s
        read = int(reader.get("request_bytes", 0))
        quality = 1.0
        if self.expected_groups:
            quality = min(1.0, self.distinct_groups / self.expected_groups)
        return {
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "epochs": self.epochs,
            "first_batch_s": self.first_batch_s,
            "exposed_wait_s": self.waited_s,
            "exposed_wait_p50_s": float(np.quantile(waits, 0.5)),
            "exposed_wait_p99_s": float(np.quantile(waits, 0.99)),
            "exposed_wait_max_s": float(waits.max()),
            "accelerator_utilization": self.busy_s / worked if worked else None,
            "shuffle_quality": quality,
            "late_records": self.late_records,
            "reader_restarts": restarts,
            "read_per_delivered": read / self.bytes if self.bytes and read else None,
            "rank_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            << 10,
            **reader,
        }


class IndexProgress:
    """Prints the progress of an index after two seconds, and then every ten seconds.

    Args:
        name: name of the records.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._next_s = time.monotonic() + _QUIET_S
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<IndexProgress of {self._name}>"

    def __call__(self, step: str, done: int, count: int) -> None:
        """Print the number done and the total, if it is time; a total of 0: unknown."""
        with self._lock:
            now_s = time.monotonic()
            if now_s < self._next_s:
                return
            self._next_s = now_s + _LINE_S
        of = f" of {count:,}" if count else ""
        text = f"monarch: records of {self._name}: {done:,}{of} {step}"
        with suppress(OSError, ValueError):  # a closed stderr must not end the program
            print(text, file=sys.stderr, flush=True)


def index_progress(rank: int, paths: Paths) -> Progress:
    """Return a function that prints the progress of an index on the first rank."""
    if rank:
        return no_progress
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return IndexProgress(f"{os.fspath(names[0])}{more}" if names else "no path")
