"""One job read in four ways: directly, from a copy, by a cache mount, under Monarch.

    .venv/bin/python scripts/bench/alternatives.py [--turns 3] [--nodes 1,4]

The origin is the tests' counting file system with its page cache off, throttled for all
nodes together. Each file is read once an epoch by one of all processes, in an order of
its own, as distributed samplers deal. A copy by hand is `cp -r` on each node before its
programs start; the cache mount is rclone with the options that make it fastest. All
three keep their bytes in a tmpfs. Prints medians as a table in Markdown. Needs rclone,
and root for the mounts of each node.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs
from support.clusters import Cluster, Shape, Tools, clustered
from support.nodes import Node, Plan

EPOCHS = 3
FILES = 4_000
MEAN_BYTES = 110_000
BYTES_PER_S = 100_000_000
OPEN_US = 1_000
LIMIT_S = 600.0
MOUNT_LIMIT_S = 20.0
RCLONE = ("rclone", "mount", "--config=/dev/null", "--read-only", "--daemon")
CACHED = ("--vfs-cache-mode=full", "--vfs-fast-fingerprint", "--dir-cache-time=1h")
# Runs a command where another directory is in the place of the dataset.
INSTEAD = 'mount --bind "$0" "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Timed:
    """One job: seconds before its programs, of its epochs and in all; origin bytes."""

    before_s: float
    epochs_s: list[float]
    whole_s: float
    read_bytes: int


@contextmanager
def directly(_: Cluster, nodes: list[Node]) -> Iterator[list[Node]]:
    """Change nothing."""
    yield nodes


@contextmanager
def copied(cluster: Cluster, nodes: list[Node]) -> Iterator[list[Node]]:
    """Copy the dataset to each node, all at once."""
    places = [cluster.ram / f"copy{node.number}" for node in nodes]
    source = str(cluster.origin.root)
    copies = [subprocess.Popen(["cp", "-r", source, str(place)]) for place in places]
    try:
        for copy in copies:
            if copy.wait():
                raise SystemExit("alternatives: cp failed")
        yield [instead(cluster, *pair) for pair in zip(nodes, places, strict=True)]
    finally:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def cached(cluster: Cluster, nodes: list[Node]) -> Iterator[list[Node]]:
    """Mount the dataset by rclone on each node, with a cache of its own."""
    with ExitStack() as undo:
        places = []
        for node in nodes:
            place, cache = (cluster.ram / f"{n}{node.number}" for n in ("at", "cache"))
            place.mkdir()
            undo.callback(shutil.rmtree, cache, ignore_errors=True)
            undo.callback(place.rmdir)
            words = [*RCLONE, *CACHED, f"--cache-dir={cache}"]
            source = f":local:{cluster.origin.root}"
            subprocess.run([*words, source, str(place)], check=True)
            undo.callback(subprocess.run, ["fusermount3", "-u", str(place)], check=True)
            await_mount(place)
            places.append(place)
        yield [instead(cluster, *pair) for pair in zip(nodes, places, strict=True)]


def await_mount(place: Path) -> None:
    """Wait until a directory is a mount point."""
    end_s = time.monotonic() + MOUNT_LIMIT_S
    while not place.is_mount():
        if time.monotonic() > end_s:
            raise SystemExit(f"alternatives: {place} is not mounted")
        time.sleep(0.01)


def instead(cluster: Cluster, node: Node, place: Path) -> Node:
    """Return the node with a directory in the place of the dataset."""
    bind = ("unshare", "-m", "sh", "-c", INSTEAD, str(place), str(cluster.root))
    return replace(node, prefix=(*bind, *node.prefix))


WAYS = {
    "directly": directly,
    "copied by hand, `cp -r`": copied,
    "rclone mount with a cache": cached,
    "Monarch": directly,
}


def run(cluster: Cluster, way: str) -> Timed:
    """Run a job in one way, whose bytes must be right."""
    for node in cluster.nodes:  # each run is the first job that reads the dataset
        shutil.rmtree(node.folder / "state", ignore_errors=True)
    cluster.origin.reset()
    begin_s = time.monotonic()
    with WAYS[way](cluster, list(cluster.nodes)) as nodes:
        ready_s = time.monotonic()
        job = replace(cluster, nodes=tuple(nodes)).start(
            Plan(EPOCHS, sharding="dealt"), plain=way != "Monarch"
        )
        outcome = job.finish(LIMIT_S)
        end_s = time.monotonic()
    outcome.right(opens=EPOCHS * len(cluster.sizes))
    epochs = [outcome.epoch_s(epoch) for epoch in range(EPOCHS)]
    read = cluster.origin.counts().read_bytes
    return Timed(ready_s - begin_s, epochs, end_s - begin_s, read)


def measure(monarch: Path, nodes: int, files: int, turns: int) -> None:
    """Print the rows of a job on so many nodes."""
    with tempfile.TemporaryDirectory(prefix="monarch-bench-") as work:
        tools = Tools(monarch, countfs.build())
        shape = Shape(nodes, files, MEAN_BYTES)
        slow = {"bw": BYTES_PER_S, "open_us": OPEN_US}
        with clustered(tools, Path(work), shape, **slow) as cluster:
            for way, timed in measured(cluster, turns).items():
                print_row(nodes, way, timed, cluster.size_bytes)


def measured(cluster: Cluster, turns: int) -> dict[str, list[Timed]]:
    """Run the job in each way in turn."""
    found: dict[str, list[Timed]] = {way: [] for way in WAYS}
    for turn, way in itertools.product(range(turns), WAYS):
        found[way].append(run(cluster, way))
        print(f"turn {turn + 1}: {way}", found[way][-1], file=sys.stderr)
    return found


def print_row(nodes: int, way: str, timed: list[Timed], size_bytes: int) -> None:
    """Print the medians of one way."""

    def median(of: Callable[[Timed], float]) -> float:
        return statistics.median(of(one) for one in timed)

    epochs = [statistics.median(t.epochs_s[e] for t in timed) for e in range(EPOCHS)]
    times = median(lambda t: t.read_bytes) / size_bytes
    print(
        f"| {nodes} | {way} | {median(lambda t: t.before_s):.1f} s "
        f"| {' · '.join(f'{e:.2f}' for e in epochs)} s "
        f"| {median(lambda t: t.whole_s):.1f} s | {times:.2f} x |",
        flush=True,
    )


def missing() -> str | None:
    """Return what this machine lacks, if anything."""
    if os.geteuid() != 0:
        return "needs root, to mount"
    if not shutil.which("rclone"):
        return "needs the program rclone"
    return countfs.missing()


def main() -> None:
    """Measure on each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--nodes", default="1,4", help="numbers of nodes")
    parser.add_argument("--files", type=int, default=FILES)
    given = parser.parse_args()
    if lacking := missing():
        parser.error(lacking)
    monarch = Path(sysconfig.get_path("scripts")) / "monarch"
    print("| nodes | read | before | epochs | whole job | read from the origin |")
    print("| ---: | --- | ---: | --- | ---: | ---: |")
    for nodes in given.nodes.split(","):
        measure(monarch, int(nodes), given.files, given.turns)


if __name__ == "__main__":
    main()
