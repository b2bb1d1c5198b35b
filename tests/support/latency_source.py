"""A source in memory that answers late, sometimes very late, or not at all."""

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monarch.loader import Loader
from monarch.records import Records
from monarch.records.index import Range, RecordIndex, RecordObject, units_of


class LatencySource:
    """Records that start with their numbers, at the other end of a long link.

    Args:
        link: bytes per second of all replies together.
        late: share of the replies that take ten times as long.
        lost: share of the requests that are answered by a time-out.
        replicas: how many stores have the Records; only the first one is ever late.
        log: a file to which the times and sizes of requests are written.
    """

    def __init__(
        self, count: int, size: int, rtt_s: float, concurrency: int = 320, **faults: Any
    ) -> None:
        self.size = size
        self.rtt_s = rtt_s
        self.concurrency = concurrency
        self.replicas = int(faults.get("replicas", 1))
        self.faults = faults
        objects = (RecordObject("store:/records", count * size, 0),)
        units = units_of(np.arange(count) * size, [size] * count, "store:/records")
        self.index = RecordIndex("memory", objects, units)
        self._ready()

    def _ready(self) -> None:
        self._lock = threading.Lock()
        self._link_free_s = 0.0
        self._asked: dict[tuple[int, int], int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what the reader needs to make the same source."""
        names = ("size", "rtt_s", "concurrency", "replicas", "faults", "index")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._ready()

    def read(self, ranges: Sequence[Range], replica: int = 0) -> list[memoryview]:
        """Return the bytes of some ranges, when they are due."""
        return [self._read(one, replica) for one in ranges]

    def selected(self, index: RecordIndex) -> "LatencySource":
        """Return a source with another index."""
        other = LatencySource.__new__(LatencySource)
        other.__setstate__({**self.__getstate__(), "index": index})
        return other

    def close(self) -> None:
        """Release nothing."""

    def _read(self, one: Range, replica: int) -> memoryview:
        with self._lock:
            name = one.offset, replica
            attempt = self._asked[name] = self._asked.get(name, 0) + 1
            began_s = time.monotonic()
            link = self.faults.get("link", float("inf"))
            begin_s = max(self._link_free_s, began_s + self.rtt_s)
            self._link_free_s = begin_s + one.length / link
            end_s = self._link_free_s
        self._note(f"+ {began_s} {one.length}")
        rng = random.Random(f"{one.offset} {attempt} {replica}")
        if not replica and rng.random() < self.faults.get("late", 0.0):
            end_s = began_s + 10 * self.rtt_s
        time.sleep(max(0.0, end_s - time.monotonic()))
        self._note(f"- {time.monotonic()} {one.length}")
        if rng.random() < self.faults.get("lost", 0.0):
            raise TimeoutError("no reply")
        if one.offset // self.size in self.faults.get("never", ()):
            raise TimeoutError("no reply")
        first = one.offset // self.size
        records = range(first, first + -(-one.length // self.size))
        found = b"".join(
            n.to_bytes(8, "little") + bytes(self.size - 8) for n in records
        )
        return memoryview(found)[: one.length]

    def _note(self, line: str) -> None:
        if path := self.faults.get("log"):
            with self._lock, Path(path).open("a") as file:
                file.write(line + "\n")


def outstanding(log: Path) -> int:
    """Return how many requests were outstanding at most."""
    most = now = 0
    for line in log.read_text().splitlines():
        now += 1 if line.startswith("+") else -1
        most = max(most, now)
    return most


def loader_of(source: LatencySource, batch_size: int, **options: Any) -> Loader:
    """Return a loader that asks for each Record by itself."""
    records = Records(source, indexed=False)
    return Loader(records, batch_size, **{"shuffle": "global", **options})


def rate(loader: Loader, batches: int, skip: int = 2) -> float:
    """Return the batches a second, without the first ones."""
    iterator = iter(loader)
    for _ in range(skip):
        next(iterator)
    began_s = time.monotonic()
    for _ in range(batches):
        batch = next(iterator)
        for number, record in zip(batch.ids.tolist(), batch.records, strict=True):
            assert int.from_bytes(record[:8], "little") == number
    took_s = time.monotonic() - began_s
    iterator.close()
    return batches / took_s
