"""Large files: epochs in order and sparse, first bytes, waiting, and cost per call.

The origin is the tests' counting file system, throttled, with its page cache off. The
program in C runs under Monarch, and straight on the origin or on a copy made by hand on
the Tier's medium.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

MIB = 1 << 20
BYTES_PER_S = 100_000_000
SHARD = 64 * MIB
EPOCHS = 3
SPARSE_BYTES_PER_S = 200_000_000
SPARSE_BYTES = {
    4 << 10: 32 * MIB,
    16 << 10: 128 * MIB,
    128 << 10: 256 * MIB,
    1 << 20: 512 * MIB,
}
"""Of a file that is read in pieces of each size: a pass takes some seconds."""
SHARES = (1, 5, 25, 100)
LATENCIES_MS = (0, 2)
PAUSE_MS = 100
TURNS = 5
ROUNDS = 4
READY_S = 60
QUICK = 4
"""How many times less is read where a figure is needed soon."""
COMPUTE_US = 4 * MIB * 1_000_000 // BYTES_PER_S
CALLS = (("ready", 4096), ("partial", 4096), ("partial", 128 << 10), ("beside", 1))
NO_FILL = ("--set", "fill.enabled=false")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over what was chosen."""

    seconds: float
    waited_s: float
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Site:
    """An origin, and a command that may run on it."""

    monarch: str
    work: Path
    origin: countfs.CountFs

    def files(self, root: Path | None = None) -> list[str]:
        """The files at the origin, or at another place."""
        names = sorted(path.name for path in self.origin.source.iterdir())
        return [str((root or self.origin.root) / name) for name in names]

    def run(self, *options: str) -> list[str]:
        """`monarch run ... --`."""
        words = [self.monarch, "run", "-q", "--data", str(self.origin.root)]
        return [*words, "--tier", "ram:4GiB", *options, "--"]

    def output(
        self, before: Sequence[str], words: Sequence[str | int], root: Path | None
    ) -> list[str]:
        """What the program in C prints, run by a command, on all files."""
        line = [*before, str(self.work / "large"), *map(str, words), *self.files(root)]
        done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.splitlines()

    def epochs(
        self, before: Sequence[str], *words: str | int, root: Path | None = None
    ) -> list[Epoch]:
        """The epochs that it tells of."""
        lines = [line.split() for line in self.output(before, words, root)]
        return [Epoch(float(s), float(w), int(b)) for s, w, b in lines]


def build(work: Path) -> None:
    """Compile the program that reads."""
    source = Path(__file__).with_name("large.c")
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", str(work / "large"), str(source)], check=True)


@contextmanager
def files(work: Path, sizes: Sequence[int]) -> Iterator[tuple[Path, Path]]:
    """Files of some sizes, and where to mount a view of them, until the block ends."""
    source, root = work / "source", work / "origin"
    for folder in (source, root):
        folder.mkdir()
    body = random.Random(5).randbytes(MIB)
    for number, size in enumerate(sizes):
        with (source / f"{number:03}").open("wb") as file:
            for _ in range(size // MIB):
                file.write(body)
    yield source, root
    for folder in (source, root):
        shutil.rmtree(folder)


@contextmanager
def site(monarch: str, work: Path, sizes: Sequence[int]) -> Iterator[Site]:
    """Files of some sizes at a throttled origin, until the block ends."""
    with files(work, sizes) as (source, root):
        view = countfs.mounted(countfs.build(), source, root, bw=BYTES_PER_S)
        with view as origin:
            yield Site(monarch, work, origin)


def told(size: int) -> str:
    """A number of bytes in MiB."""
    return f"{size // MIB:,} MiB"


def told_small(size: int) -> str:
    """A number of bytes in KiB or MiB."""
    return f"{size >> 10} KiB" if size < MIB else told(size)


def ratio_row(what: str, ours: float, theirs: float, other: str, budget: float) -> Row:
    """A row of seconds."""
    against = f"{theirs:.3f} s {other}"
    return Row(what, f"{ours:.3f} s", against, ours / theirs, budget)


def in_order(monarch: str, work: Path, shards: int) -> list[Row]:
    """Whole shards by preads of a Block: first epoch, later ones, origin bytes."""
    with site(monarch, work, [SHARD] * shards) as place:
        [direct] = place.epochs([], "order", 1, 0)
        place.origin.reset()
        ours = place.epochs(place.run(), "order", EPOCHS, 0)
        origin_bytes = place.origin.counts().read_bytes
        copy = work / "copy"
        shutil.copytree(place.origin.source, copy)
        by_hand = place.epochs([], "order", EPOCHS, 0, root=copy)
        shutil.rmtree(copy)
    what = f"{shards} x {told(SHARD)} in order"
    later, copied = (min(e.seconds for e in one[1:]) for one in (ours, by_hand))
    total = shards * SHARD
    return [
        ratio_row(f"{what}, epoch 1", ours[0].seconds, direct.seconds, "direct", 1.05),
        ratio_row(f"{what}, later", later, copied, "copied by hand", 1.05),
        Row(
            f"{what}, origin bytes of {EPOCHS} epochs",
            f"{origin_bytes:,}",
            f"{total:,} in the dataset",
            origin_bytes / total,
            1.02,
        ),
    ]


def sparse(monarch: str, work: Path, *, quick: bool) -> list[Row]:
    """Pieces at random that begin anywhere, by size, share and latency of the origin.

    The kernel's page cache is on, as on a network file system: a plain read costs the
    origin the pages that it touches. Each pass begins with an empty one.
    """
    rows = []
    shares = SHARES[1:3] if quick else SHARES
    for latency_ms, piece in itertools.product(LATENCIES_MS, SPARSE_BYTES):
        with files(work, [SPARSE_BYTES[piece]]) as folders:
            place = Sparse(monarch, work, *folders, latency_ms, piece)
            for share in shares:
                rows += place.rows(share)
    return rows


@dataclass(frozen=True, slots=True)
class Sparse:
    """One file at an origin with a latency, read in pieces of one size."""

    monarch: str
    work: Path
    source: Path
    root: Path
    latency_ms: int
    piece: int

    def epochs(self, options: Sequence[str] | None, share: int) -> list[Epoch]:
        """Two passes over the same pieces, the first one with an empty page cache.

        The bytes are those that the origin gave for all of it.

        Args:
            options: of Monarch; None: the program reads the origin.
            share: of the file, in percent.
        """
        settings = {"bw": SPARSE_BYTES_PER_S, "read_us": 1000 * self.latency_ms}
        view = countfs.mounted(
            countfs.build(), self.source, self.root, cached=1, **settings
        )
        with view as origin:
            place = Site(self.monarch, self.work, origin)
            before = [] if options is None else place.run(*options)
            passes = 1 if options is None else 2
            found = place.epochs(before, "sparse", passes, share, self.piece)
            given = origin.counts().read_bytes
        return [replace(epoch, read_bytes=given) for epoch in found]

    def rows(self, share: int) -> list[Row]:
        """Time and bytes of the first pass, and time of the second, against direct."""
        [direct] = self.epochs(None, share)
        what = f"{told_small(self.piece)} x {share}%, {self.latency_ms} ms"
        rows = []
        for fill, options in (("fill on", ()), ("fill off", NO_FILL)):
            first, later = self.epochs(options, share)
            name = f"{what}, {fill}"
            rows += [
                ratio_row(name, first.seconds, direct.seconds, "direct", 1.25),
                ratio_row(
                    f"{name}, read again", later.seconds, direct.seconds, "direct", 0.1
                ),
            ]
        ours, theirs = first.read_bytes, direct.read_bytes
        told_bytes = f"{ours:,}", f"{theirs:,} direct"
        return [*rows, Row(f"{what}, origin bytes", *told_bytes, ours / theirs, 1.25)]


def first_bytes(monarch: str, work: Path, shards: int) -> list[Row]:
    """Open and first Block of files that have not been read, while others fill."""
    with site(monarch, work, [SHARD] * shards) as place:
        direct, ours = (
            [float(line) for line in place.output(before, ("first", PAUSE_MS), None)]
            for before in ([], place.run())
        )
    medians = [statistics.median(one) * 1000 for one in (ours, direct)]
    return [
        Row(
            f"open and first Block of {shards - 1} x {told(SHARD)}, fill on, p50",
            f"{medians[0]:.2f} ms, worst {max(ours) * 1000:.1f}",
            f"{medians[1]:.2f} ms direct, worst {max(direct) * 1000:.1f}",
            medians[0] / medians[1],
            1.3,
        )
    ]


def waiting(monarch: str, work: Path, size: int) -> list[Row]:
    """One file in order by a program that computes as long as the origin reads."""
    with site(monarch, work, [size]) as place:
        [direct] = place.epochs([], "order", 1, COMPUTE_US)
        [ours] = place.epochs(place.run(), "order", 1, COMPUTE_US)
    return [
        Row(
            f"waiting in an epoch over {told(size)}, computing half of the time",
            f"{ours.waited_s:.2f} s behind the first Extent",
            f"{ours.seconds:.2f} s in all; direct {direct.waited_s:.2f} "
            f"of {direct.seconds:.2f}",
            ours.waited_s / ours.seconds,
            0.1,
        )
    ]


def timed(program: str, size: int, path: str, plain: bool) -> float:
    """Return the least nanoseconds per call of some rounds."""
    environ = dict(os.environ)
    if plain:
        environ.pop("LD_PRELOAD", None)
        environ["MONARCH_STAGING_DISABLE"] = "1"
    line = [program, "calls", str(ROUNDS), str(size), path]
    done = subprocess.run(line, env=environ, check=True, stdout=subprocess.PIPE)
    return min(map(float, done.stdout.split()))


def await_ready(path: str) -> None:
    """Read a file until opening it leads elsewhere."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        with open(path, "rb", buffering=0) as file:
            if os.readlink(f"/proc/self/fd/{file.fileno()}") != path:
                return
            while file.read(MIB):
                pass
    raise SystemExit(f"{path} was not staged in {READY_S} s")


def inside(work: Path, root: Path) -> None:
    """Run in the job: time calls under the Shim and plain, on a copy, in turn."""
    program, copy = str(work / "large"), str(work / "copy")
    ready, *partial = (str(root / f"{number:03}") for number in range(1 + 2 * TURNS))
    await_ready(ready)
    for kind, size in CALLS:
        turns = []
        for _ in range(TURNS):
            # A file that has been opened before may be whole by now.
            path = {"ready": ready, "beside": copy}.get(kind) or partial.pop()
            ours = timed(program, size, path, plain=False)
            turns.append((ours, timed(program, size, copy, plain=True)))
        ours, plain = (min(column) for column in zip(*turns, strict=True))
        print("row", kind, size, ours, plain, flush=True)


def calls(monarch: str, work: Path) -> list[Row]:
    """What a pread costs: of a ready File, a partial one, an unrelated descriptor."""
    sizes = [16 * MIB] + [SHARD] * (2 * TURNS)
    with site(monarch, work, sizes) as place:
        shutil.copy(place.origin.source / "001", work / "copy")
        program = [sys.executable, __file__, str(work), str(place.origin.root)]
        line = [*place.run(*NO_FILL), *program]
        done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    found = {}
    for line_told in done.stdout.splitlines():
        _, kind, size, *figures = line_told.split()
        found[kind, int(size)] = tuple(map(float, figures))
    names = (
        ("pread of 4 KiB, ready File", 1.05, 1.0),
        ("pread of 4 KiB, partial File, us more", 2.5, 1000.0),
        ("pread of 128 KiB, partial File", 1.15, 1.0),
        ("pread of an unrelated descriptor, ns more", 20, 1.0),
    )
    rows = []
    for key, (what, budget, unit) in zip(CALLS, names, strict=True):
        ours, plain = found[key]
        figure = (ours - plain) / unit if "more" in what else ours / plain
        told_ns = (f"{ours:,.0f} ns", f"{plain:,.0f} ns plain, local")
        rows.append(Row(what, *told_ns, figure, budget))
    return rows


def measure(monarch: str, work: Path, *, quick: bool) -> list[Row]:
    """Measure all, each on an origin of its own.

    Args:
        quick: on smaller files, which start and end of a job weigh upon.
    """
    less = QUICK if quick else 1
    build(work)
    return [
        *in_order(monarch, work, 16 // less),
        *sparse(monarch, work, quick=quick),
        *first_bytes(monarch, work, 16 // less),
        *waiting(monarch, work, 256 * MIB // less),
        *calls(monarch, work),
    ]


def main() -> int:
    """Measure alone, without the other parts of the table."""
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        rows = measure(monarch, Path(base), quick="--quick" in sys.argv)
    print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        inside(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
