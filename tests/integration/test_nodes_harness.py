"""The helpers of tests with many nodes: correct programs, links and counts."""

import hashlib
import json
import shutil
import subprocess
import sys
import time

import pytest

from support.nodes import Plan

FILES = 60
SEND = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 7000), 20)
peer.sendall(bytes(range(256)) * 4096)
peer.shutdown(socket.SHUT_WR)
print(peer.recv(100).decode())
"""
TAKE = """
import hashlib, socket, sys
server = socket.create_server(("", 7000))
print("ready", flush=True)
peer, _ = server.accept()
content = b"".join(iter(lambda: peer.recv(65536), b""))
peer.sendall(hashlib.sha256(content).hexdigest().encode())
"""


@pytest.mark.parametrize(
    ("sharding", "times"), [("everything", 4), ("dealt", 1), ("together", 8)]
)
def test_programs_without_monarch_read_the_origin_in_each_epoch(
    make_cluster, sharding, times
):
    cluster = make_cluster(files=FILES)

    outcome = cluster.run(Plan(3, sharding=sharding), plain=True)

    outcome.right(opens=3 * times * FILES)
    counts = cluster.origin.counts()
    assert counts.read_bytes == 3 * times * cluster.size_bytes
    assert counts.opens == 3 * times * FILES
    assert all(o.at_origin for o in outcome.opens)


@pytest.mark.parametrize("reading", ["order", "random"])
def test_processes_that_read_parts_read_each_file_once_in_an_epoch(
    make_cluster, reading
):
    sizes = (400_000, 256 << 10, 2_000_003)
    cluster = make_cluster(3, sizes=sizes)

    outcome = cluster.run(Plan(2, sharding="parts", reading=reading), plain=True)

    outcome.right(opens=2 * 3 * 2 * len(sizes))
    assert (
        cluster.origin.counts().read_bytes == 2 * sum(sizes) == 2 * cluster.size_bytes
    )


def test_wrong_and_unreadable_pieces_are_noted(make_cluster, tmp_path):
    cluster = make_cluster(1, sizes=[1_000_000, 10_000])
    changed, failing = sorted(cluster.sizes)
    cluster.origin.set(read_eio=failing)
    job = cluster.start(Plan(workers=1, reading="order"), plain=True, absent=[0])
    place = job.folder / "plan.json"
    right = shutil.copytree(cluster.origin.source, tmp_path / "right")
    with (right / changed).open("r+b") as file:
        file.seek(300_000)
        file.write(b"other")
    plan = json.loads(place.read_text())
    place.write_text(json.dumps({**plan, "source": str(right)}))
    cluster.join(job, 0)

    assert job.running[0].process.wait(20) == 1

    wrong = sorted(job.notes().wrong)
    assert wrong == [
        f"node 0: epoch 0: {changed} at 262144: wrong bytes, 262144 of 262144",
        f"node 0: epoch 0: {failing} at 0: [Errno 5] Input/output error",
    ]


def test_wrong_bytes_and_failed_reads_fail_a_job(make_cluster):
    cluster = make_cluster(1, files=FILES)
    first, second, *_ = sorted(cluster.sizes)
    (cluster.origin.source / first).write_bytes(b"x" * 30)
    cluster.origin.set(read_eio=second)

    with pytest.raises(AssertionError, match="exit 1"):
        cluster.run(Plan(), plain=True)

    wrong = cluster.jobs[0].notes().wrong
    assert len(wrong) == 2
    assert sum(first in words for words in wrong) == 1


def test_the_running_programs_divide_all_files_among_themselves(make_cluster):
    cluster = make_cluster(3, files=FILES)
    rest = [cluster.nodes[0], cluster.nodes[2]]

    outcome = cluster.run(Plan(1, sharding="dealt"), plain=True, nodes=rest)

    outcome.right(opens=FILES)
    assert {o.file for o in outcome.opens} == set(cluster.sizes)
    assert {o.node for o in outcome.opens} == {0, 2}


def test_programs_wait_for_each_other_and_for_a_hold(make_cluster):
    cluster = make_cluster(2, files=FILES)

    job = cluster.start(Plan((3, 2)), plain=True, hold=[1])
    job.await_epoch(1)
    held_s = time.monotonic()
    job.release(1)
    outcome = job.finish().right(opens=5 * FILES)

    assert all(o.begin_s < held_s for o in outcome.opens if o.epoch == 0)
    assert all(o.begin_s > held_s for o in outcome.opens if o.epoch > 0)
    assert [sorted(spans) for spans in outcome.spans] == [[0, 1], [0, 1], [0]]


def send_and_take(links):
    """Send 1 MiB from node 0 to node 1; return its digest there."""
    with subprocess.Popen(
        [*links[1].prefix, sys.executable, "-c", TAKE], stdout=subprocess.PIPE
    ) as taking:
        try:
            assert taking.stdout is not None
            assert taking.stdout.readline() == b"ready\n"
            send = [*links[0].prefix, sys.executable, "-c", SEND, links[1].address]
            out = subprocess.run(send, capture_output=True, check=True, timeout=30)
            return out.stdout.decode().strip()
        finally:
            taking.kill()


SENT = hashlib.sha256(bytes(range(256)) * 4096).hexdigest()


@pytest.mark.root
def test_a_link_carries_loses_and_counts(switched):
    links = switched(2)
    assert send_and_take(links) == SENT
    left, came = links[0].carried()
    assert left > 1 << 20
    assert came < left / 2

    links[1].limit(8 << 20)
    begin_s = time.monotonic()
    assert send_and_take(links) == SENT
    assert time.monotonic() - begin_s > 0.6

    links[1].cut()
    ping = [*links[0].prefix, "ping", "-c1", "-W1", links[1].address]
    assert subprocess.run(ping, capture_output=True).returncode != 0
    links[1].heal()
    assert send_and_take(links) == SENT


@pytest.mark.root
def test_a_wire_is_late_and_flips_bits_that_tcp_does_not_see(switched):
    links = switched(2, wired=0)
    assert send_and_take(links) == SENT

    links[0].tell("flip 100")
    assert send_and_take(links) not in (SENT, "")

    links[0].tell("flip 0")
    links[0].tell("late 0.5")
    begin_s = time.monotonic()
    assert send_and_take(links) == SENT
    assert time.monotonic() - begin_s > 1.0
