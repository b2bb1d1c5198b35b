"""Without the secret a peer receives nothing; with it, no more than the catalog."""

import os
import random
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monarch import native
from monarch.native.layout import DTYPES
from monarch.peers.protocol import ProtocolError
from monarch.peers.protocol.conversation import VERSION
from support.clusters import Cluster
from support.meddling import WAYS
from support.nodes import JOB_LIMIT_S, Node, Outcome, Plan
from support.processes import wait_until
from support.spaces import Between
from support.stranger import Caller, Door, doors, rest

FILES = 120
OVERREAD_MAX = 1.02
REQUEST = struct.Struct("<IBBBBQQIIII")
REPLY_BYTES = DTYPES["frame_reply"].itemsize
REQUEST_MAGIC = 0x5251504D


@contextmanager
def two_nodes(cluster: Cluster) -> Iterator[list[Door]]:
    """Two agents to attack; afterwards they do their work as if nothing had been."""
    job = cluster.start(Plan(2), hold=[0, 1])
    job.await_epoch(0)
    agents = [node.agent() for node in cluster.nodes]

    yield doors(cluster.rendezvous)

    job.release(0)
    job.await_epoch(1)
    assert [node.agent() for node in cluster.nodes] == agents
    job.release(1)
    job.finish().right(opens=4 * FILES)
    assert cluster.origin.counts().read_bytes <= OVERREAD_MAX * cluster.size_bytes
    for node in cluster.nodes:
        assert "Traceback" not in node.log()


def test_strangers_are_refused_and_hurt_nobody(make_cluster):
    with two_nodes(make_cluster(2, files=FILES)) as found:
        for door in found:
            refused_secrets(door)
            refused_bytes(door)
            refused_job(door)


def refused_secrets(door: Door) -> None:
    """Peers without the secret, or with a nearly right one."""
    nearly = bytes(byte ^ 1 for byte in door.secret)
    for secret in (nearly, b"", bytes(32)):
        with pytest.raises((ProtocolError, OSError)):
            Caller(door, 1 - door.number, secret).trust()


def refused_bytes(door: Door) -> None:
    """Frames of random bytes, too long ones, and none at all."""
    rng = random.Random(5)
    frames = [rng.randbytes(rng.randrange(1, 4096)) for _ in range(20)]
    frames += [b"MnCt" + rng.randbytes(60) for _ in range(20)]
    # HELLO, and lengths of 4 GiB.
    frames += [struct.pack("<4sBBHII", b"MnCt", VERSION, 1, 0, 2**32 - 1, 2**32 - 1)]
    frames += [b"GET / HTTP/1.1\r\n\r\n"]
    for frame in frames:
        # The connection is closed, at most with a reason: nothing helps a stranger.
        assert len(door.answer(frame)) <= 100


def refused_job(door: Door) -> None:
    """A peer that knows the secret but names another job is refused."""
    with pytest.raises((ProtocolError, OSError)):
        Caller(replace(door, job="another"), 1 - door.number, door.secret).trust()


def test_a_recorded_handshake_opens_nothing(make_cluster):
    with two_nodes(make_cluster(2, files=FILES)) as (door, _):
        caller = Caller(door, 1, door.secret)
        caller.data_socket().close()

        answer = door.answer(*caller.said)

        hello, proof, wish = caller.said
        assert (len(hello) > 32, len(proof) > 32, len(wish) > 16) == (True,) * 3
        # A challenge and a refusal, but nothing that would follow a welcome.
        assert len(answer) < 150
        assert len(door.answer(*caller.said)) == len(answer)


def catalog_digest(node: Node) -> int:
    """By which the data planes of a job know that they speak of the same Catalog."""
    [segment] = node.run_root.glob("*/catalog")
    content = np.fromfile(segment, np.uint8)
    record = content[: DTYPES["catalog"].itemsize].view(DTYPES["catalog"])
    return int(record["digest"][0])


def requests(digest: int) -> Iterator[bytes]:
    """Requests that no peer of ours sends to a data plane."""
    rng = random.Random(6)
    yield REQUEST.pack(REQUEST_MAGIC, 1, 1, 0, 0, 7, digest ^ 1, 0, 0, 0, 0)
    for file, first in ((2**32 - 1, 0), (0, 2**32 - 1), (FILES, 0), (0, 1)):
        for spoken in (digest, digest ^ 1):
            yield REQUEST.pack(REQUEST_MAGIC, 1, 1, 0, 0, 7, spoken, file, first, 0, 0)
    for what in ((0, 0, 0), (2, 2, 4), (1, 0, 0), (1, 33, 0), (1, 1, 8)):
        yield REQUEST.pack(REQUEST_MAGIC, *what, 0, 7, digest, 0, 0, 0, 0)
    yield REQUEST.pack(0, 1, 1, 0, 0, 7, digest, 0, 0, 0, 0)
    for _ in range(100):
        yield rng.randbytes(rng.choice([1, 39, 40, 41, 4096]))


def test_a_lying_node_receives_no_byte_of_a_file(make_cluster):
    cluster = make_cluster(2, files=FILES)
    with two_nodes(cluster) as (door, _):
        digest = catalog_digest(cluster.nodes[0])
        assert digest == catalog_digest(cluster.nodes[1])
        for request in requests(digest):
            answer = answer_to(door, request)
            # Nothing, or a refusal in a bare frame for each request.
            assert len(answer) % REPLY_BYTES == 0
            assert len(answer) <= len(request) // REQUEST.size * REPLY_BYTES
            assert all(status < 0 for status in statuses(answer))


def answer_to(door: Door, request: bytes) -> bytes:
    """The answer of the data plane to bytes of a peer that knows the secret."""
    with Caller(door, 1, door.secret).data_socket() as lying:
        # The other end may have closed before all of it was sent.
        with suppress(OSError):
            lying.sendall(request)
            lying.shutdown(socket.SHUT_WR)
        return rest(lying)


def statuses(answer: bytes) -> list[int]:
    """The status of the replies: 0 would be followed by bytes of a file."""
    places = range(4, len(answer), REPLY_BYTES)
    return [int.from_bytes(answer[at : at + 4], "little", signed=True) for at in places]


@pytest.mark.root
def test_bytes_that_change_on_the_wire_reach_no_program(make_cluster, switched):
    links = switched(2, wired=0)
    cluster = make_cluster(2, files=FILES, links=links)
    job = cluster.start(Plan(3), "--set", "peers.mode=partition", hold=[0, 2])
    job.await_epoch(0)
    links[0].tell("flip 10")
    job.release(0)
    job.await_epoch(2)
    links[0].tell("flip 0")
    job.release(2)

    outcome = job.finish().right(opens=6 * FILES)

    flipped = links[0].flipped()
    peers = [peer for node in outcome.report["nodes"] for peer in node["peers"]]
    noticed = sum(peer["corrupt"] + peer["malformed"] for peer in peers)
    assert flipped >= 1
    assert 1 <= noticed <= flipped


def forged(
    make_cluster: Callable[..., Cluster], between: Between, meet: Path, *options: str
) -> tuple[int, Outcome]:
    """A job of two nodes between which all replies are changed, and how many were."""
    cluster = make_cluster(2, files=FILES, links=between.nodes)
    words = ["--set", "peers.mode=partition", "--set", f"peers.rendezvous={meet}"]
    words += ["--set", "fill.enabled=false", *options]
    job = cluster.start(Plan(2), *words, hold=[0, 1])
    job.await_epoch(0)
    between.tell("change 1")
    job.release(0)
    job.await_epoch(1)
    between.tell("change 0")
    job.release(1)
    for command in job.running.values():
        command.process.wait(JOB_LIMIT_S)
    return between.count()[0], job.notes()


@pytest.mark.root
@pytest.mark.skipif(native.seal_library() is None, reason="no libcrypto")
def test_bytes_that_are_forged_on_the_wire_reach_no_program(
    make_cluster, between, tmp_path
):
    changed, outcome = forged(make_cluster, between, tmp_path / "meet")

    outcome.right(opens=4 * FILES)
    peers = [peer for node in outcome.report["nodes"] for peer in node["peers"]]
    noticed = sum(peer["corrupt"] for peer in peers)
    # Data in flight when the breaker opens is no longer received.
    assert 1 <= noticed <= changed
    assert sum(peer["breaker_opened"] for peer in peers) >= 1


@pytest.mark.root
def test_checksums_alone_do_not_stop_forgery(make_cluster, between, tmp_path):
    wish = ["--set", "peers.integrity=checksum"]

    changed, outcome = forged(make_cluster, between, tmp_path / "meet", *wish)

    peers = [peer for node in outcome.report["nodes"] for peer in node["peers"]]
    assert changed >= FILES // 2
    assert len(outcome.wrong) >= changed
    assert sum(peer["corrupt"] for peer in peers) == 0


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS)
def test_tampering_with_agent_messages_is_detected_and_harmless(
    make_cluster, between, tmp_path, way
):
    cluster = make_cluster(2, files=FILES, links=between.nodes)
    meet = ["--set", f"peers.rendezvous={tmp_path / 'meet'}"]
    job = cluster.start(Plan(2), *meet, hold=[0, 1])
    job.await_epoch(0)
    between.tell(way)
    job.release(0)
    wait_until(lambda: between.count()[1] == 1, "a frame to be meddled with")
    wait_until(lambda: noticed(cluster) == 1, "that to be noticed")
    wait_until(lambda: between.count()[2] == 2, "the nodes to meet again")
    job.await_epoch(1)
    job.release(1)

    outcome = job.finish().right(opens=4 * FILES)

    assert outcome.report["agent"]["links_altered"] == 1


def noticed(cluster: Cluster) -> int:
    """The number of lines on tampering in all logs."""
    return sum(
        node.log().count("tampered with on the network") for node in cluster.nodes
    )


def test_nothing_of_a_secret_is_left_when_the_job_has_ended(make_cluster):
    cluster = make_cluster(2, files=20)

    cluster.run(Plan(1)).right(opens=40)

    assert os.listdir(cluster.rendezvous) == []


def test_leftovers_of_killed_nodes_are_cleaned_and_living_ones_kept(
    make_cluster,
):
    cluster = make_cluster(2, files=20)
    job = cluster.start(Plan(1), hold=[0])
    job.await_epoch(0)
    for entry in cluster.rendezvous.iterdir():
        os.utime(entry, (0, 0))
    names = sorted(os.listdir(cluster.rendezvous))

    alive = clean(cluster)
    cluster.nodes[0].hurt(signal.SIGKILL)
    half = clean(cluster)
    cluster.nodes[1].hurt(signal.SIGKILL)
    dead = clean(cluster)

    assert len(names) == 3
    assert alive == half == []
    assert sorted(dead) == [f"removed {cluster.rendezvous}/{n}" for n in names]
    assert os.listdir(cluster.rendezvous) == []


def clean(cluster: Cluster) -> list[str]:
    """What `monarch clean` says that it has removed where the nodes meet."""
    words = [str(cluster.command), "clean", str(cluster.rendezvous)]
    environ = cluster.nodes[0].environ | {"MONARCH_STAGING_RUN_DIR": "/nonexistent"}
    done = subprocess.run(
        words, env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    return [line for line in lines if str(cluster.rendezvous) in line]
