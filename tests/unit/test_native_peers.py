"""PeerServer and PeerReceiver: Files pass between two small jobs by a socket."""

import errno
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from monarch import native
from monarch.native import (
    Completion,
    Order,
    OrderKind,
    PeerReceiver,
    PeerServer,
    ReceiverOptions,
    ReplicaState,
    ServerOptions,
    Step,
)
from support.processes import wait_until
from unit.test_native_staging import PATIENCE_MS, SIZES, Job, make_job, wait_event

OWNER, ASKER, PEERS = 2, 0, 4


def order_of(file: int) -> Order:
    """The order to fetch a File from its owner."""
    return Order(file, 0, OrderKind.DEMAND, OWNER)


@dataclass(frozen=True, slots=True)
class Nodes:
    """A node that has the Files, and one that fetches them."""

    owner: Job
    asker: Job
    engine: native.Engine
    server: PeerServer
    receiver: PeerReceiver

    def connect(self) -> None:
        """Joins the two by a socket."""
        asks, serves = socket.socketpair()
        self.server.adopt(ASKER, serves.detach())
        self.receiver.connect(OWNER, asks.detach())

    def own(self, file: int) -> None:
        """Stages a File at its owner."""
        self.owner.submit(self.engine, file, OrderKind.DEMAND)
        wait_event(self.engine)
        assert self.engine.completions()[0].status == 0

    def fetch(self, *files: int) -> list[Completion]:
        """Fetches Files as the agent does, and waits for all of them."""
        self.asker.states[list(files)] = native.state_word(ReplicaState.STAGING)
        orders = [order_of(file) for file in files]
        assert self.receiver.submit(orders) == len(files)
        return self.wait(len(files))

    def wait(self, n: int) -> list[Completion]:
        """The next n arrivals, by File."""
        poll = select.poll()
        poll.register(self.receiver.event_fd, select.POLLIN)
        found: list[Completion] = []
        while len(found) < n:
            assert poll.poll(PATIENCE_MS), "nothing happened"
            found += self.receiver.arrivals()
        return sorted(found)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Both nodes, not connected yet."""
    jobs = []
    for name in ("owner", "asker"):
        (tmp_path / name).mkdir()
        jobs.append(make_job(tmp_path / name))
    with ExitStack() as stack:
        engines = [
            stack.enter_context(native.Engine(job.board, job.options)) for job in jobs
        ]
        server = PeerServer(engines[0], ServerOptions(PEERS))
        receiver = PeerReceiver(engines[1], ReceiverOptions(PEERS))
        stack.enter_context(server)
        stack.enter_context(receiver)
        yield Nodes(jobs[0], jobs[1], engines[0], server, receiver)


def test_files_arrive_as_their_owner_has_them(nodes: Nodes) -> None:
    files = range(len(SIZES))
    for file in files:
        nodes.own(file)
    nodes.connect()

    arrivals = nodes.fetch(*files)

    assert [(a.file, a.tier, a.peer, a.status) for a in arrivals] == [
        (file, 0, OWNER, 0) for file in files
    ]
    assert [a.bytes for a in arrivals] == list(SIZES)
    for file in files:
        there = nodes.asker.replica(file).read_bytes()
        assert there == nodes.owner.replica(file).read_bytes()
        assert len(there) == SIZES[file]
    assert (nodes.asker.options.digests == nodes.owner.options.digests).all()


def test_both_sides_count_the_same_traffic(nodes: Nodes) -> None:
    nodes.own(2)
    nodes.connect()

    nodes.fetch(2)

    # The bytes may arrive before the call that sent them has returned.
    wait_until(
        lambda: nodes.server.traffic()[ASKER].bytes == SIZES[2], "the server's count"
    )
    served, received = nodes.server.traffic(), nodes.receiver.traffic()
    assert len(served) == len(received) == PEERS
    assert served[ASKER].bytes == received[OWNER].bytes == SIZES[2]
    assert served[ASKER].replies == received[OWNER].replies == 1
    assert served[ASKER].connections == received[OWNER].connections == 1
    assert sum(served[OWNER]) == sum(received[ASKER]) == 0


def test_a_cold_file_is_requested_from_the_python_of_its_owner(nodes: Nodes) -> None:
    nodes.connect()
    nodes.asker.states[3] = native.state_word(ReplicaState.STAGING)

    nodes.receiver.submit([order_of(3)])
    wait_event(nodes.engine)

    assert nodes.engine.requests() == [3]
    nodes.own(3)
    assert nodes.wait(1)[0].status == 0
    word = nodes.asker.states[3]
    assert native.word_source(word) is native.Source.NONE  # its origin was read for us


def test_a_file_that_the_owner_has_is_fetched_from_it(nodes: Nodes) -> None:
    nodes.own(2)
    nodes.connect()

    nodes.fetch(2)

    word = nodes.asker.states[2]
    assert native.word_parts(word) == (ReplicaState.READY, 0, native.Reason.NONE)
    assert native.word_source(word) is native.Source.PEER


def test_a_silent_peer_is_not_waited_for(nodes: Nodes) -> None:
    asks, frozen = socket.socketpair()
    with (
        frozen,
        PeerReceiver(nodes.engine, ReceiverOptions(PEERS, react_s=0.1)) as receiver,
    ):
        receiver.connect(OWNER, asks.detach())
        receiver.submit([order_of(1)])
        assert select.select([receiver.event_fd], [], [], PATIENCE_MS / 1000)[0]
        [arrival] = receiver.arrivals()

    assert arrival.status == -errno.ETIMEDOUT
    assert arrival.ns < 1e9 * ReceiverOptions(PEERS).timeout_s


def test_a_file_that_the_owner_refuses_is_not_published(nodes: Nodes) -> None:
    refused = native.state_word(ReplicaState.ABSENT, reason=native.Reason.NO_ROOM)
    nodes.owner.states[1] = refused
    nodes.connect()

    [arrival] = nodes.fetch(1)

    assert arrival.status == -errno.ENOENT
    assert arrival.step is Step.READ
    assert not nodes.asker.replica(1).exists()


def test_orders_for_a_peer_that_is_not_connected_fail_at_once(nodes: Nodes) -> None:
    assert nodes.fetch(1)[0].status == -errno.ENOTCONN


def test_a_peer_can_be_dropped_and_reconnected(nodes: Nodes) -> None:
    nodes.own(1)
    nodes.connect()
    assert nodes.fetch(1)[0].status == 0

    nodes.server.drop(ASKER)
    nodes.own(2)
    while nodes.receiver.traffic()[OWNER].connections:
        select.select([], [], [], 0.001)
    nodes.connect()

    assert nodes.fetch(2)[0].status == 0
    assert nodes.receiver.traffic()[OWNER].lost == 1


def test_an_unusable_socket_is_left_to_the_caller(nodes: Nodes) -> None:
    near, far = socket.socketpair(type=socket.SOCK_DGRAM)

    for use in (nodes.server.adopt, nodes.receiver.connect):
        with pytest.raises(OSError) as refused:
            use(1, near.fileno())
        assert refused.value.errno == errno.EPROTOTYPE
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            use(PEERS, near.fileno())

    assert near.send(b"alive") == 5
    near.close()
    far.close()


def test_numbers_without_meaning_are_refused(nodes: Nodes) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        PeerServer(nodes.engine, ServerOptions(0))
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        PeerReceiver(nodes.engine, ReceiverOptions(PEERS, in_flight=65))
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        PeerReceiver(nodes.engine, ReceiverOptions(PEERS, react_s=0))
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        PeerReceiver(nodes.engine, ReceiverOptions(PEERS, threads=17))


def test_a_closed_end_is_reported(nodes: Nodes) -> None:
    nodes.server.close()
    nodes.receiver.close()

    nodes.server.close()
    with pytest.raises(ValueError, match="closed"):
        nodes.server.traffic()
    with pytest.raises(ValueError, match="closed"):
        nodes.receiver.arrivals()
