"""A file that the Tiers of all nodes together cannot hold is held in part."""

from itertools import pairwise

import pytest

from support.clusters import Cluster
from support.nodes import Plan

MIB = 1 << 20
NODES, EPOCHS = 4, 3
SIZE = 96 * MIB + 123_457
# The Pool, in which bytes pass through, is a part of a Tier.
TIER, POOL = 24 * MIB, 8 * MIB
HELD = NODES * (TIER - POOL)
LATER_MAX = 1 - HELD / SIZE + 0.02
BYTES_PER_S = 200_000_000


@pytest.fixture
def cluster(make_cluster) -> Cluster:
    """Four nodes, and one file at an origin that takes its time."""
    made: Cluster = make_cluster(NODES, sizes=[SIZE])
    made.origin.set(bw=BYTES_PER_S)
    return made


def options(cluster: Cluster, *more: str) -> list[str]:
    """Small Tiers, and a Pool that cannot stand in for one."""
    words = ["--tier", f"ram:{TIER}B:{cluster.ram}", "--set"]
    return [*words, f"peers.transit={POOL}B", *more]


@pytest.mark.parametrize("reading", ["order", "random"])
@pytest.mark.parametrize("mode", ["auto", "partition"])
@pytest.mark.parametrize("sharding", ["parts", "dealt"])
def test_nodes_hold_as_much_of_a_file_as_fits(
    cluster: Cluster, sharding: str, mode: str, reading: str
) -> None:
    plan = Plan(EPOCHS, workers=1, sharding=sharding, reading=reading)
    words = options(cluster, "--set", f"peers.mode={mode}")
    job = cluster.start(plan, *words, hold=range(1, EPOCHS))
    given = []
    for epoch in range(1, EPOCHS):
        job.await_epoch(epoch)
        given.append(cluster.origin.counts().read_bytes)
        job.release(epoch)
    opens = EPOCHS * (1 if sharding == "dealt" else NODES)

    job.finish().right(opens=opens)

    given.append(cluster.origin.counts().read_bytes)
    later = [(now - then) / SIZE for then, now in pairwise(given)]
    assert max(later) <= LATER_MAX
