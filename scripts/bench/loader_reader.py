"""One run of a loader, as a process of its own, with what that loader needs.

    loader_reader.py make FORMAT FOLDER RECORDS
    loader_reader.py read JSON

`read` writes a line of JSON when all is imported, then one per epoch; it begins each
epoch when it reads a line. An epoch is timed from there, so the first one opens the
dataset; Records are checked by their numbers, and some of them by their bytes.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from loader_formats import DIGESTS, MAKERS, MOST, digest, make_digests
from loader_peers import CONVERTERS, READERS, Place, Reader

CHECKED = 16
"""Of so many Records one is compared by its bytes."""
NUMBER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is read.

    Args:
        steps_s: of each epoch, how long the program works at each batch.
        stop: after so many batches of the only epoch; its rest is another run's.
        state: the file that says how far that was.
        resumes: this is the other run.
    """

    reader: str
    data: str
    cache: str
    steps_s: list[float]
    is_local: bool = False
    stop: int | None = None
    state: str | None = None
    resumes: bool = False


@dataclass(slots=True)
class Pass:
    """One epoch, or a part of it, as far as it is read."""

    digests: npt.NDArray[Any]
    waits_s: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    batches: int = 0
    wrong: int = 0

    def run(self, batches: Iterator[Any], step_s: float, stop: int | None) -> None:
        """Read batches until they end, or are enough."""
        while stop is None or self.batches < stop:
            asked = time.monotonic()
            batch = next(batches, None)
            self.waits_s.append(time.monotonic() - asked)
            if batch is None:
                break
            self._check(batch)
            if step_s:
                time.sleep(step_s)

    def _check(self, batch: Sequence[Any]) -> None:
        self.batches += 1
        for record in batch:
            [number] = NUMBER.unpack_from(record)
            self.numbers.append(number)
            if number % CHECKED == 0:
                self.wrong += not self._is_right(number, memoryview(record))

    def _is_right(self, number: int, record: memoryview) -> bool:
        """Compare a Record; HDF5 has all of the largest size."""
        size, expected = self.digests[number].tolist()
        whole = len(record) == size or len(record) == MOST
        return whole and digest(record[:size]) == expected


def told(one: Pass, begin: float, first: float, reader: Reader) -> dict[str, Any]:
    """What is said of an epoch."""
    waits = np.array(one.waits_s)
    return {
        "seconds": time.monotonic() - begin,
        "first_s": first,
        "waited_s": float(waits.sum()),
        "wait_p99_s": float(np.quantile(waits, 0.99)),
        "wait_max_s": float(waits.max()),
        "records": len(one.numbers),
        "distinct": len(set(one.numbers)),
        "wrong": one.wrong,
        "stats": reader.stats(),
    }


def read(plan: Plan) -> None:
    """Read as planned."""
    digests = np.load(Path(plan.data) / DIGESTS)
    where = Path(plan.data), Path(plan.cache), len(digests)
    place = Place(*where, plan.is_local, plan.state is not None)
    reader = READERS[plan.reader](place)
    say({"ready": True, "can_resume": reader.resumes})
    for epoch, step_s in enumerate(plan.steps_s):
        if not sys.stdin.readline():
            break
        begin = time.monotonic()
        if plan.resumes and plan.state:
            reader.load(Path(plan.state))
        one, batches = Pass(digests), iter(reader.epoch(epoch))
        one.run(batches, 0, 1)
        first = time.monotonic() - begin
        one.run(batches, step_s, plan.stop)
        found = told(one, begin, first, reader)
        if plan.state:
            found["numbers"] = one.numbers
        if plan.state and not plan.resumes:
            reader.save(Path(plan.state))
        say(found)
    # Frameworks take long to end, or wait for workers that still read ahead.
    if plan.state:
        os._exit(0)


def say(found: dict[str, Any]) -> None:
    """Write a line, which no output of a framework is on."""
    os.write(OUT, json.dumps(found).encode() + b"\n")


def main() -> None:
    """Make a dataset, or read it."""
    verb, *words = sys.argv[1:]
    if verb == "read":
        read(Plan(**json.loads(words[0])))
        return
    name, folder, count = words[0], Path(words[1]), int(words[2])
    if name == "digests":
        make_digests(folder, count)
        return
    folder.mkdir()
    (MAKERS | CONVERTERS)[name](folder, count)
    for lock in folder.glob("*lock*"):
        lock.unlink()


if __name__ == "__main__":
    OUT = os.dup(1)
    os.dup2(2, 1)
    main()
