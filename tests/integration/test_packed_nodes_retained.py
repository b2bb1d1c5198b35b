"""Nodes whose packed Tiers outlive a job: the next one reads nothing of the origin, and
what one node has damaged it gets from another one."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from integration.test_packed_damage import HEAD, rewrite
from integration.test_packed_jobs import body
from monarch.agent.control import ask
from monarch.codec import Codec
from monarch.native import codec_library, read_index
from support.certified import HEAD_BYTES, head_of
from support.clusters import Cluster
from support.nodes import Job, Node, Plan
from support.processes import wait_until

FILES = 120
LEAST_BYTES = HEAD.size + 4  # of a frame, before its only piece
KEPT = ("--set", "retain=node", "--set", "tiers[0].codec=lz4")

pytestmark = [
    pytest.mark.skipif(codec_library(Codec.parse("lz4")) is None, reason="no liblz4"),
    pytest.mark.root,
]


def cluster_of(make_cluster: Callable[..., Cluster], nodes: int) -> Cluster:
    """Nodes with files that shrink, whose packed Tiers are retained."""
    cluster = make_cluster(nodes, files=FILES)
    for number, (name, size) in enumerate(sorted(cluster.sizes.items())):
        content = body(size - HEAD_BYTES, number)
        place = cluster.origin.source / name
        place.write_bytes(head_of(name, content) + content)
    medium = cluster.ram / "tier"
    medium.mkdir()
    own = tuple(with_medium(node, cluster.ram, medium) for node in cluster.nodes)
    return replace(cluster, nodes=own, ram=medium, extra=KEPT)


def with_medium(node: Node, home: Path, medium: Path) -> Node:
    """A node whose Tier is not that of the others, though it has the same path."""
    own = home / node.name
    own.mkdir()
    script = f'mount --bind {own} {medium} && exec "$@"'
    return replace(node, prefix=("unshare", "-m", "sh", "-c", script, "sh"))


def has_all(node: Node) -> bool:
    """It holds all files packed."""
    [run] = node.run_root.iterdir()
    report = ask(run, {"op": "status"})["report"]
    return bool(report["packed"]) and report["packed"]["files"] == FILES


def end(cluster: Cluster, job: Job, epochs: int) -> None:
    """Let a job go on to its end when each node holds all files packed."""
    job.await_epoch(1)
    for node in cluster.nodes:
        wait_until(partial(has_all, node), f"{node.name} has all")
    job.release(1)
    job.finish().right(opens=epochs * len(cluster.nodes) * FILES)


@pytest.mark.parametrize("nodes", [2, 4])
def test_next_job_of_all_nodes_reads_nothing_of_the_origin(
    make_cluster: Callable[..., Cluster], nodes: int
) -> None:
    cluster = cluster_of(make_cluster, nodes)
    end(cluster, cluster.start(Plan(2), hold=[1]), 2)
    assert cluster.origin.counts().read_bytes >= cluster.size_bytes
    cluster.origin.reset()

    outcome = cluster.run(Plan(2)).right(opens=2 * nodes * FILES)

    assert cluster.origin.counts().read_bytes == 0
    assert outcome.report["staging"]["adopted_files"] == nodes * FILES
    assert outcome.report["packed"]["dropped_files"] == 0


def damage(packs: list[Path]) -> int:
    """Change bytes of the pieces of each frame; return of how many.

    One is not enough: of 2,400 changed pieces of LZ4 one was decoded to the right
    bytes, because an offset pointed to the same words elsewhere.
    """
    rng, found = random.Random(1), 0
    for pack in packs:
        index = read_index(pack)
        assert index is not None
        content = bytearray(pack.read_bytes())
        for at, size in zip(index["offset"], index["bytes"], strict=True):
            for _ in range(8):
                place = rng.randrange(int(at) + LEAST_BYTES, int(at) + int(size))
                content[place] ^= 1
            found += 1
        rewrite(pack, bytes(content))
    return found


def test_node_whose_pack_files_are_damaged_gets_the_files_of_its_peers_from_them(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = cluster_of(make_cluster, 2)
    end(cluster, cluster.start(Plan(2), hold=[1]), 2)
    home = cluster.ram.parent / cluster.nodes[0].name
    assert damage(sorted(home.rglob("segment-*.pack"))) == FILES
    cluster.origin.reset()

    outcome = cluster.run(Plan(2)).right(opens=2 * 2 * FILES)

    assert outcome.report["packed"]["dropped_files"] == FILES
    # A node reads its own files from the origin, as for plain Tiers.
    assert outcome.report["exchange"]["fetched_files"] > 0.3 * FILES
    assert cluster.origin.counts().read_bytes < 0.75 * cluster.size_bytes
