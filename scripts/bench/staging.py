"""Staging budgets: the copy engine against a plain loop, cold opens against the engine.

Origin and tier lie on tmpfs. The engine's figures come from engine.c, which drives it
without Python; a cold open is timed by the program under `monarch run`, with Shim,
request thread, Python's decision and copy in between.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from table import Row

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "monarch" / "native"
FILES = 3_000
FILE_BYTES = 100_000
ENGINE_BYTES = 110_000
ENGINE_ROUNDS = 5
READERS = 2


def build(work: Path) -> None:
    """Compile the two timing programs."""
    board = ROOT / "tests" / "native" / "dataplane"
    flags = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O2",
        f"-I{NATIVE}",
        f"-I{NATIVE / 'shared'}",
    ]
    native = [*NATIVE.glob("dataplane/*.c"), *NATIVE.glob("shared/*.c")]
    here = Path(__file__).parent
    engine = [here / "engine.c", board / "board.c", *native]
    for name, sources in [("engine", engine), ("opens", [here / "opens.c"])]:
        command = ["cc", *flags, f"-I{board}", "-o", work / name, *sources, "-lpthread"]
        subprocess.run([str(word) for word in command], check=True)


def engine_figures(work: Path) -> dict[str, list[float]]:
    """Run engine.c and return its lines by name."""
    environ = {**os.environ, "TEST_ORIGIN": str(work), "TEST_BASE": str(work)}
    words = [str(work / "engine"), str(FILES), str(ENGINE_BYTES), str(ENGINE_ROUNDS)]
    done = subprocess.run(
        words, env=environ, check=True, capture_output=True, text=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: [float(value) for value in values] for name, *values in lines}


def make_tree(root: Path) -> None:
    """Create a folder of files for each kind of timing."""
    body = random.Random(4).randbytes(FILE_BYTES)
    for kind in ("calm", "busy", *(f"rate{i}" for i in range(READERS))):
        (root / kind).mkdir(parents=True)
        for i in range(FILES):
            (root / kind / f"{i:05d}").write_bytes(body)


def listing(root: Path, kind: str) -> str:
    """Write the list of one folder's files and return its path."""
    file = root.parent / f"{kind}.list"
    names = "\n".join(str(root / kind / f"{i:05d}") for i in range(FILES))
    file.write_text(names + "\n")
    return str(file)


def latencies(program: str, paths: str) -> list[float]:
    """Time each cold open of a list by itself, in microseconds, ascending."""
    words = [program, paths, "each", "1"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return sorted(float(line) / 1000 for line in done.stdout.split())


def inside(work: Path) -> None:
    """Run in the job: cold opens alone, beside a scan, and as fast as readers can."""
    program, root = str(work / "opens"), work / "data"
    calm = latencies(program, listing(root, "calm"))
    index = [str(Path(sys.executable).with_name("monarch")), "index", str(root)]
    scan = subprocess.Popen(
        ["sh", "-c", 'while "$@" -o /dev/null; do :; done', "sh", *index],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    busy = latencies(program, listing(root, "busy"))
    os.killpg(scan.pid, 9)
    scan.wait()
    lists = [listing(root, f"rate{i}") for i in range(READERS)]
    begin = time.perf_counter()
    readers = [subprocess.Popen([program, paths, "open", "1"]) for paths in lists]
    for reader in readers:
        reader.wait()
    rate = READERS * FILES / (time.perf_counter() - begin)
    p99 = FILES * 99 // 100
    print("row", statistics.median(calm), calm[p99], busy[p99], rate, flush=True)


def measure(monarch: str, work: Path) -> list[Row]:
    """Time the engine, then cold opens in a job."""
    build(work)
    engine = engine_figures(work)
    make_tree(work / "data")
    words = [monarch, "run", "-q", "--data", str(work / "data"), "--tier", "ram:4GiB"]
    program = [sys.executable, __file__, str(work)]
    done = subprocess.run(
        [*words, "--set", "fill.enabled=false", "--", *program],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    line = next(x for x in done.stdout.splitlines() if x.startswith("row"))
    p50, p99, busy, rate = (float(word) for word in line.split()[1:])
    loop_rate, engine_rate = engine["loop"][0], engine["engine"][0]
    copy, cold = engine["copy"][0], engine["cold"][0]
    return [
        Row(
            "staging 110 KB files, 2 threads",
            f"{engine_rate:,.0f} files/s",
            f"{loop_rate:,.0f} files/s plain C loop",
            engine_rate / loop_rate,
            0.8,
            at_least=True,
        ),
        Row(
            "cold open of a 100 KB file, p50",
            f"{p50:.0f} us",
            f"{copy:.0f} us one plain C copy ({cold:.0f} us request to wake in C)",
            p50 / copy,
            4,
        ),
        Row("the same, p99, ms", f"{p99 / 1000:.2f} ms", "-", p99 / 1000, 5),
        Row(
            "the same beside a scan, p99, ms",
            f"{busy / 1000:.2f} ms",
            "-",
            busy / 1000,
            5,
        ),
        Row(
            f"cold opens, {READERS} readers",
            f"{rate:,.0f} files/s",
            f"{engine_rate:,.0f} files/s engine alone",
            rate / engine_rate,
            0.4,
            at_least=True,
        ),
    ]


if __name__ == "__main__":
    inside(Path(sys.argv[1]))
