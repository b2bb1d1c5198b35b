"""Staging budgets: the copy engine against a plain loop, cold opens against the engine.

Origin and tier lie on tmpfs. The engine's figures come from engine.c, which drives it
without Python; a cold open is timed by the program under `monarch run`, with Shim,
request thread, Python's decision and copy in between.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import busy
import engine
from table import Row

FILES = 3_000
FILE_BYTES = engine.FILE_BYTES
READERS = 16
RATE_FILES = 400
COLD_BUDGET = 2.5
RATE_BUDGET = 0.8

Figures = dict[str, tuple[float, float]]


def build(work: Path) -> None:
    """Compile the program that times opens."""
    source = Path(__file__).with_name("opens.c")
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-o", str(work / "opens"), str(source)]
    subprocess.run(command, check=True)


def make_tree(root: Path) -> None:
    """Create a folder of files for each kind of timing."""
    body = random.Random(4).randbytes(FILE_BYTES)
    rates = {f"rate{i}": RATE_FILES for i in range(READERS)}
    for kind, count in {"calm": FILES, "busy": FILES, **rates}.items():
        (root / kind).mkdir(parents=True)
        for i in range(count):
            (root / kind / f"{i:05d}").write_bytes(body)


def listing(root: Path, kind: str) -> str:
    """Write the list of one folder's files and return its path."""
    file = root.parent / f"{kind}.list"
    file.write_text("".join(f"{path}\n" for path in sorted((root / kind).iterdir())))
    return str(file)


def latencies(program: str, paths: str) -> list[float]:
    """Time each cold open of a list by itself, in microseconds, ascending."""
    words = [program, paths, "each", "1"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return sorted(float(line) / 1000 for line in done.stdout.split())


def seconds_of_readers(program: str, lists: list[str]) -> float:
    """Return how long readers take that begin together, each with its own list."""
    readers = [
        subprocess.Popen(
            [program, paths, "open", "1", "wait"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for paths in lists
    ]
    for reader in readers:
        assert reader.stdout is not None
        reader.stdout.readline()
    begin = time.perf_counter()
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.close()
    for reader in readers:
        reader.wait()
    return time.perf_counter() - begin


def inside(work: Path) -> None:
    """Run in the job: cold opens alone, beside a scan, and as fast as readers can."""
    program, root = str(work / "opens"), work / "data"
    calm = latencies(program, listing(root, "calm"))
    index = [str(Path(sys.executable).with_name("monarch")), "index", str(root)]
    scan = subprocess.Popen(
        ["sh", "-c", f'while "$@" -o {work}/index; do :; done', "sh", *index],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    scanned = latencies(program, listing(root, "busy"))
    os.killpg(scan.pid, 9)
    scan.wait()
    lists = [listing(root, f"rate{i}") for i in range(READERS)]
    rate = READERS * RATE_FILES / seconds_of_readers(program, lists)
    p99 = FILES * 99 // 100
    print("row", statistics.median(calm), calm[p99], scanned[p99], rate, flush=True)


def cold_opens(monarch: str, work: Path, variables: dict[str, str]) -> list[float]:
    """Return p50, p99 and p99 beside a scan in microseconds, and files a second."""
    make_tree(work / "data")
    words = [monarch, "run", "-q", "--data", str(work / "data"), "--tier", "ram:4GiB"]
    program = [sys.executable, __file__, str(work)]
    done = subprocess.run(
        [*words, "--set", "fill.enabled=false", "--", *program],
        check=True, stdout=subprocess.PIPE, text=True, env=variables,
    )  # fmt: skip
    shutil.rmtree(work / "data")
    line = next(x for x in done.stdout.splitlines() if x.startswith("row"))
    return [float(word) for word in line.split()[1:]]


def rows(found: list[float], alone: Figures, where: str) -> list[Row]:
    """Return the rows of what an engine alone is compared with.

    Args:
        where: what runs beside both, if anything does.
    """
    p50, p99, busy, rate = found
    engine_rate, copy = alone["engine"][0], alone["copy"][0]
    return [
        Row(
            f"cold open of a 110 KB file{where}, p50",
            f"{p50:.0f} us",
            f"{copy:.0f} us one plain C copy of 110 KB",
            p50 / copy,
            COLD_BUDGET,
        ),
        Row(f"the same{where}, p99, ms", f"{p99 / 1000:.2f} ms", "-", p99 / 1000, 5),
        Row(
            f"the same beside a scan{where}, p99, ms",
            f"{busy / 1000:.2f} ms",
            "-",
            busy / 1000,
            5,
        ),
        Row(
            f"cold opens, {READERS} readers{where}",
            f"{rate:,.0f} files/s",
            f"{engine_rate:,.0f} files/s engine alone",
            rate / engine_rate,
            RATE_BUDGET,
            at_least=True,
        ),
    ]


def measure(monarch: str, work: Path) -> list[Row]:
    """Time the engine, then cold opens in a job, and both beside busy Python."""
    build(work)
    alone = engine.figures(work)
    found = cold_opens(monarch, work, dict(os.environ))
    with busy.neighbour():
        beside = engine.figures(work)
    found_busy = cold_opens(monarch, work, busy.environment(work))
    return [
        *engine.rows(alone),
        *rows(found, alone, ""),
        *rows(found_busy, beside, ", while Python is busy"),
    ]


if __name__ == "__main__":
    inside(Path(sys.argv[1]))
