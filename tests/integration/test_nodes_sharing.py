"""The nodes of a job read the origin once and serve their files to each other."""

import time

import pytest

from support.clusters import Cluster
from support.nodes import Outcome, Plan
from support.programs import tried_bytes

FILES = 200
OVERREAD_MAX = 1.02
# Too little for the pool to replace a Tier.
TRANSIT_BYTES = 1 << 20
SMALL_TRANSIT = ("--set", f"peers.transit={TRANSIT_BYTES}B")
PARTITION = ("--set", "peers.mode=partition", *SMALL_TRANSIT)


def read_once(cluster: Cluster) -> None:
    """The origin has been read once in the whole job."""
    counts = cluster.origin.counts()
    assert cluster.size_bytes <= counts.read_bytes
    assert counts.read_bytes <= OVERREAD_MAX * cluster.size_bytes


def test_four_nodes_that_read_everything_read_the_origin_once(make_cluster):
    cluster = make_cluster()

    outcome = cluster.run(Plan(3)).right(opens=12 * FILES)

    read_once(cluster)
    counts = cluster.origin.counts()
    assert counts.opens <= 0.10 * 12 * FILES
    # One scan: the root and its five folders, each listed once.
    assert counts.listings <= 6
    assert not any(o.at_origin for o in outcome.opens)
    # Copies of peers' Replicas do not count in the origin's rate.
    agents = outcome.report["agent"]
    assert 0 < agents["origin_busy_ns"] < agents["busy_ns"]


def test_two_nodes_that_share_twelve_epochs_save_nine_tenths_of_all_requests(
    make_cluster,
):
    cluster = make_cluster(2)
    cluster.run(Plan(1, sharding="dealt"), plain=True).right(opens=FILES)
    direct = cluster.origin.counts()
    cluster.origin.reset()

    cluster.run(Plan(12, sharding="dealt")).right(opens=12 * FILES)

    read_once(cluster)
    counts = cluster.origin.counts()
    requests = counts.opens + counts.reads
    assert requests <= 0.10 * 12 * (direct.opens + direct.reads)


def test_nodes_together_hold_a_dataset_too_large_for_one_node(make_cluster):
    cluster = make_cluster()
    share = int(0.3 * cluster.size_bytes)
    tier = ("--tier", f"ram:{share + TRANSIT_BYTES}B:{cluster.ram}")

    job = cluster.start(Plan(3), *tier, *PARTITION, hold=[1])
    job.await_epoch(1)
    first = cluster.origin.counts()
    job.release(1)
    job.finish().right(opens=12 * FILES)

    later_bytes = cluster.origin.counts().read_bytes - first.read_bytes
    assert first.read_bytes <= OVERREAD_MAX * cluster.size_bytes
    assert later_bytes <= 0.02 * cluster.size_bytes


def test_a_cold_file_requested_by_all_at_once_is_read_once(make_cluster):
    cluster = make_cluster(files=100, open_us=5000)
    only_demand = ("--set", "fill.enabled=false")

    plan = Plan(1, workers=4, sharding="together")
    report = cluster.run(plan, *only_demand).right(opens=16 * 100).report

    counts = cluster.origin.counts()
    assert counts.opens == 100 + report["agent"]["tried_reads"]
    assert counts.read_bytes == cluster.size_bytes + tried_bytes(report)


def test_a_node_whose_programs_have_ended_serves_until_the_job_ends(make_cluster):
    cluster = make_cluster(3)
    epochs = (1, 3, 3)

    job = cluster.start(Plan(epochs), *PARTITION, hold=[1])
    job.await_epoch(1, parties=4)
    first = cluster.origin.counts()
    time.sleep(1.0)  # longer than any step of an agent that would end by itself
    assert all(one.is_running for one in job.running.values())
    job.release(1)
    job.finish().right(opens=sum(epochs) * FILES)

    assert cluster.origin.counts().opens == first.opens
    read_once(cluster)


def test_nodes_with_peers_off_each_read_the_origin(make_cluster):
    cluster = make_cluster(2)

    cluster.run(Plan(2), "--set", "peers.mode=off").right(opens=4 * FILES)

    read_bytes = cluster.origin.counts().read_bytes
    assert 2 * cluster.size_bytes <= read_bytes
    assert read_bytes <= 2 * OVERREAD_MAX * cluster.size_bytes


@pytest.mark.root
def test_nodes_that_hold_everything_no_longer_ask_peers(make_cluster, switched):
    links = switched(3)
    cluster = make_cluster(3, links=links, mean_bytes=50_000)

    job = cluster.start(Plan(3), "--set", "peers.mode=replicate", hold=[1])
    job.await_epoch(1)
    before = [link.carried()[0] for link in links]
    job.release(1)
    job.finish().right(opens=9 * FILES)

    read_once(cluster)
    after = [link.carried()[0] for link in links]
    sent = [now - then for now, then in zip(after, before, strict=True)]
    assert sum(before) > 2 * cluster.size_bytes
    # The rest is heartbeats, and the reports at the end.
    assert sum(sent) < 0.05 * cluster.size_bytes


@pytest.mark.root
@pytest.mark.timeout(300)
def test_nodes_of_the_same_size_serve_the_same_share(
    make_cluster, switched, soak_count
):
    files, within = soak_count(2000, 10_000), 0.10 if soak_count(0, 1) else 0.25
    links = switched(4)
    cluster = make_cluster(files=files, mean_bytes=4000, links=links)

    plan = Plan(1, sharding="dealt")
    job = cluster.start(plan, *PARTITION, "--set", "fill.enabled=false", hold=[0])
    job.await_epoch(0)
    before = [link.carried()[0] for link in links]
    job.release(0)
    job.finish().right(opens=files)

    served = [
        link.carried()[0] - then for link, then in zip(links, before, strict=True)
    ]
    mean = sum(served) / 4
    assert mean > 0.7 * 3 / 16 * cluster.size_bytes
    assert max(abs(one - mean) for one in served) <= within * mean
    read_once(cluster)


def test_a_job_runs_without_a_missing_node(make_cluster):
    cluster = make_cluster(4)

    outcome = cluster.run(
        Plan((2, 2, 2, 0)), "--set", "peers.join_timeout=3s", absent=[3]
    ).right(opens=6 * FILES)

    # The files of the absent node have other owners.
    read_once(cluster)
    assert not any(o.at_origin for o in outcome.opens)


def test_a_late_node_is_served(make_cluster):
    cluster = make_cluster(3)
    job = cluster.start(Plan((3, 3, 3)), "--set", "peers.join_timeout=3s", absent=[2])
    job.await_epoch(0, parties=4)
    cluster.join(job, 2)

    job.finish().right(opens=9 * FILES)

    read_once(cluster)


def test_several_commands_on_a_node_share_its_agent(make_cluster):
    cluster = make_cluster(2)
    job = cluster.start(Plan((2,) * 6), hold=[0])
    for number in range(2, 6):
        cluster.join(job, number, node=number % 2)
    job.await_epoch(0, parties=12)
    agents = [len(node.agents()) for node in cluster.nodes]

    job.release(0)
    job.finish().right(opens=2 * 6 * FILES)

    assert agents == [1, 1]
    read_once(cluster)


def test_files_of_several_extents_pass_from_node_to_node(make_cluster):
    cluster = make_cluster(3, files=4, mean_bytes=20 << 20)
    wait = ("--set", "cold_open.mode=wait")

    cluster.run(Plan(2, workers=1), *wait, *PARTITION[:2]).right(opens=3 * 2 * 4)

    read_once(cluster)


def said(outcome: Outcome) -> str:
    """The output of all commands."""
    return "\n".join(outcome.said.values())


def test_nodes_without_the_secret_work_alone_after_a_warning(make_cluster, tmp_path):
    cluster = make_cluster(2)
    missing = ("--secret-file", str(tmp_path / "nothing"))

    outcome = cluster.run(Plan(1), *missing).right(opens=2 * FILES)

    assert "works alone" in said(outcome)


def test_nodes_whose_tiers_evict_get_right_bytes_of_more_than_they_hold(make_cluster):
    cluster = make_cluster()
    share = int(0.12 * cluster.size_bytes)  # of four nodes: half of the dataset
    tier = ("--tier", f"ram:{share + TRANSIT_BYTES}B:{cluster.ram}")
    lru = ("--set", "tiers[0].eviction=lru")

    outcome = cluster.run(Plan(2), *tier, *PARTITION, *lru)
    outcome.right(opens=8 * FILES)

    tiers = outcome.report["tiers"]
    assert tiers[0]["lru_files"] > 0
    assert outcome.report["agent"]["evicted_files"] == 0
    assert tiers[0]["used_bytes"] <= tiers[0]["capacity_bytes"]
