"""A file that the Tiers of all nodes together cannot hold is held in part."""

from itertools import pairwise

import pytest

from support.clusters import Cluster
from support.nodes import Plan
from support.tier_codecs import PLAIN

MIB = 1 << 20
NODES, EPOCHS = 4, 3
SIZE = 96 * MIB + 123_457
# Capacity of a node besides the Pool, through which bytes pass and are decoded.
NODE = 16 * MIB
# As `monarch help packed-tiers` advises for large files: they are not packed with less.
POOL, POOL_OF_PACKED = 8 * MIB, 32 * MIB
LATER_MAX = 1 - NODES * NODE / SIZE + 0.02
BYTES_PER_S = 200_000_000


@pytest.fixture
def cluster(make_cluster) -> Cluster:
    """Four nodes, and one file at an origin that takes its time."""
    made: Cluster = make_cluster(NODES, sizes=[SIZE])
    made.origin.set(bw=BYTES_PER_S)
    return made


@pytest.fixture
def options(cluster: Cluster, tier_codec: str) -> list[str]:
    """Small Tiers, and a Pool that cannot stand in for one."""
    pool = POOL if tier_codec == PLAIN else POOL_OF_PACKED
    # The Pool is in the Tier, which has the same size again as a margin of some
    # Extents.
    words = ["--tier", f"ram:{NODE + 2 * pool}B:{cluster.ram}", "--set"]
    return [*words, f"peers.transit={pool}B"]


@pytest.mark.parametrize("reading", ["order", "random"])
@pytest.mark.parametrize("mode", ["auto", "partition"])
@pytest.mark.parametrize("sharding", ["parts", "dealt"])
def test_nodes_hold_as_much_of_a_file_as_fits(
    cluster: Cluster, options: list[str], sharding: str, mode: str, reading: str
) -> None:
    plan = Plan(EPOCHS, workers=1, sharding=sharding, reading=reading)
    words = [*options, "--set", f"peers.mode={mode}"]
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
