"""Budgets of the peers' data plane: our server and receiver beside plain C ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from table import Row, print_rows

ROOT = Path(__file__).parents[2]
ROUNDS = 9
SERVER_BUDGETS = {"110 KB x 16": 0.8, "4 MiB x 4": 0.85}
LANDING_BUDGET = 0.6
# files, bytes of each, in flight, passes of one round
LOADS = {"110 KB x 16": (256, 110 << 10, 16, 8), "4 MiB x 4": (24, 4 << 20, 4, 3)}


class Pace(NamedTuple):
    """Medians of one pair of a server and a receiver."""

    mb_per_s: float
    asking: float
    serving: float
    ratio: float

    def __str__(self) -> str:
        cpu = f"{self.asking:.2f} + {self.serving:.2f} s/GB CPU"
        return f"{self.mb_per_s:,.0f} MB/s, {cpu}"


def build(folder: Path) -> Path:
    """Compile the benchmark with the data plane's own sources."""
    native, board = ROOT / "monarch" / "native", ROOT / "tests" / "native" / "dataplane"
    sources = [Path(__file__).with_suffix(".c"), board / "board.c"]
    sources += [*native.glob("dataplane/*.c"), *native.glob("shared/*.c")]
    program = folder / "peers"
    words = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{board}", f"-I{native}"]
    words += ["-o", str(program), *map(str, sources), "-pthread"]
    subprocess.run(words, check=True)
    return program


def figures(program: Path, work: Path, load: str) -> dict[str, Pace]:
    """Run all four pairs in turn with one load."""
    words = [str(program), *map(str, LOADS[load]), str(ROUNDS)]
    environment = {**os.environ, "TEST_BASE": str(work)}
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, env=environment
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: Pace(*map(float, numbers)) for name, *numbers in lines}


def rows(load: str, found: dict[str, Pace]) -> list[Row]:
    """Return the rows of one load; CPU is that of the asking and the serving side."""
    served, landed = found["server-buffer"], found["agent-file"]
    return [
        Row(
            f"peer server, {load} in flight, into a private buffer",
            str(served),
            f"C epoll + sendfile {found['plain-buffer']}",
            served.ratio,
            SERVER_BUDGETS[load],
            at_least=True,
        ),
        Row(
            f"peer fetch, {load} in flight, published in a tmpfs Tier",
            str(landed),
            f"C receive into new files {found['plain-file']}",
            landed.ratio,
            LANDING_BUDGET,
            at_least=True,
        ),
    ]


def measure(work: Path) -> list[Row]:
    """Measure both loads over loopback and return the rows."""
    program = build(work)
    return [row for load in LOADS for row in rows(load, figures(program, work, load))]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        table = measure(Path(base))
    print_rows(table)
    sys.exit(0 if all(row.kept for row in table) else 1)
