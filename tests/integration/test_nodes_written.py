"""What a program writes on one node is soon read on all nodes."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from support.clusters import Cluster
from support.jobs import wait_until
from support.writers import Writer, Writers, digest_of, seconds_until, sees

NODES, FILES = 4, 12
REPLICATE = ("--set", "peers.mode=replicate")
# What README promises on a machine that is not busy, and room for one that is.
WINDOW_S = 0.5 + 4.5
# A hub that is lost has a successor after its silence, and a few trials.
SUCCESSION_S = 8.0 + 4.5


@contextmanager
def programs(cluster: Cluster, *options: str) -> Iterator[Callable[[int], Writer]]:
    """Gives what starts a program of one job on a node."""
    line = cluster.line([*REPLICATE, *options], cluster.nodes)
    writers = Writers()

    def start(number: int) -> Writer:
        node = cluster.nodes[number]
        node.run_root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return writers.start(number, [*node.prefix, *line], env=node.environ)

    try:
        yield start
    finally:
        writers.end()


def started(
    cluster: Cluster, start: Callable[[int], Writer], numbers: Sequence[int]
) -> list[Writer]:
    """Programs on these nodes, each of which is served all files by its Replicas."""
    writers = [start(number) for number in numbers]
    for writer in writers:
        await_served(cluster, writer)
    return writers


def await_served(cluster: Cluster, writer: Writer) -> None:
    for name in sorted(cluster.sizes):
        path = place(cluster, name)
        wait_until(lambda p=path: not writer.read(p).at_origin, f"Replica of {path}")


def place(cluster: Cluster, name: str) -> str:
    return str(cluster.origin.root / name)


def content_of(cluster: Cluster, name: str) -> bytes:
    return (cluster.origin.source / name).read_bytes()


def change(cluster: Cluster, writer: Writer, name: str, offset: int = 100) -> bytes:
    """Let a program change a file without changing its size; return what it is now."""
    before = content_of(cluster, name)
    words = f"written on {writer.node} at {time.monotonic_ns()}"
    writer.do("write", place(cluster, name), offset, words)
    after = content_of(cluster, name)
    assert len(after) == len(before)
    assert after != before
    return after


def soon(
    cluster: Cluster, writers: Sequence[Writer], name: str, limit_s: float = WINDOW_S
) -> None:
    """All of these programs read what the file is now soon, and from then on."""
    path, content = place(cluster, name), content_of(cluster, name)
    took_s = seconds_until([sees(w, path, content) for w in writers], limit_s)
    print(f"new bytes everywhere after {took_s:.3f} s")
    for writer in writers:
        assert writer.read(path) == (digest_of(content), True)


def writable(cluster: Cluster) -> Cluster:
    """The same nodes, with the dataset itself as their origin: it can be written to."""
    origin = replace(cluster.origin, root=cluster.origin.source)
    return replace(cluster, origin=origin)


@pytest.fixture
def cluster(make_cluster):
    return writable(make_cluster(NODES, files=FILES))


@pytest.mark.parametrize("node", [2, 0], ids=["a node", "the hub"])
def test_what_one_node_writes_all_nodes_read(cluster, node):
    first, second, third, *rest = sorted(cluster.sizes)
    with programs(cluster) as start:
        writers = started(cluster, start, range(NODES))

        change(cluster, writers[node], first)
        soon(cluster, writers, first)
        for name in (second, third):
            change(cluster, writers[node], name)
        for name in (second, third):
            soon(cluster, writers, name)

        served = [writers[1].read(place(cluster, name)).at_origin for name in rest]
        assert not any(served)
