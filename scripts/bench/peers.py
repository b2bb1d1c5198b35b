"""Budgets of the peers' data plane: our server and receiver beside plain C ones.

Two processes of Python pass Files over loopback by peers.c, whose threads need no
Python: so once more with a busy Python thread in each, beside plain C with two such.
A cold open that a peer answers is timed by programs of two nodes of a job.

For plain C too, receiving into a new file of 4 KB pages takes two or three times
what receiving into a buffer takes: what lands is held against C that lands alike.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import peeropens
from engine import compile_with_engine
from table import Row, print_rows

ROUNDS = 9
BUSY_ROUNDS = 5
BUFFER_BUDGETS = {"110 KB x 16": 0.8, "4 MiB x 4": 0.85}
# files, bytes of each, in flight, passes of one round
LOADS = {"110 KB x 16": (256, 110 << 10, 16, 8), "4 MiB x 4": (24, 4 << 20, 4, 3)}


class Pace(NamedTuple):
    """Medians of one pair of a server and a receiver.

    Attributes:
        buffer: ratio to plain C that receives into a private buffer.
        alike: ratio to plain C that lands its bytes in the same way.
    """

    mb_per_s: float
    asking: float
    serving: float
    buffer: float
    alike: float

    def __str__(self) -> str:
        cpu = f"{self.asking:.2f} + {self.serving:.2f} s/GB CPU"
        return f"{self.mb_per_s:,.0f} MB/s, {cpu}"


def build(folder: Path, *flags: str) -> Path:
    """Compile the benchmark with the data plane's own sources."""
    library = folder / "libpeers.so"
    source = Path(__file__).with_suffix(".c")
    compile_with_engine(source, library, "-shared", *flags)
    return library


def figures(library: Path, work: Path, load: str, *, busy: bool) -> dict[str, Pace]:
    """Run all four pairs in turn with one load."""
    words = [sys.executable, __file__, str(library), load, "busy" if busy else "calm"]
    environment = {**os.environ, "TEST_BASE": str(work)}
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, env=environment
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: Pace(*map(float, numbers)) for name, *numbers in lines}


def inside(library: str, load: str, *, busy: bool) -> int:
    """Serve in this process and ask in another, with Python idle or busy in both."""
    files, size, depth, passes = LOADS[load]
    peers = ctypes.CDLL(library)
    peers.bench_prepare(files, ctypes.c_uint64(size), depth)
    asking = os.fork()
    if busy:
        threading.Thread(target=count_for_ever, daemon=True).start()
    if not asking:
        peers.bench_ask(passes, BUSY_ROUNDS if busy else ROUNDS)
        os._exit(0)
    return int(peers.bench_serve(asking))


def count_for_ever() -> None:
    """Hold the interpreter's lock as long as it is given."""
    while True:
        sum(range(1000))


def rows(load: str, found: dict[str, Pace]) -> list[Row]:
    """Return the rows of one load; CPU is that of the asking and the serving side."""
    served, landed = found["server-buffer"], found["agent-file"]
    return [
        Row(
            f"peer server, {load} in flight, into a private buffer",
            str(served),
            f"C epoll + sendfile {found['plain-buffer']}",
            served.buffer,
            BUFFER_BUDGETS[load],
            at_least=True,
        ),
        Row(
            f"peer fetch, {load} in flight, published in a tmpfs Tier",
            f"{landed}; {landed.buffer:.2f} of a private buffer",
            f"C receive into new files {found['plain-file']}; "
            f"{found['plain-file'].buffer:.2f} of a private buffer",
            landed.alike,
            BUFFER_BUDGETS[load],
            at_least=True,
        ),
    ]


def busy_rows(load: str, found: dict[str, Pace]) -> list[Row]:
    """Return the rows of one load while Python is busy in both processes."""
    return [
        Row(
            f"{what}, {load}, while Python is busy",
            f"{found[ours].mb_per_s:,.0f} MB/s",
            f"plain C beside the same {found[plain].mb_per_s:,.0f} MB/s",
            found[ours].alike,
            BUFFER_BUDGETS[load],
            at_least=True,
        )
        for what, ours, plain in (
            ("peer server", "server-buffer", "plain-buffer"),
            ("peer fetch", "agent-file", "plain-file"),
        )
    ]


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure both loads over loopback, then cold opens, and return the rows."""
    library = build(work)
    calm = {load: figures(library, work, load, busy=False) for load in LOADS}
    found = [row for load in LOADS for row in rows(load, calm[load])]
    busy = {load: figures(library, work, load, busy=True) for load in LOADS}
    for load in LOADS:
        found += busy_rows(load, busy[load])
    calm_mb_per_s, busy_mb_per_s = (
        pairs["110 KB x 16"]["plain-file"].mb_per_s for pairs in (calm, busy)
    )
    return [
        *found,
        peeropens.measure(monarch, work, calm_mb_per_s),
        peeropens.measure(monarch, work, busy_mb_per_s, is_busy=True),
    ]


def main() -> int:
    """Measure alone, without the other parts of the table."""
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        table = measure(monarch, Path(base))
    print_rows(table)
    return 0 if all(row.kept for row in table) else 1


if __name__ == "__main__":
    if len(sys.argv) == 4:
        sys.exit(inside(sys.argv[1], sys.argv[2], busy=sys.argv[3] == "busy"))
    sys.exit(main())
