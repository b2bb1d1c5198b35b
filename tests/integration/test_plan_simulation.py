"""`monarch plan --simulate` predicts the reads of the origin in each epoch.

How long they take is measured by scripts/bench/simulation.py: no test is timed.
"""

import json
import subprocess
from itertools import pairwise

import pytest

from support.clusters import Cluster
from support.nodes import Plan

FILES, SIZE = 240, 40_960
TOTAL = FILES * SIZE
EPOCHS = 3
POOL = 128 << 10


def planned(cluster: Cluster, tier: list[str], sharding: str) -> list[int]:
    """The bytes to be read from the origin in each epoch."""
    reads = "everything" if sharding == "everything" else "sharded"
    words = [str(cluster.command), "plan", "--data", str(cluster.origin.root)]
    words += ["--hosts", ",".join(node.name for node in cluster.nodes)]
    words += [*tier, "--mode", "partition"]
    words += ["--simulate", "--origin-rate", "1GB/s", "--reads", reads, "--json"]
    environ = cluster.nodes[0].environ
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, env=environ)
    found = json.loads(done.stdout)["simulation"]
    later = found["later"]["origin_bytes"]
    return [found["first"]["origin_bytes"], *[later] * (EPOCHS - 1)]


@pytest.mark.parametrize(
    ("nodes", "held", "sharding"),
    [(1, 0.5, "dealt"), (2, 0.5, "everything"), (2, 1.2, "dealt")],
)
def test_origin_reads_of_each_epoch_match_the_simulation(
    make_cluster, nodes: int, held: float, sharding: str
) -> None:
    cluster = make_cluster(nodes, sizes=[SIZE] * FILES)
    # The tier is larger by the size of its Pool, if it has one.
    room = int(TOTAL * held / nodes) + (POOL if nodes > 1 else 0)
    tier = ["--tier", f"ram:{room}B:{cluster.ram}", "--set", f"peers.transit={POOL}B"]
    expected = planned(cluster, tier, sharding)
    words = [*tier, "--set", "peers.mode=partition"]
    cluster.origin.reset()
    job = cluster.start(Plan(EPOCHS, sharding=sharding), *words, hold=range(1, EPOCHS))
    given = [0]
    for epoch in range(1, EPOCHS):
        job.await_epoch(epoch)
        given.append(cluster.origin.counts().read_bytes)
        job.release(epoch)
    job.finish()
    given.append(cluster.origin.counts().read_bytes)

    found = [after - before for before, after in pairwise(given)]
    assert found == pytest.approx(expected, abs=0.05 * TOTAL)
