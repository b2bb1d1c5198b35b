"""What it gains to know the order of a program, or to guess one.

The origin is the tests' counting file system, 100 MiB a second and slow by each
operation; the files are old. One program reads all of them in a new order in each
epoch, a batch after the other, and computes for as long as a direct read takes. There
is room for all. *Reactive* is Monarch that stages what is opened and no more (fill
off), *hinted* the same with the order of all epochs told before; *filled* is Monarch as
it is without hints: fill in the order of directories. Steady epochs are read without
computing, which would hide what differs, and once the origin is fast, because they do
not need it.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs
from support.countfs import CountFs

TURNS = 3
STEADY_TURNS = 9
EPOCHS = 12
STEADY = 2
SLOW = {"keep_ms": 1000, "op_us": 500, "bw": 100 << 20, "parallel": 16, "aged": 1}
DAY_S = 86_400
REACTIVE = ("--set", "fill.enabled=false")
FAST = {"op_us": 0, "bw": 0}
PIECE = bytearray(256 << 10)
# An idle link of the origin saves up 5 ms, which are little of a batch.
BATCH = 32
STALL, STEADY_RATE, FIRST = 0.5, 0.9, 0.8


@dataclass(frozen=True, slots=True)
class Dataset:
    """Files of one size, and how many bytes of them a program asks for at once."""

    what: str
    files: int
    file_bytes: int

    def make(self, root: Path) -> None:
        """Create the files."""
        body = random.Random(5).randbytes(self.file_bytes)
        old_s = time.time() - DAY_S
        root.mkdir(parents=True)
        for number in range(self.files):
            (root / f"{number:05d}").write_bytes(body)
            os.utime(root / f"{number:05d}", times=(old_s, old_s))

    @property
    def pieces(self) -> int:
        """How often a program computes in an epoch."""
        return self.files * -(-self.file_bytes // len(PIECE))


SMALL = Dataset("files of 100 kB", 1_500, 100_000)
PACKED = Dataset("files of 16 MiB", 16, 16 << 20)


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a program tells of an epoch: all of it, and how long it waited for bytes."""

    seconds: float
    stall_s: float


def orders(root: Path) -> list[list[str]]:
    """Return the order of the files in each epoch."""
    paths = sorted(str(path) for path in root.iterdir())
    return [random.Random(epoch).sample(paths, len(paths)) for epoch in range(EPOCHS)]


def pieces_of(path: str) -> Iterator[float]:
    """Read a file by preads; yield how long each took, the first with the open."""
    begin, at = time.perf_counter(), 0
    file = os.open(path, os.O_RDONLY)
    size = os.fstat(file).st_size
    while at < size:
        at += os.preadv(file, [PIECE], at)
        yield time.perf_counter() - begin
        begin = time.perf_counter()
    os.close(file)


def run_program(root: Path, compute_s: float, epochs: int, hinted: bool) -> None:
    """Read all files in each epoch; print the seconds of each, and those waited."""
    import monarch

    found, told = [], orders(root)[:epochs]
    if hinted:
        monarch.hint([path for order in told for path in order])
    for order in told:
        begin, stall_s = time.perf_counter(), 0.0
        waits = chain.from_iterable(map(pieces_of, order))
        for pieces, seconds in enumerate(waits, 1):
            stall_s += seconds
            if compute_s and pieces % BATCH == 0:
                time.sleep(compute_s * BATCH)
        found.append((time.perf_counter() - begin, stall_s))
    print(json.dumps(found))


@dataclass(frozen=True, slots=True)
class Bench:
    """One dataset behind the slow origin, and the words that run a program there."""

    monarch: str
    origin: CountFs
    dataset: Dataset

    @property
    def staged(self) -> list[str]:
        """The words of Monarch with room for all."""
        room = 2 * self.dataset.files * self.dataset.file_bytes
        words = [self.monarch, "run", "-q", "--data", str(self.origin.root)]
        return [*words, "--tier", f"ram:{room}B"]

    def words(self, way: str) -> list[str]:
        """Return the words before the program."""
        if way == "direct":
            return []
        return [*self.staged, *(() if way == "filled" else REACTIVE), "--"]

    def run(self, way: str, compute_s: float, epochs: int = 1) -> list[Epoch]:
        """Run the program in one way; return what it tells of its epochs."""
        told = [str(self.origin.root), str(compute_s), str(epochs)]
        told.append(str(int(way == "hinted")))
        program = [sys.executable, __file__, *told]
        line = [*self.words(way), *program]
        done = subprocess.run(line, check=True, stdout=subprocess.PIPE)
        return [Epoch(*epoch) for epoch in json.loads(done.stdout)]

    def first(self, *ways: str) -> dict[str, list[Epoch]]:
        """Return the first epochs of some ways, which are run in turn."""
        direct = [self.run("direct", 0)[0].stall_s for _ in range(TURNS)]
        compute_s = statistics.median(direct) / self.dataset.pieces
        found: dict[str, list[Epoch]] = {way: [] for way in ways}
        for _ in range(TURNS):
            for way, turns in found.items():
                turns += self.run(way, compute_s)
        return found

    def steady_s(self, *ways: str) -> list[float]:
        """Return the seconds of the best steady epoch of some ways, run in turn."""
        self.origin.set(**FAST)
        best = [math.inf] * len(ways)
        for _ in range(STEADY_TURNS):
            for number, way in enumerate(ways):
                epochs = self.run(way, 0, EPOCHS)[STEADY:]
                best[number] = min(best[number], *(e.seconds for e in epochs))
        return best


@contextmanager
def slow(monarch: str, work: Path, dataset: Dataset) -> Iterator[Bench]:
    """Makes a dataset and mounts its origin."""
    mount = work / "origin"
    mount.mkdir(parents=True)
    dataset.make(work / "source")
    with countfs.mounted(countfs.build(), work / "source", mount, **SLOW) as origin:
        yield Bench(monarch, origin, dataset)
    shutil.rmtree(work / "source")


def small_files(bench: Bench) -> list[Row]:
    """Measure what hints and fill gain with files of one piece."""
    found = bench.first("reactive", "hinted", "filled")
    ours, hinted = bench.steady_s("reactive", "hinted")
    waited = {
        way: statistics.median(epoch.stall_s for epoch in turns)
        for way, turns in found.items()
    }
    what, files = bench.dataset.what, bench.dataset.files
    return [
        Row(
            f"waited in the first epoch with its order known, {what}",
            f"{waited['hinted']:.2f} s",
            f"{waited['reactive']:.2f} s reactive",
            waited["hinted"] / waited["reactive"],
            STALL,
        ),
        Row(
            f"best steady epoch without hints, {what}",
            f"{files / ours:,.0f} files/s",
            f"{files / hinted:,.0f} files/s with hints",
            hinted / ours,
            STEADY_RATE,
            at_least=True,
        ),
        first_row(f"first epoch with fill, {what}", found, "reactive"),
    ]


def packed_files(bench: Bench) -> list[Row]:
    """Measure what reading ahead gains with files of many pieces.

    Monarch always reads ahead of a sequential reader: reactive staging that does not is
    as fast as a direct read, which asks for a piece when it is wanted.
    """
    found = bench.first("direct", "reactive", "filled")
    what = f"{bench.dataset.what} in pieces"
    return [
        first_row(f"first epoch with read-ahead and fill, {what}", found, "direct"),
        first_row(f"fill's part of this, {what}", found, "reactive", 1.0),
    ]


def first_row(
    what: str, found: dict[str, list[Epoch]], other: str, budget: float = FIRST
) -> Row:
    """Return a row that compares first epochs with those of another way."""
    ours = statistics.median(epoch.seconds for epoch in found["filled"])
    theirs = statistics.median(epoch.seconds for epoch in found[other])
    return Row(what, f"{ours:.2f} s", f"{theirs:.2f} s {other}", ours / theirs, budget)


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure small files, and packed ones."""
    with slow(monarch, work / "small", SMALL) as bench:
        rows = small_files(bench)
    with slow(monarch, work / "packed", PACKED) as bench:
        return rows + packed_files(bench)


def main() -> int:
    """Measure alone, without the other parts of the table."""
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        table = measure(monarch, Path(base))
    print_rows(table)
    return 0 if all(row.kept for row in table) else 1


if __name__ == "__main__":
    if len(sys.argv) == 5:
        root, compute, epochs, hinted = sys.argv[1:]
        run_program(Path(root), float(compute), int(epochs), hinted == "1")
    else:
        sys.exit(main())
