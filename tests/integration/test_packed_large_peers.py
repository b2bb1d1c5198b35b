"""Blocks of large files are sent packed, and damage is not passed on."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from integration.test_packed_large import words_of
from monarch.agent.control import ask
from monarch.codec import Codec
from monarch.native import codec_library
from support.certified import HEAD_BYTES, head_of
from support.clusters import Cluster
from support.nodes import Outcome, Plan
from support.processes import wait_until

MIB = 1 << 20
NODES, EPOCHS = 2, 3
SIZES = (33 * MIB + 12_345, 9 * MIB + 1, 17 * MIB - 5, 24 * MIB + 256 * 1024 + 7)
# Each node keeps its own part, and has space for a few pieces of the others.
OPTIONS = (
    *("--set", "peers.mode=partition", "--set", "peers.transit=40MiB"),
    *("--set", "cold_open.wait_max=1MiB"),
)

pytestmark = [
    pytest.mark.skipif(codec_library(Codec.parse("zstd:1")) is None, reason="no zstd"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def packed(make_cluster: Callable[..., Cluster]) -> Callable[..., Cluster]:
    """Two nodes with a codec, and large files that shrink."""

    def make(codec: str, sizes: Sequence[int] = SIZES) -> Cluster:
        cluster = make_cluster(NODES, sizes=sizes)
        for number, (name, size) in enumerate(sorted(cluster.sizes.items())):
            body = words_of(size - HEAD_BYTES, number)
            (cluster.origin.source / name).write_bytes(head_of(name, body) + body)
        return replace(
            cluster, extra=(*cluster.extra, "--set", f"tiers[0].codec={codec}")
        )

    return make


def exchanged(outcome: Outcome) -> tuple[int, int]:
    """The bytes that peers have sent, and those of files that these were."""
    peers = [peer for node in outcome.report["nodes"] for peer in node["peers"]]
    assert sum(peer["corrupt"] for peer in peers) == 0
    sent = sum(peer["served_bytes"] for peer in peers)
    return sent, outcome.report["agent"]["peer_bytes"]


@pytest.mark.parametrize("reading", ["order", "random"])
def test_peers_send_blocks_as_they_are_packed(
    packed: Callable[..., Cluster], reading: str
) -> None:
    cluster = packed("zstd:1")
    plan = Plan(EPOCHS, reading=reading)

    outcome = cluster.run(plan, *OPTIONS).right(opens=EPOCHS * NODES * len(SIZES))

    sent, files = exchanged(outcome)
    assert files >= cluster.size_bytes / 2, "each node has read what the other keeps"
    # Files fetched before they are packed arrive plain.
    assert sent < 0.75 * files


def test_blocks_stored_plain_are_sent_plain(
    packed: Callable[..., Cluster],
) -> None:
    cluster = packed("none")

    outcome = cluster.run(Plan(EPOCHS, reading="random"), *OPTIONS)

    outcome.right(opens=EPOCHS * NODES * len(SIZES))
    sent, files = exchanged(outcome)
    assert files <= sent < 1.01 * files


def packed_bytes(cluster: Cluster) -> int:
    """The bytes of files that all nodes together hold packed."""
    total = 0
    for node in cluster.nodes:
        [run] = node.run_root.iterdir()
        packed = ask(run, {"op": "status"})["report"]["packed"]
        total += packed["bytes"] if packed else 0
    return total


def spoil(cluster: Cluster) -> int:
    """Change bytes all over the pack files of all nodes; return in how many places."""
    places = 0
    for segment in cluster.ram.rglob("segment-*.pack"):
        with segment.open("r+b") as file:
            for at in range(5000, segment.stat().st_size, 40_000):
                file.seek(at)
                file.write(b"\x55\xaa")
                places += 1
    return places


@pytest.mark.parametrize("codec", ["zstd:1", "none"])
def test_pieces_that_are_damaged_at_their_owner_reach_no_other_node(
    packed: Callable[..., Cluster], codec: str
) -> None:
    # Chance decides which part each node keeps. It exceeds the plain capacity of both
    # Pools, from which peers would be served without reading the frames.
    cluster = packed(codec, sizes=(*SIZES, *SIZES[:2]))
    job = cluster.start(Plan(2, reading="random"), *OPTIONS, hold=[1])
    job.await_epoch(1)
    wait_until(lambda: packed_bytes(cluster) == cluster.size_bytes, "all is packed")

    assert spoil(cluster) > 100

    job.release(1)
    outcome = job.finish().right(opens=2 * NODES * len(cluster.sizes))
    assert outcome.report["packed"]["dropped_files"] > 0
    if codec == "none":
        exchanged(outcome)  # an owner compares data that it has stored uncompressed
