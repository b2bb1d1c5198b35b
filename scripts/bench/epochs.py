"""Epoch budgets on a bandwidth-bound origin: one node, four reading processes.

The origin is the tests' counting file system with its page cache off, throttled.
Three ways in turn: straight from the origin, under Monarch, and from a copy made by
hand on the tier's medium. Each prints the seconds of its epochs.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from table import Row

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

FILES = 2_000
FILE_BYTES = 110_000
BYTES_PER_S = 100_000_000
WORKERS = 4
EPOCHS = 3
TURNS = 3


def make_tree(root: Path) -> None:
    """Create FILES files of seeded bytes in ten folders."""
    source = random.Random(2)
    for i in range(FILES):
        folder = root / f"class{i % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"image{i:05d}.jpg").write_bytes(source.randbytes(FILE_BYTES))


def digest(path: str) -> bytes:
    """Read a file as a training worker would and return its digest."""
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=8).digest()


def read_epochs(root: Path, epochs: int) -> None:
    """Read all files in a new random order each epoch; print seconds and a digest."""
    paths = sorted(str(p) for p in root.rglob("*.jpg"))
    order = random.Random(3)
    with multiprocessing.Pool(WORKERS) as pool:
        for _ in range(epochs):
            order.shuffle(paths)
            begin = time.perf_counter()
            seen = pool.map(digest, paths, chunksize=8)
            seconds = time.perf_counter() - begin
            total = hashlib.blake2b(b"".join(sorted(seen)), digest_size=8).hexdigest()
            print(f"{seconds:.4f} {total}", flush=True)


def epochs_of(command: list[str], root: Path, epochs: int) -> list[float]:
    """Run the reader and return the seconds of each epoch."""
    reader = [sys.executable, __file__, str(root), str(epochs)]
    done = subprocess.run(
        [*command, *reader], check=True, stdout=subprocess.PIPE, text=True
    )
    return [float(line.split()[0]) for line in done.stdout.splitlines()]


def measure(monarch: str, work: Path) -> list[Row]:
    """Time the three ways in turn and return the rows."""
    make_tree(work / "source")
    copy = Path("/dev/shm") / f"monarch-bench-{work.name}"
    first, later, origin_bytes = [], [], []
    try:
        shutil.copytree(work / "source", copy)
        mount = work / "origin"
        mount.mkdir()
        program = countfs.build()
        with countfs.mounted(program, work / "source", mount, bw=BYTES_PER_S) as origin:
            run = [
                monarch,
                "run",
                "-q",
                "--data",
                str(mount),
                "--tier",
                "ram:1GiB",
                "--",
            ]
            for _ in range(TURNS):
                direct = epochs_of([], mount, 1)
                origin.reset()
                staged = epochs_of(run, mount, EPOCHS)
                origin_bytes.append(origin.counts().read_bytes)
                by_hand = epochs_of([], copy, EPOCHS)
                first.append((staged[0], direct[0]))
                later.append((min(staged[1:]), min(by_hand[1:])))
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    total = FILES * FILE_BYTES
    return [
        paired("epoch 1, bandwidth-bound origin", first, "direct", 1.05),
        paired("epochs 2 and later, all fits", later, "copied by hand", 1.05),
        Row(
            f"origin bytes, {EPOCHS} epochs x {WORKERS} processes",
            f"{max(origin_bytes):,}",
            f"{total:,} in the dataset",
            max(origin_bytes) / total,
            1.02,
        ),
    ]


def paired(
    what: str, turns: list[tuple[float, float]], other: str, budget: float
) -> Row:
    """Make a row of the medians of seconds and of their ratios."""
    ours = statistics.median(o for o, _ in turns)
    theirs = statistics.median(t for _, t in turns)
    ratio = statistics.median(o / t for o, t in turns)
    return Row(what, f"{ours:.3f} s", f"{theirs:.3f} s {other}", ratio, budget)


if __name__ == "__main__":
    read_epochs(Path(sys.argv[1]), int(sys.argv[2]))
