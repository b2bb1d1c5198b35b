"""Hints: how long a program waits for files of a dataset that is larger than all Tiers.

The origin is the tests' counting file system, slow by each operation and by its rate. A
program opens all files in an order that it knows, and computes for as long as a direct
read takes: so half of its time, without Monarch. It runs under Monarch without hints,
with the right order and with a wrong one, in turn. The Pool is a part of the Tier.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

FILES, FILE_BYTES = 1500, 100_000
TIER_PARTS = 3
TURNS = 3
EPOCHS = 2
SLOW = {"keep_ms": 1000, "op_us": 500, "bw": 100_000_000, "parallel": 16}
STALL, WRONG = 0.3, 1.05


def make_files(work: Path) -> None:
    """Create the files, all of one size."""
    source, body = work / "source", random.Random(5).randbytes(FILE_BYTES)
    source.mkdir(parents=True)
    for number in range(FILES):
        (source / f"{number:05d}").write_bytes(body)


def epochs_of(mount: Path, seed: int) -> list[list[str]]:
    """Return the order of each epoch."""
    paths = [str(mount / f"{number:05d}") for number in range(FILES)]
    return [
        random.Random(100 * seed + epoch).sample(paths, FILES)
        for epoch in range(EPOCHS)
    ]


def run_program(mount: Path, compute_s: float, hints: str) -> None:
    """Open all files in each epoch; print the times that were waited, and all of it.

    Args:
        hints: none, right, or wrong: an order of files that do not come in it.
    """
    import monarch

    stall_s, begin = 0.0, time.perf_counter()
    for order, other in zip(epochs_of(mount, 1), epochs_of(mount, 2), strict=True):
        if hints != "none":
            monarch.hint(order if hints == "right" else other)
        for path in order:
            before = time.perf_counter()
            with open(path, "rb", buffering=0) as file:
                file.readall()
            stall_s += time.perf_counter() - before
            if compute_s:
                time.sleep(compute_s)
    print(json.dumps([stall_s, time.perf_counter() - begin]))


def run(words: list[str], mount: Path, compute_s: float, hints: str) -> list[float]:
    """Run the program behind some words; return the seconds waited, and of it all."""
    program = [sys.executable, __file__, str(mount), str(compute_s), hints]
    done = subprocess.run([*words, *program], check=True, stdout=subprocess.PIPE)
    found: list[float] = json.loads(done.stdout)
    return found


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure the three runs in turn."""
    mount = work / "origin"
    mount.mkdir(parents=True)
    make_files(work)
    tier = f"ram:{FILES * FILE_BYTES // TIER_PARTS}B"
    words = [monarch, "run", "-q", "--data", str(mount), "--tier", tier, "--"]
    turns: dict[str, list[list[float]]] = {"none": [], "right": [], "wrong": []}
    with countfs.mounted(countfs.build(), work / "source", mount, **SLOW):
        direct = [run([], mount, 0, "none")[0] for _ in range(TURNS)]
        compute_s = statistics.median(direct) / FILES / EPOCHS
        for _ in range(TURNS):
            for hints, found in turns.items():
                found.append(run(words, mount, compute_s, hints))
    shutil.rmtree(work)
    return rows(turns)


def rows(turns: dict[str, list[list[float]]]) -> list[Row]:
    """Return the rows of the table."""
    stall = {hints: statistics.median(s for s, _ in t) for hints, t in turns.items()}
    total = {hints: statistics.median(s for _, s in t) for hints, t in turns.items()}
    what = f"dataset of {TIER_PARTS} x the Tier, compute half of the time"
    return [
        Row(
            f"waited for files with hints, {what}",
            f"{stall['right']:.2f} s",
            f"{stall['none']:.2f} s without hints",
            stall["right"] / stall["none"],
            STALL,
        ),
        Row(
            "the whole run with a wrong order",
            f"{total['wrong']:.2f} s",
            f"{total['none']:.2f} s without hints",
            total["wrong"] / total["none"],
            WRONG,
        ),
    ]


def main() -> int:
    """Measure alone, without the other parts of the table."""
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        table = measure(monarch, Path(base))
    print_rows(table)
    return 0 if all(row.kept for row in table) else 1


if __name__ == "__main__":
    if len(sys.argv) == 4 and os.path.isdir(sys.argv[1]):
        run_program(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
