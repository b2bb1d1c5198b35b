"""Writes of a program on one node are soon read on all nodes."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from monarch.native import DTYPES
from support.clusters import Cluster
from support.processes import wait_until
from support.writers import Writer, Writers, digest_of, seconds_until, sees

NODES, FILES = 4, 12
# The promise of `monarch help cluster` if idle, with a margin for a busy machine.
WINDOW_S = 0.5 + 4.5
# A lost hub has a successor after its silence, and a few attempts.
SUCCESSION_S = 8.0 + 4.5
# After this time no node waits for a frozen node any more.
SILENCE_S = 3.0


@contextmanager
def programs(
    cluster: Cluster, *options: str, mode: str = "replicate", waits: bool = True
) -> Iterator[Callable[[int], Writer]]:
    """A function that starts a program of one job on a node."""
    line = cluster.line(["--set", f"peers.mode={mode}", *options], cluster.nodes)
    line = [word for word in line if waits or word != "--strict"]
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


def await_served(cluster: Cluster, writer: Writer, but: Sequence[str] = ()) -> None:
    waiting = [place(cluster, n) for n in sorted(cluster.sizes) if n not in but]

    def all_served() -> bool:
        waiting[:] = [path for path in waiting if writer.read(path).at_origin]
        return not waiting

    wait_until(all_served, f"Replicas on node {writer.node}")


def place(cluster: Cluster, name: str) -> str:
    return str(cluster.origin.root / name)


def content_of(cluster: Cluster, name: str) -> bytes:
    return (cluster.origin.source / name).read_bytes()


def change(cluster: Cluster, writer: Writer, name: str, offset: int = 100) -> bytes:
    """Let a program change a file but not its size; return the new content."""
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
    """All of these programs soon read the new content, and from then on."""
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
def test_a_write_on_one_node_is_read_by_all_nodes(cluster, node):
    first, second, third, *rest = sorted(cluster.sizes)
    place_of_report = cluster.folder / "report.json"
    with programs(cluster, "--report", str(place_of_report)) as start:
        writers = started(cluster, start, range(NODES))

        change(cluster, writers[node], first)
        soon(cluster, writers, first)
        for name in (second, third):
            change(cluster, writers[node], name)
        for name in (second, third):
            soon(cluster, writers, name)

        served = [writers[1].read(place(cluster, name)).at_origin for name in rest]
        assert not any(served)

    report = json.loads(place_of_report.read_text())
    assert report["agent"]["files_written_elsewhere"] == 3 * (NODES - 1)
    assert report["agent"]["agent_errors"] == 0


def test_a_write_to_a_large_file_on_one_node_is_read_by_all_nodes(make_cluster):
    cluster = writable(make_cluster(NODES, files=2, mean_bytes=30 << 20))
    name = sorted(cluster.sizes)[0]
    with programs(cluster, "--set", "cold_open.mode=wait") as start:
        writers = started(cluster, start, range(NODES))

        change(cluster, writers[2], name, offset=9 << 20)

        soon(cluster, writers, name)


def test_a_write_before_the_catalog_is_read_by_all_nodes(make_cluster):
    """The programs of both nodes start while the first one still scans."""
    made = make_cluster(2, files=FILES)
    cluster, mount = writable(made), made.origin
    first, second, *_ = sorted(cluster.sizes)
    mount.set(stall="class0")
    late = ("--data", str(mount.root), "--set", "catalog.wait_max=200ms")
    try:
        with programs(cluster, *late, waits=False) as start:
            writers = [start(number) for number in range(2)]
            for writer, name in zip(writers, (first, second), strict=True):
                assert writer.read(place(cluster, name)).at_origin
                change(cluster, writer, name)

            mount.set(stall="")

            for writer in writers:
                await_served(cluster, writer, but=(first, second))
            soon(cluster, writers, first)
            soon(cluster, writers, second)
    finally:
        mount.set(stall="")


@pytest.mark.parametrize("saved", [False, True], ids=["scanned", "saved"])
def test_nodes_know_whether_the_index_is_of_an_earlier_job(make_cluster, saved):
    cluster = writable(make_cluster(2, files=FILES))
    options = []
    if saved:
        options = ["--index", str(cluster.folder / "saved.index")]
        words = ["index", str(cluster.origin.root), "-o", options[1]]
        subprocess.run([cluster.command, *words], check=True, capture_output=True)
    with programs(cluster, *options) as start:
        started(cluster, start, range(2))

        heads = [
            np.fromfile(next(node.run_root.glob("*/catalog")), DTYPES["catalog"], 1)[0]
            for node in cluster.nodes
        ]

    assert [bool(head["roots"]["provisional"][0]) for head in heads] == [saved] * 2


@pytest.mark.parametrize("then", ["unlink", "write and unlink"])
def test_a_file_that_two_nodes_change_has_all_their_marks(make_cluster, then):
    cluster = writable(make_cluster(2, files=FILES))
    name = min(cluster.sizes)
    path, content = place(cluster, name), content_of(cluster, name)
    with programs(cluster) as start:
        here, there = started(cluster, start, range(2))
        descriptor = here.do("hold", path)
        here.do("chmod", path, 0o600)
        seconds_until([lambda: there.read(path).at_origin], WINDOW_S)

        if then != "unlink":
            there.do("write", path, 0, "NEW")
        there.do("unlink", path)

        seconds_until([lambda: here.do("links", descriptor) == 0], WINDOW_S)
        shown = here.do("read anew", descriptor)
        assert shown == (digest_of(content) if then == "unlink" else "ESTALE")


def test_a_root_that_one_node_changes_passes_through_on_all_nodes(cluster):
    name = sorted(cluster.sizes)[0]
    directory = place(cluster, name.partition("/")[0])
    with programs(cluster) as start:
        writers = started(cluster, start, range(NODES))
        # No program of the job has written this file, so none may have marked it.
        (cluster.origin.source / name).write_bytes(b"n" * cluster.sizes[name])

        writers[2].do("rename", directory, directory + ".away")
        writers[2].do("rename", directory + ".away", directory)

        soon(cluster, writers, name)


def test_a_directory_that_one_node_changes_shows_its_times_on_all_nodes(cluster):
    directory = place(cluster, sorted(cluster.sizes)[0].partition("/")[0])
    with programs(cluster) as start:
        writers = started(cluster, start, range(NODES))
        before = [writer.do("mtime", directory) for writer in writers]

        writers[2].do("create", f"{directory}/new")
        after = os.stat(directory).st_mtime_ns

        assert after not in before
        shown = [lambda w=w: w.do("mtime", directory) == after for w in writers]
        seconds_until(shown, WINDOW_S)


def test_marks_survive_the_death_of_the_hub_before_it_sent_them(cluster):
    first, second, *_ = sorted(cluster.sizes)
    with programs(cluster) as start:
        writers = started(cluster, start, range(NODES))
        change(cluster, writers[2], first)
        soon(cluster, writers, first)
        cluster.nodes[0].hurt(signal.SIGSTOP)

        change(cluster, writers[2], second)
        time.sleep(1.0)  # sent to the hub, and not by it
        cluster.nodes[0].hurt(signal.SIGKILL)

        soon(cluster, writers[1:], second, SUCCESSION_S)


@pytest.mark.parametrize("node", [2, 0], ids=["a node", "the hub"])
def test_the_last_write_before_an_agent_ends_is_read_by_all_nodes(cluster, node):
    first = min(cluster.sizes)
    with programs(cluster) as start:
        writers = started(cluster, start, range(NODES))
        others = [writer for writer in writers if writer.node != node]
        agent = cluster.nodes[node].agent()
        assert agent is not None

        change(cluster, writers[node], first)
        os.kill(agent, signal.SIGTERM)

        soon(cluster, others, first, SUCCESSION_S)


def test_a_node_that_joins_late_receives_all_marks(cluster):
    first, second, *_ = sorted(cluster.sizes)
    options = ("--set", "peers.join_timeout=3s")
    with programs(cluster, *options) as start:
        writers = started(cluster, start, range(NODES - 1))
        change(cluster, writers[2], first)
        soon(cluster, writers, first)
        change(cluster, writers[0], second)
        soon(cluster, writers, second)

        late = start(NODES - 1)

        for name in (first, second):
            assert late.read(place(cluster, name)).digest == digest_of(
                content_of(cluster, name)
            )
        await_served(cluster, late, but=(first, second))
        soon(cluster, [*writers, late], first)


@pytest.mark.parametrize("node", [1, 0], ids=["a node", "the hub"])
def test_a_node_that_was_frozen_receives_the_marks_that_it_missed(cluster, node):
    first, second, *_ = sorted(cluster.sizes)
    with programs(cluster) as start:
        writers = started(cluster, start, range(NODES))
        others = [writer for writer in writers if writer.node != node]
        cluster.nodes[node].hurt(signal.SIGSTOP)
        change(cluster, writers[2], first)
        soon(cluster, others, first, SUCCESSION_S)
        time.sleep(SILENCE_S)

        cluster.nodes[node].hurt(signal.SIGCONT)

        # Before that its programs read the origin, which shows nothing of the marks.
        await_served(cluster, writers[node], but=[first])
        soon(cluster, writers, first, SUCCESSION_S)
        change(cluster, writers[3], second)
        soon(cluster, writers, second, SUCCESSION_S)


def test_a_write_to_files_in_transfer_is_read_by_all_nodes(make_cluster):
    cluster = writable(make_cluster(NODES, files=400))
    chance = random.Random(11)
    little = ("--set", "peers.transit=1MiB")
    with programs(cluster, *little, mode="partition") as start:
        writers = [start(number) for number in range(NODES)]
        for name in chance.sample(sorted(cluster.sizes), 25):
            readers = chance.sample(writers, 2)
            for reader in readers:
                reader.read(place(cluster, name))  # from the origin, or from a peer

            change(cluster, chance.choice(writers), name)

            soon(cluster, writers, name)


@pytest.mark.root
def test_a_node_that_was_cut_off_receives_the_marks_that_it_missed(
    make_cluster, switched
):
    links = switched(NODES)
    cluster = writable(make_cluster(NODES, files=FILES, links=links))
    first, second, *_ = sorted(cluster.sizes)
    with programs(cluster) as start:
        writers = started(cluster, start, range(NODES))
        links[1].cut()
        change(cluster, writers[2], first)
        change(cluster, writers[1], second)
        soon(cluster, [writers[0], *writers[2:]], first)
        time.sleep(SILENCE_S)

        links[1].heal()

        for name in (first, second):
            soon(cluster, writers, name, SUCCESSION_S)
