"""Agents that return, or follow each other, find the job as it is."""

import signal
import time
from collections.abc import Callable

from monarch.agent.cluster import DISCONNECTED_S
from monarch.peers.timeouts import HEARTBEAT_S, HEARTBEATS_MISSED
from support.clusters import Cluster
from support.nodes import Plan
from support.processes import wait_until

# Nodes with different Placements ask each other in circles: half cold_open.timeout.
CIRCLE_S = 15.0
SILENCE_S = HEARTBEATS_MISSED * HEARTBEAT_S


def test_a_returning_first_node_follows_the_placement_of_the_others(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The Placement was made without node 2, which has joined when node 0 returns."""
    cluster = make_cluster(nodes=3, files=60)
    options = ("--job", "again", "--set", "peers.join_timeout=1s")
    job = cluster.start(
        Plan((1, 1, 1, 1), workers=1),
        *(*options, "--set", "fill.enabled=false"),
        hold=[0],
        absent=[2],
    )
    job.await_epoch(0, parties=2)
    cluster.join(job, 2)
    job.await_epoch(0, parties=3)
    first = cluster.nodes[0]
    first.hurt(signal.SIGKILL)
    wait_until(lambda: first.agent() is None, "end of the first node's agent")
    cluster.join(job, 3, node=0)
    job.await_epoch(0, parties=4)
    job.release(0)
    outcome = job.finish().right(opens=4 * 60)
    assert outcome.longest().delay_s < CIRCLE_S / 2, outcome.longest()


def test_a_finished_node_keeps_serving_while_the_first_one_is_frozen(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Nodes that hear of nobody end soon: the others must find each other before."""
    cluster = make_cluster(nodes=3, files=60)
    job = cluster.start(Plan((2, 2, 1), workers=1), hold=[1])
    job.await_epoch(1, parties=2)
    first, last = cluster.nodes[0], cluster.nodes[2]
    first.hurt(signal.SIGSTOP)
    time.sleep(SILENCE_S + DISCONNECTED_S + 3.0)
    assert last.agent() is not None
    first.hurt(signal.SIGCONT)
    job.release(1)
    job.finish().right(opens=5 * 60)
