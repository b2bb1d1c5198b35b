"""`origin.max_readers`: the number of concurrent readers of the origin in a job."""

import time

import pytest

from support.clusters import Cluster
from support.nodes import Plan

FILES = 90
READERS = 3
# Two lease times, and some time until the others are leased more.
BACK_S = 7.0
LIMIT = ("--set", f"origin.max_readers={READERS}")
PLAN = Plan(1, workers=4, sharding="dealt")


def begun_without(report) -> int:
    """How many reads have not waited any longer for a token."""
    return int(report["agent"]["reads_without_token"])


@pytest.mark.parametrize("fill", ["true", "false"])
def test_no_more_nodes_read_the_origin_at_once_than_are_permitted(make_cluster, fill):
    cluster: Cluster = make_cluster(3, files=FILES, read_us=5000)
    only = ("--set", f"fill.enabled={fill}", "--set", "peers.mode=partition")

    free = cluster.run(PLAN, *only).right(opens=FILES)
    most = cluster.origin.counts().most_reads
    cluster.origin.reset()
    limited = cluster.run(PLAN, *only, *LIMIT).right(opens=FILES)

    assert most > READERS
    assert begun_without(free.report) == 0
    assert cluster.origin.counts().most_reads > 1
    # On a busy machine some wait for 100 ms nevertheless.
    without = begun_without(limited.report)
    assert cluster.origin.counts().most_reads <= READERS + without
    assert without <= FILES / 10


def test_programs_wait_little_for_a_token_and_the_report_says_so(make_cluster):
    # Fill would have staged all of them if programs started late.
    only = ("--set", "origin.max_readers=1", "--set", "fill.enabled=false")
    cluster: Cluster = make_cluster(2, files=24, read_us=400_000)

    outcome = cluster.run(PLAN, *only).right(opens=24)

    without = begun_without(outcome.report)
    assert without > 0
    assert cluster.origin.counts().most_reads > 1
    assert any(
        row["what"] == "reads_without_token" and row["count"] == without
        for row in outcome.report["survived"]
    )


def test_the_tokens_of_a_node_that_dies_are_used_by_the_others(make_cluster):
    """Each of three nodes has one by right; two of them have all three in the end."""
    cluster: Cluster = make_cluster(3, files=FILES, read_us=8000)
    only = ("--set", "fill.enabled=false", "--set", "peers.mode=partition")
    job = cluster.start(Plan(1, workers=4), *only, *LIMIT, hold=[0])
    job.await_epoch(0)
    job.kill(2)
    time.sleep(BACK_S)
    cluster.origin.reset()
    job.release(0)

    outcome = job.finish().right(opens=2 * FILES)

    without = begun_without(outcome.report)
    assert READERS <= cluster.origin.counts().most_reads <= READERS + without
    assert without <= FILES / 10
