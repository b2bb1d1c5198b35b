"""A database that 8 processes read, with py-lmdb and through one reader.

The origin is the tests' counting file system, 100 MiB/s for all and 1 ms a read. Each
step does one thing more than the one before: one process of a node reads, it asks for
each Record by an index, the index is there, it asks for Groups, few requests are under
way at once. The last part is one process under `monarch run`: later epochs are staged.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from loader_criteria import RATE, make_database, origin
from table import Row, print_rows

from monarch.loader import Loader

BATCH = 64
RANKS, PAIRS = 8, 20_000
PAIR_BYTES = 12 << 10
EPOCHS, STAGED_S = 4, 0.2
STEPS = {
    "lmdb": "py-lmdb in 8 processes",
    "one": "py-lmdb in 8 threads of one process",
    "record": "and reads of a Record each, by an index that is made first",
    "index": "and a saved index",
    "loader": "and Groups",
    "turns": "and two reads at once",
}
STEP_RUNS = {"lmdb": 1, "one": 1, "record": 1, "index": 1, "loader": 3, "turns": 3}
LOADERS: dict[str, dict[str, Any]] = {
    "record": {"group_bytes": 1},
    "index": {"group_bytes": 1},
    "loader": {},
    "turns": {"readers_max": 2},
}


@dataclass(frozen=True, slots=True)
class Ranks:
    """Processes that read a database together."""

    root: Path
    state: Path

    def epoch_s(self, how: str) -> float:
        """The longest epoch of a rank, from the moment at which all have imported."""
        line = [sys.executable, __file__, how, str(self.root / "db")]
        started = [
            subprocess.Popen(
                [*line, str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "XDG_STATE_HOME": str(self.state)},
                text=True,
            )
            for rank in range(RANKS)
        ]
        for one in started:
            assert one.stdout is not None
            one.stdout.readline()
        for one in started:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        told = [one.communicate()[0] for one in started]
        return max(map(float, told))


def get_all(store: lmdb.Environment, numbers: Iterable[int]) -> None:
    """Read some Records with py-lmdb."""
    with store.begin() as turn:
        for number in numbers:
            len(turn.get(b"%08d" % number) or b"")


def rank_epoch(how: str, path: str, rank: int) -> None:
    """Read the share of one rank."""
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    if how in LOADERS:
        told: dict[str, Any] = {**LOADERS[how], "rank": rank, "world_size": RANKS}
        with Loader(path, BATCH // RANKS, **told) as loader:
            for batch in loader:
                len(batch.records)
    else:
        order = np.random.default_rng(5).permutation(PAIRS)
        shares = [order[first::RANKS] for first in range(RANKS)]
        if how == "lmdb":
            shares = [shares[rank]]
        elif rank:
            shares = []
        with (
            lmdb.open(path, readonly=True, lock=False, readahead=False) as store,
            ThreadPoolExecutor(RANKS) as pool,
        ):
            list(pool.map(partial(get_all, store), shares))
    print(time.monotonic() - began)


def step_by_step(ranks: Ranks) -> Iterator[Row]:
    """Each thing that a loader does beyond plain py-lmdb, one after the other.

    The first step with an index makes it, and saves it for the later ones.
    """
    before_s = 0.0
    for how, what in STEPS.items():
        took_s = statistics.median(ranks.epoch_s(how) for _ in range(STEP_RUNS[how]))
        before_s = before_s or took_s
        told = f"{took_s:.2f} s", f"{before_s:.2f} s before"
        yield Row(f"L7 {what}", *told, took_s / before_s, 1.03)
        before_s = took_s


def against_lmdb(work: Path) -> list[Row]:
    """Epochs of 8 processes: through one reader, and by each with py-lmdb."""
    make_database(work, PAIRS, PAIR_BYTES)
    size = (work / "db" / "data.mdb").stat().st_size
    with origin(work, read_us=1000) as one:
        ranks = Ranks(one.root, work.with_name("ranks"))
        steps = list(step_by_step(ranks))
        took, read = {}, {}
        for how in ("loader", "lmdb"):
            one.reset()
            took[how] = ranks.epoch_s(how)
            read[how] = one.counts().read_bytes
    return [
        *steps,
        Row(
            "L1 bytes of 8 processes",
            f"{read['loader'] / 1e6:.0f} MB",
            f"{size / 1e6:.0f} MB",
            read["loader"] / size,
            1.05,
        ),
        Row(
            "L6 epoch of 8 processes",
            f"{took['loader']:.2f} s",
            f"{took['lmdb']:.2f} s py-lmdb",
            took["lmdb"] / took["loader"],
            10,
            at_least=True,
        ),
        Row(
            "L6 epoch against the link",
            f"{took['loader']:.2f} s",
            f"{size / RATE:.2f} s of the link",
            size / RATE / took["loader"],
            0.97,
            at_least=True,
        ),
    ]


# -- one process, staged ---------------------------------------------------------------


def run_epochs(path: str) -> None:
    """Read an epoch for each line; print how long it took."""
    with Loader(path, BATCH, remainder="uneven") as loader:
        for epoch, _ in enumerate(sys.stdin):
            loader.set_epoch(epoch)
            began = time.monotonic()
            for batch in loader:
                len(batch.records)
            print(time.monotonic() - began, flush=True)


def staged(monarch: str, work: Path) -> list[Row]:
    """Epochs under `monarch run` after the first one, which fill may have overtaken."""
    size = (work / "db" / "data.mdb").stat().st_size
    with origin(work, read_us=1000, aged=1) as one:
        line = [monarch, "run", "-q", "--data", str(one.root), "--tier"]
        line += [f"ram:{2 * size}B", "--", sys.executable, __file__]
        took, reads = [], []
        with subprocess.Popen(
            [*line, "epochs", str(one.root / "db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as job:
            assert job.stdin is not None
            assert job.stdout is not None
            for _ in range(EPOCHS):
                one.reset()
                job.stdin.write("go\n")
                job.stdin.flush()
                took.append(float(job.stdout.readline()))
                reads.append(one.counts().reads)
            job.stdin.close()
    later_s = statistics.median(took[1:])
    return [
        Row(
            "later epoch, staged",
            f"{later_s:.2f} s",
            f"{STAGED_S} s",
            later_s / STAGED_S,
            1,
        ),
        Row("reads of later epochs", f"{sum(reads[1:])}", "0", sum(reads[1:]), 0),
    ]


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure all; the indexes are kept here alone."""
    os.environ["XDG_STATE_HOME"] = str(work / "state")
    return [*against_lmdb(work / "pairs"), *staged(monarch, work / "pairs")]


def main() -> int:
    """Measure alone, or be one rank."""
    if sys.argv[1:2] == ["epochs"]:
        run_epochs(sys.argv[2])
        return 0
    if sys.argv[1:]:
        how, path, rank = sys.argv[1:]
        rank_epoch(how, path, int(rank))
        return 0
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        rows = measure(str(Path(sys.executable).with_name("monarch")), Path(base))
    print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
