"""The first epoch on origins that are slow in different ways, against direct reading.

The origin is the tests' counting file system. Each case reads all files once in random
order, by several processes in C: straight from the origin and under Monarch in turn,
with no setting touched but the capacity of the Tier.
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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from staging import build
from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

FOLDER_FILES = 1000
QUICK = 10
"""How many times fewer files are read where a figure is needed soon."""


@dataclass(frozen=True, slots=True)
class Case:
    """One origin, what lies there, and what Monarch may cost.

    Args:
        settings: of countfs.c.
        turns: how often both sides are measured.
    """

    what: str
    files: int
    file_bytes: int
    readers: int
    budget: float
    settings: dict[str, int] = field(default_factory=dict)
    turns: int = 3


CASES = {
    "latency": Case(
        "2 ms an operation, 16 in parallel: 20,000 x 20 KB, 2 readers",
        *(20_000, 20_000, 2, 0.35),
        {"keep_ms": 1000, "op_us": 2000, "parallel": 16},
        turns=1,
    ),
    "bandwidth": Case(
        "100 MB/s in all: 4,000 x 110 KB, 4 readers",
        *(4_000, 110_000, 4, 1.02),
        {"keep_ms": 1000, "bw": 100_000_000},
    ),
    "thrash": Case(
        "thrashes beyond 8 parallel reads: 8,000 x 110 KB, 4 readers",
        *(8_000, 110_000, 4, 1.1),
        {"keep_ms": 1000, "read_us": 2000, "thrash": 8},
    ),
    "thrash-full": Case(
        "the same with 8 readers, as many as it takes",
        *(8_000, 110_000, 8, 1.1),
        {"keep_ms": 1000, "read_us": 2000, "thrash": 8},
    ),
    "tiny": Case(
        "200 us an operation: 200,000 x 1 KB, 2 readers",
        *(200_000, 1_000, 2, 1.05),
        {"keep_ms": 1000, "op_us": 200},
        turns=1,
    ),
    "tiny-fast": Case(
        "no latency: 200,000 x 1 KB, 2 readers",
        *(200_000, 1_000, 2, 1.3),
        {"keep_ms": 1000},
    ),
}


def make_tree(case: Case, work: Path, mount: Path) -> None:
    """Create the files, and the list of each reader."""
    body, paths = random.Random(6).randbytes(case.file_bytes), []
    for first in range(0, case.files, FOLDER_FILES):
        folder = work / "source" / f"{first // FOLDER_FILES:03d}"
        folder.mkdir(parents=True)
        for i in range(first, min(first + FOLDER_FILES, case.files)):
            (folder / f"{i:06d}").write_bytes(body)
            paths.append(mount / folder.name / f"{i:06d}")
    random.Random(7).shuffle(paths)
    for reader in range(case.readers):
        listed = "".join(f"{path}\n" for path in paths[reader :: case.readers])
        (work / f"{reader}.list").write_text(listed)


def read_all(work: Path) -> float:
    """Read all files by the readers of the lists; return the seconds it took."""
    lists = sorted(work.glob("*.list"))
    begin = time.perf_counter()
    readers = [
        subprocess.Popen(
            [work / "opens", paths, "read", "1"], stdout=subprocess.DEVNULL
        )
        for paths in lists
    ]
    codes = [reader.wait() for reader in readers]
    if any(codes):
        raise SystemExit("a reader has failed")
    return time.perf_counter() - begin


def staged(monarch: str, work: Path, mount: Path) -> tuple[float, str]:
    """Return the seconds of epoch 1 under Monarch, and the limit that fill found."""
    report = work / "report.json"
    words = [monarch, "run", "-q", "--data", str(mount), "--tier", "ram:4GiB"]
    words += ["--report", str(report), "--", sys.executable, __file__, str(work)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(report.read_text())["staging"].get("concurrency")
    return float(done.stdout), f", fill {found['most']} at once" if found else ""


def measure_case(monarch: str, work: Path, case: Case) -> Row:
    """Measure both sides in turn on one mount."""
    mount = work / "origin"
    mount.mkdir(parents=True)
    build(work)
    make_tree(case, work, mount)
    turns, found = [], ""
    with countfs.mounted(countfs.build(), work / "source", mount, **case.settings):
        for _ in range(case.turns):
            direct = read_all(work)
            seconds, found = staged(monarch, work, mount)
            turns.append((seconds, direct))
    shutil.rmtree(work)
    ours = statistics.median(o for o, _ in turns)
    theirs = statistics.median(d for _, d in turns)
    return Row(
        f"epoch 1, {case.what}",
        f"{ours:.2f} s{found}",
        f"{theirs:.2f} s direct",
        statistics.median(o / d for o, d in turns),
        case.budget,
    )


def measure(
    monarch: str, work: Path, *, quick: bool, names: Sequence[str] = tuple(CASES)
) -> list[Row]:
    """Measure some cases.

    Args:
        quick: with fewer files, which start and end of a job weigh upon.
    """
    rows = []
    for name in names:
        case = CASES[name]
        if quick:
            what = f"{case.what}, a tenth of them"
            case = replace(case, what=what, files=case.files // QUICK)
        rows.append(measure_case(monarch, work / name, case))
    return rows


def main() -> int:
    """Measure alone, without the other parts of the table."""
    words = [word for word in sys.argv[1:] if word != "--quick"]
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        quick = "--quick" in sys.argv
        table = measure(monarch, Path(base), quick=quick, names=words or list(CASES))
    print_rows(table)
    return 0 if all(row.kept for row in table) else 1


if __name__ == "__main__":
    if len(sys.argv) == 2 and os.path.isdir(sys.argv[1]):
        print(read_all(Path(sys.argv[1])))
    else:
        sys.exit(main())
