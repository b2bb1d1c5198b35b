"""The nodes of a job use the same means against changed bytes, or work alone."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from monarch import native
from support.clusters import Cluster
from support.nodes import Outcome, Plan

FILES = 60
WHOLE_JOB = 2 * FILES
CANNOT = r"OpenSSL's library \(libcrypto\.so\.3\) cannot be used on"

pytestmark = pytest.mark.skipif(
    native.seal_library() is None, reason="no libcrypto on this machine"
)


def changed(cluster: Cluster, number: int, **variables: object) -> Cluster:
    """A cluster of which one node has another environment."""
    words = [f"{name}={value}" for name, value in variables.items()]
    nodes = list(cluster.nodes)
    prefix = (*nodes[number].prefix, "env", *words)
    nodes[number] = replace(nodes[number], prefix=prefix)
    return replace(cluster, nodes=tuple(nodes))


@pytest.fixture
def hiding(tmp_path: Path) -> Path:
    """A folder of libraries that hides the system's libcrypto."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name in ("libcrypto.so.3", "libcrypto.so.1.1"):
        (folder / name).write_bytes(b"not a library")
    return folder


def run(cluster: Cluster, *options: str) -> Outcome:
    """A job in which each node reads all files, and all are right."""
    words = ["--set", "peers.mode=partition", *options]
    return cluster.run(Plan(1), *words).right(opens=WHOLE_JOB)


def warnings(outcome: Outcome, number: int) -> list[str]:
    """The output of the command of a node without the report."""
    return [line for line in outcome.said[number].splitlines() if line.strip()]


def peer_hits(outcome: Outcome) -> int:
    """How many files nodes have given each other."""
    # A node that works alone reports only itself.
    nodes = outcome.report.get("nodes", [])
    peers = [peer for node in nodes for peer in node.get("peers", [])]
    assert not sum(peer["corrupt"] for peer in peers)
    return sum(peer["fetched_files"] for peer in peers)


def agreed(cluster: Cluster) -> list[str]:
    """The logs of the agents of a running job."""
    return [
        found
        for node in cluster.nodes
        for found in re.findall(r"integrity=(\w+)", node.log())
    ]


@pytest.mark.parametrize("wish", ["auto", "mac", "checksum"])
def test_nodes_use_the_requested_integrity_if_they_can(make_cluster, wish):
    cluster = make_cluster(2, files=FILES)
    words = ["--set", "peers.mode=partition", "--set", f"peers.integrity={wish}"]
    job = cluster.start(Plan(2), *words, hold=[1])
    job.await_epoch(1)
    expected = "checksum" if wish == "checksum" else "mac"
    assert agreed(cluster) == [expected] * 2
    job.release(1)

    outcome = job.finish().right(opens=2 * WHOLE_JOB)

    assert peer_hits(outcome) >= FILES // 2
    assert warnings(outcome, 0) == warnings(outcome, 1) == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_node_without_libcrypto_is_named_and_all_use_checksums(
    make_cluster, hiding, number
):
    cluster = changed(make_cluster(2, files=FILES), number, LD_LIBRARY_PATH=hiding)

    outcome = run(cluster)

    assert peer_hits(outcome) >= FILES // 2
    [line] = warnings(outcome, 0)
    name = cluster.nodes[number].name
    assert re.search(f"checked by checksums only: {CANNOT} {name}; install it", line)
    assert warnings(outcome, 1) == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_node_without_the_required_integrity_works_alone(
    make_cluster, hiding, number
):
    cluster = changed(make_cluster(2, files=FILES), number, LD_LIBRARY_PATH=hiding)
    words = ["--set", "peers.integrity=mac", "--set", "peers.join_timeout=1s"]

    outcome = run(cluster, *words)

    assert peer_hits(outcome) == 0
    [line] = warnings(outcome, number)
    assert re.search(f"works alone: peers.integrity is mac, but {CANNOT} this", line)


@pytest.mark.parametrize(("first", "other"), [("mac", "checksum"), ("checksum", "mac")])
def test_a_node_with_another_setting_works_alone(make_cluster, first, other):
    cluster = changed(
        make_cluster(2, files=FILES), 1, MONARCH_STAGING_PEERS__INTEGRITY=other
    )
    cluster = changed(cluster, 0, MONARCH_STAGING_PEERS__INTEGRITY=first)

    outcome = run(cluster)

    assert peer_hits(outcome) == 0
    [line] = warnings(outcome, 1)
    assert f"works alone: peers.integrity is {other} here and {first} on a" in line
