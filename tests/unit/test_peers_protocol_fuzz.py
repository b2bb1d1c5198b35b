"""The protocol between agents under any bytes at all."""

import json
import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.peers.protocol import (
    Conversation,
    FieldError,
    Kind,
    Member,
    ProtocolError,
    Role,
    State,
    parse_message,
)
from monarch.peers.protocol.messages import SCHEMAS
from support.conversations import (
    FRAME_MAX,
    SAMPLES,
    client,
    server,
)


@given(st.binary(max_size=4096))
def test_random_bytes_are_a_protocol_error_or_nothing(piece):
    host = server()
    survive(host, piece)
    assert not host.authenticated


@given(st.sampled_from(sorted(SCHEMAS)), st.binary(max_size=2000), st.binary())
def test_random_fields_are_a_message_or_a_field_error(kind, text, body):
    try:
        message = parse_message(kind, text, body)
    except FieldError:
        return
    assert message.kind is kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(st.sampled_from(["members", "phase", "host"]), inner)
    ),
    max_leaves=20,
)


@given(st.sampled_from(sorted(SCHEMAS)), JSON)
def test_random_json_is_a_message_or_a_field_error(kind, fields):
    try:
        parse_message(kind, json.dumps(fields).encode(), b"")
    except FieldError:
        return
    if kind is Kind.VIEW:
        for row in fields["members"]:
            assert Member.from_row(row).row() == row


def survive(host: Conversation, piece: bytes) -> None:
    """Feeds bytes: messages or ProtocolError result, in the room of one frame."""
    try:
        for message in host.receive(piece):
            assert message.kind in Kind
    except ProtocolError:
        assert host.state is State.CLOSED
    assert 0 <= host.wants <= FRAME_MAX
    assert len(host._buffer) <= FRAME_MAX


def recording() -> list[tuple[Role, bytes]]:
    """Everything that two nodes say in one whole conversation."""
    said = []
    one, other = client(), server()
    sides = {Role.CLIENT: one, Role.SERVER: other}

    def pass_over(role: Role) -> None:
        piece = sides[role].outgoing()
        said.append((role, piece))
        sides[role.other].receive(piece)

    for role in (Role.CLIENT, Role.SERVER, Role.CLIENT, Role.SERVER):
        pass_over(role)
    for role, kind in (
        (Role.CLIENT, Kind.JOIN),
        (Role.SERVER, Kind.VIEW),
        (Role.CLIENT, Kind.HEARTBEAT),
        (Role.CLIENT, Kind.NOTE),
        (Role.SERVER, Kind.MARKS),
        (Role.CLIENT, Kind.MARKS_ACK),
        (Role.SERVER, Kind.REPORT_ACK),
    ):
        sides[role].send(kind, SAMPLES.get(kind, {}), b"n" * (kind is Kind.NOTE))
        pass_over(role)
    return said


def mutated(piece: bytes, chance: random.Random) -> bytes:
    """One of the usual damages: flipped, cut, doubled, inserted, replaced."""
    altered = bytearray(piece)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(altered) + 1)
        match chance.randrange(5):
            case 0 if place < len(altered):
                altered[place] ^= 1 << chance.randrange(8)
            case 1:
                del altered[place:]
            case 2:
                altered += altered[place:]
            case 3:
                altered[place:place] = chance.randbytes(chance.randint(1, 8))
            case _:
                altered[place : place + 4] = chance.choice(INTERESTING)
    return bytes(altered)


INTERESTING = [
    struct.pack("<I", value) for value in (0, 1, 16, 72, 2**20, 2**31, 2**32 - 1)
]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_bytes_ever_break_a_conversation(soak_count):
    chance, said = random.Random(20261121), recording()
    trusted_at = {Role.CLIENT: 0, Role.SERVER: 0}

    for number in range(soak_count(50_000, 1_000_000)):
        victim = Role.SERVER if number % 2 else Role.CLIENT
        host = server() if victim is Role.SERVER else client()
        spoken = [piece for role, piece in said if role is not victim]
        whole = chance.randrange(len(spoken))
        for piece in spoken[:whole]:
            survive(host, piece)
        if chance.random() < 0.2:
            piece = chance.randbytes(chance.randint(0, 300))
        else:
            piece = mutated(spoken[whole], chance)
        cuts = sorted({0, chance.randrange(len(piece) + 1), len(piece)})
        for start, end in pairwise(cuts):
            survive(host, piece[start:end])
        trusted_at[victim] += host.authenticated

    # The damage was late enough, often enough, to reach messages for trusted ends only.
    assert min(trusted_at.values()) > 100
