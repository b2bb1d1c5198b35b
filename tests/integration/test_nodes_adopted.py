"""Blocks of files left by an earlier job are checked before peers receive them."""

import pytest

from integration.test_nodes_large import FILL, MANY, WAIT_MAX, flip_blocks
from support.nodes import Plan


@pytest.mark.root
def test_blocks_that_change_after_their_file_was_adopted_reach_no_other_node(
    make_cluster,
) -> None:
    cluster = make_cluster(2, sizes=MANY)
    words = [*WAIT_MAX, "--set", "retain=node"]
    cluster.run(Plan(2, reading="order"), *words).right(opens=4 * len(MANY))
    first, second = (node.name for node in cluster.nodes)
    for path in cluster.ram.glob(f"*/*.{second}/ram/*"):
        path.unlink()
    plan = Plan((0, 1), reading="order")
    job = cluster.start(plan, *words, *FILL["without fill"], hold=[0])
    job.await_epoch(0, parties=plan.workers)
    [tier] = cluster.ram.glob(f"*/*.{first}/ram")

    flipped = flip_blocks(tier)

    job.release(0)
    job.finish().right(opens=len(MANY))
    assert flipped > 0
