"""Tampering with agent messages ends one connection, and is counted."""

import asyncio
import logging
import socket
from typing import Any

import pytest

from monarch.peers.protocol import (
    AlteredError,
    Conversation,
    Identity,
    Kind,
    Message,
    ProtocolError,
    Role,
    State,
)
from monarch.peers.protocol.conversation import VERSION
from monarch.peers.protocol.marks import MarkLog
from monarch.peers.session import Session, Timing
from support.conversations import HEAD, SAMPLES, SECRET, nonces, reach, server, shake
from support.meddling import WAYS, Meddler
from support.meshes import make_node


def notes(one: Conversation, *bodies: bytes) -> list[bytes]:
    """The frames of some notes, in order."""
    frames = []
    for body in bodies:
        one.send(Kind.NOTE, {"number": 1}, body)
        frames.append(one.outgoing())
    return frames


def hear(other: Conversation, frames: list[bytes]) -> None:
    """Passes frames to one side as they arrive."""
    for frame in frames:
        other.receive(frame)


def forged(frame: bytes) -> bytes:
    """A frame with other words, made without the key."""
    return frame.replace(b"first", b"other")


@pytest.mark.parametrize(
    "meddle",
    [
        lambda first, second, third: [second],
        lambda first, second, third: [first, third],
        lambda first, second, third: [second, first],
        lambda first, second, third: [first, first],
        lambda first, second, third: [first, second, first],
        lambda first, second, third: [forged(first)],
        lambda first, second, third: [first, bytes(len(second)), second],
        lambda first, second, third: [first, second[:-16] + third[-16:]],
    ],
    ids=["dropped first", "dropped", "reordered", "repeated", "replayed later",
         "forged", "injected", "a tag of another"],
)  # fmt: skip
def test_tampering_with_messages_of_a_joined_node_ends_the_connection(meddle):
    one, other = reach(State.JOINED)
    frames = meddle(*notes(one, b"first", b"second", b"third"))

    with pytest.raises(AlteredError):
        hear(other, frames)

    assert other.state is State.CLOSED
    with pytest.raises(ProtocolError, match="ended"):
        other.receive(frames[0])


def test_a_strangers_bad_frame_counts_as_no_tampering():
    """Anybody may send it: only what comes from friends must not be altered."""
    with pytest.raises(ProtocolError) as refusal:
        server().receive(HEAD.pack(b"what", VERSION, Kind.HELLO, 0, 0, 72))

    assert not isinstance(refusal.value, AlteredError)


def test_a_frame_of_another_connection_is_refused():
    one, _ = reach(State.JOINED)
    [frame] = notes(one, b"first")
    later = Conversation(Role.CLIENT, Identity("7.0", 1, SECRET), nonces(8), 0)
    host = server(seed=9)
    shake(later, host)
    later.send(Kind.JOIN, SAMPLES[Kind.JOIN])
    host.receive(later.outgoing())

    with pytest.raises(AlteredError):
        host.receive(frame)


class Meddled:
    """A connection whose next frame is altered, after which nothing can be sent."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def receive(self) -> Message:
        await self.heard.wait()
        raise AlteredError("a frame was altered")

    async def send(self, *_: object) -> None:
        await self.heard.wait()
        raise ProtocolError("HEARTBEAT is not allowed in state closed")

    def close(self) -> None:
        """There is nothing to close."""


def test_an_altered_frame_is_reported_although_a_heartbeat_fails_for_it():
    """Both ends of a session end at once: which is looked at first is chance."""

    async def main():
        connection: Any = Meddled()
        beat = lambda: [Message(Kind.HEARTBEAT, SAMPLES[Kind.HEARTBEAT])]  # noqa: E731
        who: Any = None
        marks = MarkLog(lambda _: None, lambda: None)
        session = Session(connection, Timing.of(2), who, beat, marks)
        running = asyncio.create_task(session.run(lambda _: None))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.001, connection.heard.set)
        with pytest.raises(AlteredError):
            await running

    for _ in range(20):
        asyncio.run(main())


# -- between two nodes --------------------------------------------------------------


def connected(place):
    """A connection for the meddler to use."""
    onward = socket.create_connection(place)
    onward.setblocking(False)
    return onward


@pytest.mark.parametrize("way", WAYS)
def test_nodes_reconnect_after_tampering(tmp_path, caplog, way):
    caplog.set_level(logging.WARNING, "monarch.peers")

    async def main():
        first, meddler = make_node(0, 2, tmp_path), Meddler()
        await first.mesh.open()
        listener = socket.create_server(("127.0.0.1", 0))
        place = ("127.0.0.1", first.mesh.own.port)
        await meddler.listen(listener, lambda: connected(place))
        known = {0: listener.getsockname()}
        other = make_node(1, 2, None, addresses=known)
        await other.mesh.open()
        await other.sees(lambda view: len(view.joined) == 2)
        meddler.way = way
        await other.sees(lambda _: bool(first.mesh.tampered + other.mesh.tampered))
        assert meddler.meddled == 1
        await first.sees(lambda view: len(view.joined) == 2)
        await other.sees(lambda view: len(view.joined) == 2)
        for node in (other, first):
            await node.mesh.close()
        assert first.mesh.tampered + other.mesh.tampered == 1
        for task in meddler.tasks:
            task.cancel()

    asyncio.run(asyncio.wait_for(main(), 30))

    [line] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "tampered with on the network" in line
    assert line.endswith("count=1")
