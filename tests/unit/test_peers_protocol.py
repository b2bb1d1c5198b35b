"""The protocol between agents: what is accepted, and what is refused."""

import struct
from collections.abc import Callable

import pytest

from monarch.peers.protocol import (
    BODY_BYTES_MAX,
    Conversation,
    FieldError,
    Identity,
    Kind,
    Message,
    ProtocolError,
    Refusal,
    RefusedError,
    Role,
    State,
    parse_message,
)
from monarch.peers.protocol.conversation import VERSION
from monarch.peers.protocol.messages import FIELDS_BYTES_MAX, NEXT, SCHEMAS
from support.conversations import (
    FRAME_MAX,
    HEAD,
    SAMPLES,
    SECRET,
    client,
    nonces,
    reach,
    server,
    trusting,
)


def test_two_nodes_that_know_the_secret_trust_each_other():
    one, other = trusting()

    assert (one.state, other.state) == (State.OPEN, State.OPEN)
    assert (one.peer, other.peer) == (0, 1)


def test_the_bytes_may_arrive_one_at_a_time():
    one, other = client(), server()
    for _ in range(4):
        for byte in one.outgoing():
            other.receive(bytes([byte]))
        for byte in other.outgoing():
            one.receive(bytes([byte]))

    assert one.authenticated
    assert other.authenticated


@pytest.mark.parametrize("secret", [b"x" * 32, b""], ids=["wrong", "none"])
def test_a_client_without_the_secret_is_refused(secret):
    one, other = client(secret=secret), server()
    other.receive(one.outgoing())

    with pytest.raises(ProtocolError, match="does not know"):
        one.receive(other.outgoing())  # it cannot verify us either

    liar = Conversation(Role.CLIENT, Identity("7.0", 1, SECRET), nonces(1), 0)
    victim = server(secret=b"the other one")
    victim.receive(liar.outgoing())
    forged = HEAD.pack(b"MnCt", VERSION, Kind.PROOF, 0, 0, 32) + bytes(32)
    with pytest.raises(ProtocolError, match="does not know"):
        victim.receive(forged)
    assert victim.outgoing().endswith(struct.pack("<H", Refusal.PROOF))
    assert not victim.authenticated


@pytest.mark.parametrize(
    ("one", "refusal"),
    [
        (lambda: client(job="8.0"), Refusal.JOB),
        (lambda: client(peer=5), Refusal.NUMBER),
        (lambda: client(number=0), Refusal.NUMBER),
    ],
    ids=["another job", "another node", "our own number"],
)
def test_a_wrong_client_receives_the_reason(one: Callable[[], Conversation], refusal):
    stranger, host = one(), server()

    with pytest.raises(ProtocolError):
        host.receive(stranger.outgoing())
    with pytest.raises(RefusedError) as refused:
        stranger.receive(host.outgoing())

    assert refused.value.refusal is refusal


def test_another_version_receives_a_refusal_with_ours():
    host = server()

    told = rf"uses version 9 of .*, not {VERSION}: install the same"
    with pytest.raises(ProtocolError, match=told):
        host.receive(HEAD.pack(b"MnCt", 9, Kind.HELLO, 0, 0, 72))

    assert host.outgoing().endswith(struct.pack("<H", Refusal.VERSION))


def test_a_node_of_another_version_reports_what_to_do():
    """By the refusal of its like, or by the version of one that is older."""
    reason = struct.pack("<H", Refusal.VERSION)
    for version, words in ((VERSION, "another version"), (1, "version 1 of")):
        refusal = HEAD.pack(b"MnCt", version, Kind.REFUSE, 0, 0, 2) + reason
        with pytest.raises(ProtocolError, match=f"it uses {words}.*install the same"):
            client().receive(refusal)


def test_a_replayed_handshake_is_refused():
    one, other = client(), server(seed=2)
    hello = one.outgoing()
    other.receive(hello)
    one.receive(other.outgoing())
    proof = one.outgoing()
    other.receive(proof)
    assert other.authenticated

    later = server(seed=3)
    later.receive(hello)
    with pytest.raises(ProtocolError, match="does not know"):
        later.receive(proof)


def test_a_reflected_proof_of_a_server_is_refused():
    host = server()
    host.receive(client().outgoing())
    challenge = host.outgoing()

    with pytest.raises(ProtocolError):
        host.receive(
            HEAD.pack(b"MnCt", VERSION, Kind.PROOF, 0, 0, 32) + challenge[-32:]
        )


def test_no_message_is_accepted_before_the_proof():
    for kind in Kind:
        if kind is not Kind.HELLO:
            with pytest.raises(ProtocolError):
                server().receive(HEAD.pack(b"MnCt", VERSION, kind, 0, 0, 0) + bytes(16))


@pytest.mark.parametrize(
    ("fields", "body"),
    [(0, 73), (1, 72), (0, 2**32 - 1), (2**32 - 1, 72)],
    ids=["a byte more", "fields", "the largest body", "the largest fields"],
)
def test_a_strangers_frame_of_any_other_length_is_refused_by_its_head(fields, body):
    host = server()

    with pytest.raises(ProtocolError, match="wrong length"):
        host.receive(HEAD.pack(b"MnCt", VERSION, Kind.HELLO, 0, fields, body))


@pytest.mark.parametrize(
    ("fields", "body"), [(FIELDS_BYTES_MAX + 1, 0), (0, BODY_BYTES_MAX + 1)]
)
def test_a_friends_frame_that_is_too_long_is_refused_by_its_head(fields, body):
    _, other = reach(State.JOINED)

    with pytest.raises(ProtocolError, match="too long"):
        other.receive(HEAD.pack(b"MnCt", VERSION, Kind.NOTE, 0, fields, body))


def test_a_flipped_bit_anywhere_in_a_frame_is_noticed():
    one, _ = reach(State.JOINED)
    one.send(Kind.NOTE, {"number": 1}, b"hello")
    frame = one.outgoing()

    for position in range(8 * len(frame)):
        altered = bytearray(frame)
        altered[position // 8] ^= 1 << position % 8
        _, other = reach(State.JOINED)
        # A larger length includes the following bytes.
        with pytest.raises(ProtocolError):
            other.receive(bytes(altered) + bytes(FRAME_MAX))


def test_a_frame_that_is_repeated_or_sent_back_is_refused():
    one, other = reach(State.JOINED)
    one.send(Kind.HEARTBEAT, {"phase": 0, "fill": 3})
    frame = one.outgoing()
    assert other.receive(frame) == [Message(Kind.HEARTBEAT, {"phase": 0, "fill": 3})]

    with pytest.raises(ProtocolError, match="altered"):
        other.receive(frame)
    with pytest.raises(ProtocolError, match="altered"):
        one.receive(frame)


@pytest.mark.parametrize(
    ("state", "role", "kind"), [key for key in NEXT if key[2] >= Kind.JOIN]
)
def test_each_message_arrives_as_it_was_sent(state, role, kind):
    one, other = reach(state)
    speaker, listener = (one, other) if role is Role.CLIENT else (other, one)
    body = b"b" * min(SCHEMAS[kind].body_max, 1000)

    speaker.send(kind, SAMPLES.get(kind, {}), body)

    [message] = listener.receive(speaker.outgoing())
    assert message == Message(kind, SAMPLES.get(kind, {}), body)
    assert listener.state is speaker.state


def test_bytes_after_a_handed_over_socket_are_kept_and_not_read():
    one, other = reach(State.SOCKET_ASKED)
    other.send(Kind.SOCKET_READY, {})

    one.receive(other.outgoing() + b"not ours any more")

    assert (one.state, one.rest, one.wants) == (
        State.HANDED_OVER,
        b"not ours any more",
        0,
    )


def test_a_message_that_is_not_allowed_now_cannot_be_sent():
    one, _ = trusting()

    with pytest.raises(ProtocolError, match="HEARTBEAT is not allowed in state open"):
        one.send(Kind.HEARTBEAT, {"phase": 0, "fill": 3})
    with pytest.raises(ProtocolError, match="ended"):
        one.receive(b"x")


def test_only_the_last_states_have_no_successor():
    following: dict[State, set[State]] = {state: set() for state in State}
    for (state, _, _), end in NEXT.items():
        following[state].add(end)

    assert {s for s, ends in following.items() if not ends} == {
        State.HANDED_OVER,
        State.CLOSED,
    }


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.HEARTBEAT, b""),
        (Kind.HEARTBEAT, b"[]"),
        (Kind.HEARTBEAT, b"nonsense"),
        (Kind.HEARTBEAT, b'{"phase":0}'),
        (Kind.HEARTBEAT, b'{"phase":0,"fill":256}'),
        (Kind.HEARTBEAT, b"\xff"),
        (Kind.HEARTBEAT, b'{"phase":true,"fill":0}'),
        (Kind.HEARTBEAT, b'{"phase":-1,"fill":0}'),
        (Kind.HEARTBEAT, b'{"phase":1.0,"fill":0}'),
        (Kind.HEARTBEAT, b'{"phase":NaN,"fill":0}'),
        (Kind.HEARTBEAT, b'{"phase":0,"fill":0,"more":1}'),
        (Kind.HEARTBEAT, b'{"fill":0,"phase":' + b"9" * 5000 + b"}"),
        (Kind.HEARTBEAT, b"[" * 60000),
        (Kind.HELD, b'{"demand":-1,"fill":0,"tokens":1,"serial":1}'),
        (Kind.LEASE, b'{"tokens":65537,"serial":1}'),
        (Kind.LEASE, b'{"tokens":1,"serial":null}'),
        (Kind.VIEW, b'{"members":[[0,1,"h",1,[],0,0]]}'),
        (Kind.VIEW, b'{"members":[[0,1,"h",65536,[],0,0,0]]}'),
        (Kind.VIEW, b'{"members":[[0,1,"h",1,[-1],0,0,0]]}'),
        (Kind.VIEW, b'{"members":[[0,1,"h",1,[],0,0,2]]}'),
        (Kind.VIEW, b'{"members":{}}'),
        (Kind.MARKS, b'{"catalog":1,"first":-1,"next":3}'),
        (Kind.MARKS, b'{"catalog":18446744073709551616,"first":0,"next":3}'),
        (Kind.MARKS_ACK, b'{"next":null}'),
        (Kind.OFFER, b'{"digest":"' + b"d" * 65 + b'","bytes":1,"chunks":1}'),
        (Kind.HELLO, b"{}"),
    ],
)
def test_fields_of_another_form_are_refused(kind, text):
    with pytest.raises(FieldError):
        parse_message(kind, text, b"")
