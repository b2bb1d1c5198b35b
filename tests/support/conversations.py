"""Both sides of conversations between agents, without sockets."""

import random
import struct
from typing import Any

from monarch.peers.protocol import (
    BODY_BYTES_MAX,
    Conversation,
    Identity,
    Kind,
    Member,
    Phase,
    Role,
    Standing,
    State,
)
from monarch.peers.protocol.messages import FIELDS_BYTES_MAX

SECRET = b"s" * 32
HEAD = struct.Struct("<4sBBHII")
FRAME_MAX = HEAD.size + FIELDS_BYTES_MAX + BODY_BYTES_MAX + 16

MEMBER = Member(2, Standing.JOINED, "n2", 4000, (1 << 40, 7), Phase.RUNNING, 99, True)
SAMPLES: dict[Kind, dict[str, Any]] = {
    Kind.JOIN: {
        "host": "n1",
        "port": 1,
        "capacities": [5],
        "phase": 0,
        "life": 3,
        "seals": 1,
    },
    Kind.VIEW: {"members": [MEMBER.row()]},
    Kind.HEARTBEAT: {"phase": 1, "fill": 255},
    Kind.HELD: {"demand": 3, "fill": 0, "tokens": 2, "serial": 9},
    Kind.LEASE: {"tokens": 2, "serial": 9},
    Kind.LEAVE: {"gone": 1},
    Kind.NOTE: {"number": 1},
    Kind.MARKS: {"catalog": 2**64 - 1, "first": 0, "next": 3},
    Kind.MARKS_ACK: {"next": 3},
    Kind.FETCH: {"first": 0},
    Kind.OFFER: {"digest": "d" * 64, "bytes": 5, "chunks": 1},
    Kind.CHUNK: {"packed": 0},
}


def nonces(seed: int) -> bytes:
    return random.Random(seed).randbytes(32)


def client(job: str = "7.0", number: int = 1, secret: bytes = SECRET, peer: int = 0):
    return Conversation(Role.CLIENT, Identity(job, number, secret), nonces(1), peer)


def server(job: str = "7.0", number: int = 0, secret: bytes = SECRET, seed: int = 2):
    return Conversation(Role.SERVER, Identity(job, number, secret), nonces(seed))


def shake(one: Conversation, other: Conversation) -> None:
    """Lets two sides talk until neither has anything to say."""
    for _ in range(4):
        other.receive(one.outgoing())
        one.receive(other.outgoing())


def trusting() -> tuple[Conversation, Conversation]:
    one, other = client(), server()
    shake(one, other)
    return one, other


def reach(state: State) -> tuple[Conversation, Conversation]:
    """Two sides that have reached a state after the handshake."""
    first = {
        State.JOINED: [(Role.CLIENT, Kind.JOIN)],
        State.FETCHING: [(Role.CLIENT, Kind.FETCH)],
        State.RECEIVING: [(Role.CLIENT, Kind.FETCH), (Role.SERVER, Kind.OFFER)],
        State.SOCKET_ASKED: [(Role.CLIENT, Kind.SOCKET)],
    }
    sides = dict(zip((Role.CLIENT, Role.SERVER), trusting(), strict=True))
    for role, kind in first.get(state, []):
        sides[role].send(kind, SAMPLES.get(kind, {}))
        sides[role.other].receive(sides[role].outgoing())
    return sides[Role.CLIENT], sides[Role.SERVER]
