"""Predicted seconds of epochs against measured ones, for four ways to give Tiers.

`monarch plan --simulate` is told how fast the origin is, and the network, and for how
long readers compute. The origin is the tests' counting file system, slow by each
operation and by its rate; the nodes are those of the tests. What a reader needs for a
file beside waiting and computing is measured once, with files that are there already,
and told as a part of what it computes: it is the machine's, not the model's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs
from support.clusters import Cluster, Shape, Tools, clustered
from support.nodes import Outcome, Plan
from support.spaces import switched

FILES, MEAN_BYTES = 2_000, 100_000
READERS = 4
EPOCHS = 3
TURNS = 3
ORIGIN = {"bw": 50_000_000, "op_us": 1000, "keep_ms": 1000}
LINK_BYTES_PER_S = 12_500_000
PAUSE_S = 0.004
LIMIT_S = 300.0
WITHIN = 0.2


@dataclass(frozen=True, slots=True)
class Way:
    """One configuration.

    Args:
        tiers: the shares of the dataset for which there is room on each node, by kind.
        pause_s: for which a reader computes with each file.
    """

    what: str
    tiers: tuple[tuple[str, float], ...]
    nodes: int = 1
    pause_s: float = PAUSE_S


WAYS = (
    Way("ram for all of it", (("ram", 1.2),)),
    Way("ram for half of it", (("ram", 0.5),)),
    Way("ram and ssd for a third each", (("ram", 1 / 3), ("ssd", 1 / 3))),
    Way("2 nodes with ram for 0.6 each, slow links", (("ram", 0.6),), 2),
)


def tiers(way: Way, cluster: Cluster) -> list[str]:
    """Return the words that give a node its Tiers and its Pool."""
    # A Pool so small that files of the other node are asked for in each epoch.
    words = ["--set", "peers.transit=2MiB"]
    for kind, share in way.tiers:
        place = cluster.ram if kind == "ram" else cluster.folder / kind
        place.mkdir(exist_ok=True)
        words += ["--tier", f"{kind}:{int(share * cluster.size_bytes)}B:{place}"]
    return words


def predict(cluster: Cluster, way: Way, compute_s: float) -> list[float]:
    """Return the seconds of the first epoch and of a later one, as they are planned."""
    words = [str(cluster.command), "plan", "--data", str(cluster.origin.root)]
    words += ["--nodes", str(way.nodes), *tiers(way, cluster), "--mode", "partition"]
    words += ["--simulate", "--origin-rate", f"{ORIGIN['bw']}B/s"]
    words += ["--origin-latency", f"{ORIGIN['op_us'] / 1000:g}ms"]
    words += ["--network-rate", f"{LINK_BYTES_PER_S}B/s", "--readers", str(READERS)]
    words += ["--compute", f"{compute_s * 1000:.3f}ms", "--serial", "--json"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)["simulation"]
    return [found["first"]["seconds"], found["later"]["seconds"]]


def run(cluster: Cluster, way: Way) -> Outcome:
    """Run a job of all nodes, whose bytes must be right."""
    plan = Plan(EPOCHS, READERS, "dealt", pause_s=way.pause_s)
    words = ["--set", "peers.mode=partition", *tiers(way, cluster)]
    outcome = cluster.start(plan, *words).finish(LIMIT_S)
    return outcome.right(opens=EPOCHS * len(cluster.sizes))


def reader_s(cluster: Cluster, pause_s: float) -> float:
    """Return the seconds that a reader has for a file that it need not wait for."""
    outcome = run(cluster, Way("", (("ram", 1.2),), 1, pause_s))
    epoch_s = min(outcome.epoch_s(epoch) for epoch in range(1, EPOCHS))
    return epoch_s * READERS / len(cluster.sizes)


def measured(cluster: Cluster, way: Way) -> list[float]:
    """Return the median seconds of the first epoch, and of the later ones."""
    first, later = [], []
    for _ in range(TURNS):
        outcome = run(cluster, way)
        first.append(outcome.epoch_s(0))
        later += [outcome.epoch_s(epoch) for epoch in range(1, EPOCHS)]
    return [statistics.median(first), statistics.median(later)]


def compare(tools: Tools, work: Path, way: Way) -> list[Row]:
    """Predict and measure one configuration."""
    work.mkdir()
    with ExitStack() as undo:
        links = None
        if way.nodes > 1:
            links = undo.enter_context(switched(way.nodes))
            for link in links:
                link.limit(8 * LINK_BYTES_PER_S)
        shape = Shape(way.nodes, FILES, MEAN_BYTES, links)
        cluster = undo.enter_context(clustered(tools, work, shape, **ORIGIN))
        compute_s = way.pause_s if way.nodes > 1 else reader_s(cluster, way.pause_s)
        return rows(way, predict(cluster, way, compute_s), measured(cluster, way))


def rows(way: Way, predicted: Sequence[float], found: Sequence[float]) -> list[Row]:
    """Return a row for the first epoch, and one for the later ones."""
    return [
        Row(
            f"{epoch}, {way.what}: off by",
            f"{seconds:.2f} s predicted",
            f"{real:.2f} s measured",
            abs(seconds / real - 1),
            WITHIN,
        )
        for epoch, seconds, real in zip(
            ("first epoch", "later epochs"), predicted, found, strict=True
        )
    ]


def measure(monarch: str, work: Path) -> list[Row]:
    """Compare all configurations that this user may make."""
    tools = Tools(Path(monarch), countfs.build())
    ways = [way for way in WAYS if way.nodes == 1 or os.geteuid() == 0]
    return [
        row
        for number, way in enumerate(ways)
        for row in compare(tools, work / str(number), way)
    ]


def main() -> int:
    """Measure alone, without the other parts of the table."""
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        table = measure(monarch, Path(base))
    print_rows(table)
    return 0 if all(row.kept for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
