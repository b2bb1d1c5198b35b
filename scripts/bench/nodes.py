"""Budgets of many nodes: four of them, one bandwidth-bound origin, three epochs.

The origin is the tests' counting file system with its page cache off, throttled to 200
Mbit/s for all nodes together. The same programs read it directly and under Monarch, in
turn. As root each node is a network namespace with a link of 1 Gbit/s; else they share
the loopback device. Seconds of a job include its start and its end; the sharded one has
a larger dataset, so that these do not make up much of it.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from table import Row

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs
from support.clusters import Cluster, Shape, Tools, clustered
from support.nodes import Outcome, Plan
from support.spaces import Space, switched

NODES = 4
EPOCHS = 3
FILES = {"dealt": 4_600, "everything": 2_300}
MEAN_BYTES = 110_000
BITS_PER_S = 200_000_000
LINK_BITS_PER_S = 1_000_000_000
LATE_S = 2.0
LATE_NODE = 2
LATE_FILES = 1_000
LATE_PAUSE_S = 0.02
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Timed:
    """One job: its outcome, its seconds, and the bytes that the origin gave."""

    outcome: Outcome
    seconds: float
    origin_bytes: int

    @property
    def epochs(self) -> str:
        """The seconds of each epoch."""
        return " + ".join(f"{self.outcome.epoch_s(e):.1f}" for e in range(EPOCHS))


def run(cluster: Cluster, plan: Plan, *options: str, plain: bool = False) -> Timed:
    """Run a job of all nodes, whose bytes must be right."""
    cluster.origin.reset()
    begin_s = time.monotonic()
    outcome = cluster.start(plan, *options, plain=plain).finish(LIMIT_S)
    seconds = time.monotonic() - begin_s
    shares = NODES if plan.sharding == "everything" else 1
    outcome.right(opens=shares * EPOCHS * len(cluster.sizes))
    return Timed(outcome, seconds, cluster.origin.counts().read_bytes)


@contextmanager
def linked(wired: int | None = None) -> Iterator[list[Space] | None]:
    """Gives each node a link of its own, if we may."""
    if os.geteuid() != 0:
        yield None
        return
    with switched(NODES, wired=wired) as links:
        for link in links:
            if link.wire is None:
                link.limit(LINK_BITS_PER_S)
        yield links


def time_gate(tools: Tools, work: Path) -> list[Row]:
    """Time sharded and unsharded jobs, directly and under Monarch."""
    rows = []
    for sharding, budget in (("dealt", 0.45), ("everything", 0.25)):
        folder = work / sharding
        folder.mkdir()
        with linked() as links:
            shape = Shape(NODES, FILES[sharding], MEAN_BYTES, links)
            with clustered(tools, folder, shape, bw=BITS_PER_S // 8) as cluster:
                plan = Plan(EPOCHS, sharding=sharding)
                direct = run(cluster, plan, plain=True)
                staged = run(cluster, plan)
                rows += judged(cluster, sharding, budget, direct, staged)
        shutil.rmtree(folder)
    return rows


def judged(
    cluster: Cluster, sharding: str, budget: float, direct: Timed, staged: Timed
) -> list[Row]:
    """The rows of one way to share the files."""
    what = "sharded" if sharding == "dealt" else "each reads everything"
    rows = [
        Row(
            f"job of {NODES} nodes, {EPOCHS} epochs, {what}",
            f"{staged.seconds:.1f} s, epochs {staged.epochs}",
            f"{direct.seconds:.1f} s direct, epochs {direct.epochs}",
            staged.seconds / direct.seconds,
            budget,
        ),
        Row(
            f"its origin bytes, {what}",
            f"{staged.origin_bytes:,}",
            f"{cluster.size_bytes:,} in the dataset",
            staged.origin_bytes / cluster.size_bytes,
            1.02,
        ),
    ]
    if sharding == "everything":
        ours, theirs = staged.outcome.epoch_s(0), direct.outcome.epoch_s(0)
        rows.append(
            Row(
                f"epoch 1, {NODES} nodes each reading everything",
                f"{ours:.2f} s",
                f"{theirs:.2f} s direct",
                ours / theirs,
                1.2 / NODES,
            )
        )
    return rows


def slow_peer(tools: Tools, work: Path) -> list[Row]:
    """Time an epoch with one node two seconds late, and without that node."""
    work.mkdir()
    plan = Plan(2, pause_s=LATE_PAUSE_S)
    # A pool so small that the files of the late node are asked for in each epoch.
    options = ("--set", "peers.mode=partition", "--set", "peers.transit=2MiB")
    with (
        linked(wired=LATE_NODE) as links,
        clustered(tools, work, Shape(NODES, LATE_FILES, links=links)) as cluster,
    ):
        assert links is not None
        rest = [node for node in cluster.nodes if node.number != LATE_NODE]
        without = cluster.run(plan, *options, nodes=rest)
        job = cluster.start(plan, *options, hold=[1])
        job.await_epoch(1)
        links[LATE_NODE].tell(f"late {LATE_S}")
        job.release(1)
        late = job.finish(LIMIT_S)
    ours = late.epoch_s(1, [node.number for node in rest])
    theirs = without.epoch_s(1)
    return [
        Row(
            f"epoch with a node {LATE_S:g} s late, on the others",
            f"{ours:.2f} s, slowest open {late.longest().delay_s:.2f} s",
            f"{theirs:.2f} s without that node",
            ours / theirs,
            1.3,
        )
    ]


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure all that concerns several nodes."""
    tools = Tools(Path(monarch), countfs.build())
    rows = time_gate(tools, work)
    if os.geteuid() == 0:
        rows += slow_peer(tools, work / "late")
    return rows
