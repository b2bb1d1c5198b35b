"""Conversations with Cassandra: statements, rows on streams, replies however cut."""

import contextlib
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.records.stores.cql import STREAMS_MAX, CqlExchange
from monarch.records.stores.exchange import ExchangeError, Fault, Wanted
from support.exchanges import Places, ask, cut, hear

BLOB = random.Random(1).randbytes(120_000)
STATEMENT = "SELECT data FROM ks.t WHERE id=?"
NAME = b"\x01\x02\x03\x04"
ERROR, READY, AUTHENTICATE, RESULT, SUCCESS = 0x00, 0x02, 0x03, 0x08, 0x10
STARTUP, PREPARE, EXECUTE, RESPONSE = 0x01, 0x09, 0x0A, 0x0F
GLOBAL, NO_METADATA = 0x01, 0x04


def frame(stream: int, op: int, body: bytes, version: int = 0x84) -> bytes:
    """A frame of a server."""
    return struct.pack(">BBhBi", version, 0, stream, op, len(body)) + body


def string(text: bytes) -> bytes:
    """A [string] or [short bytes]."""
    return struct.pack(">H", len(text)) + text


def value(content: bytes | None) -> bytes:
    """A [bytes]."""
    if content is None:
        return struct.pack(">i", -1)
    return struct.pack(">i", len(content)) + content


def row(stream: int, *columns: bytes | None, described: bytes = b"") -> bytes:
    """A result with one row."""
    flags = GLOBAL if described else NO_METADATA
    head = struct.pack(">iii", 2, flags, len(columns)) + described
    body = struct.pack(">i", 1) + b"".join(map(value, columns))
    return frame(stream, RESULT, head + body)


def no_row(stream: int) -> bytes:
    """A result without rows."""
    return frame(stream, RESULT, struct.pack(">iiii", 2, NO_METADATA, 1, 0))


def error(stream: int, code: int, text: bytes = b"because") -> bytes:
    """An error."""
    return frame(stream, ERROR, struct.pack(">i", code) + string(text))


PREPARED = frame(0, RESULT, struct.pack(">i", 4) + string(NAME) + b"rest")
# Keyspace and table, then name and type of each column: a blob, and a map of sets.
DESCRIBED = (
    string(b"ks")
    + string(b"t")
    + string(b"data")
    + struct.pack(">H", 0x0003)
    + string(b"more")
    + struct.pack(">HHHH", 0x0021, 0x000D, 0x0022, 0x0009)
)


def prepared(capacity: int = 1024) -> CqlExchange:
    """A conversation whose statement is prepared."""
    exchange = CqlExchange(STATEMENT, capacity=capacity)
    hear(exchange, [frame(0, READY, b"") + PREPARED])
    assert exchange.ready
    return exchange


def streams_of(sent: bytes) -> list[int]:
    """The streams of the frames that a client has sent."""
    found = []
    while sent:
        version, _, stream, op, length = struct.unpack(">BBhBi", sent[:9])
        assert (version, op) == (0x04, EXECUTE)
        found.append(stream)
        sent = sent[9 + length :]
    return found


def asked(values: list[bytes]) -> tuple[CqlExchange, Places, list[int]]:
    """A conversation in which each value was asked for."""
    exchange, places = prepared(), Places([len(one) for one in values])
    wanted = {n: Wanted(b"key%d" % n) for n in range(len(values))}
    return exchange, places, streams_of(ask(exchange, wanted, places))


def test_a_conversation_begins_with_startup_and_the_statement() -> None:
    exchange = CqlExchange(STATEMENT)
    options = b"\x00\x01" + string(b"CQL_VERSION") + string(b"3.0.0")
    assert exchange.greeting() == frame(0, STARTUP, options, 0x04)

    heard = hear(exchange, [frame(0, READY, b"")])

    statement = struct.pack(">i", len(STATEMENT)) + STATEMENT.encode()
    assert heard.sent == frame(0, PREPARE, statement, 0x04)
    with pytest.raises(ValueError, match="not ready"):
        exchange.request(0, Wanted(b"k"), None)


def test_a_password_is_sent_where_the_cluster_wants_one() -> None:
    exchange = CqlExchange(STATEMENT, user="me", password="secret")
    wants = frame(0, AUTHENTICATE, string(b"o.a.c.auth.PasswordAuthenticator"))

    first = hear(exchange, [wants])
    second = hear(exchange, [frame(0, SUCCESS, value(None))])

    token = value(b"\0me\0secret")
    assert first.sent == frame(0, RESPONSE, token, 0x04)
    assert second.sent[4] == PREPARE
    assert "secret" not in repr(exchange)


def test_a_refusal_of_the_cluster_is_reported() -> None:
    unnamed, wrong = CqlExchange(STATEMENT), CqlExchange("SELECT", user="u")
    hear(unnamed, [frame(0, AUTHENTICATE, string(b"x"))])
    hear(wrong, [error(0, 0x0100, b"Provided username u and/or password incorrect")])

    assert "wants a user and a password" in unnamed.refusal
    assert wrong.refusal.startswith("Provided username")


def test_a_request_executes_the_statement_with_the_key() -> None:
    sent = prepared().request(0, Wanted(b"key"), None)

    body = string(NAME) + struct.pack(">HBH", 0x000A, 0x03, 1) + value(b"key")
    assert sent == frame(1, EXECUTE, body, 0x04)


def test_a_reply_cut_at_any_byte_is_the_same() -> None:
    values = [b"one", b"", b"three"]
    _, _, streams = asked(values)
    stream = b"".join(map(row, streams, values))
    for at in range(len(stream) + 1):
        exchange, places, _ = asked(values)

        heard = hear(exchange, cut(stream, [at]))

        assert (heard.done, heard.failed) == ([0, 1, 2], [])
        assert [bytes(places.of(n)) for n in range(3)] == values
        assert exchange.pending() == []


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(range(6)),
    st.lists(st.integers(0, 3 * len(BLOB)), max_size=10),
    st.booleans(),
)
def test_rows_arrive_in_any_order_and_fill_their_places(
    order: list[int], cuts: list[int], described: bool
) -> None:
    values = [b"one", b"", BLOB, b"x" * 9000, b"five", BLOB[:70_000]]
    exchange, places, streams = asked(values)
    more = (b"more",) * described
    text = DESCRIBED if described else b""

    heard = hear(
        exchange,
        cut(
            b"".join(row(streams[n], values[n], *more, described=text) for n in order),
            cuts,
        ),
    )

    assert heard.done == order
    assert [bytes(places.of(n)) for n in range(6)] == values
    places.check_guards()


def test_streams_are_used_again() -> None:
    exchange = prepared(capacity=2)
    for number in range(10):
        [stream] = streams_of(exchange.request(number, Wanted(b"k"), None))
        assert hear(exchange, [row(stream, b"value")]).done == [number]
    exchange.request(10, Wanted(b"k"), None)
    exchange.request(11, Wanted(b"k"), None)
    with pytest.raises(ValueError, match="no stream"):
        exchange.request(12, Wanted(b"k"), None)
    assert len(exchange.loose) == 10
    assert CqlExchange(STATEMENT, capacity=1 << 20).capacity == STREAMS_MAX - 1


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (no_row, Fault.MISSING),
        (lambda stream: row(stream, None), Fault.MISSING),
        (lambda stream: row(stream, b"ab"), Fault.CHANGED),
        (lambda stream: row(stream, BLOB), Fault.CHANGED),
        (lambda stream: row(stream, b"ab", b"c", described=DESCRIBED), Fault.CHANGED),
        (lambda stream: error(stream, 0x1001), Fault.BUSY),
        (lambda stream: error(stream, 0x1200), Fault.FAILED),
        (lambda stream: error(stream, 0x2100), Fault.DENIED),
        (lambda stream: error(stream, 0x2200), Fault.REFUSED),
    ],
)
def test_a_request_that_fails_fails_alone(reply, fault) -> None:
    exchange, places, streams = asked([b"abc", b"def"])
    stream = reply(streams[0]) + row(streams[1], b"def")

    heard = hear(exchange, cut(stream, range(0, len(stream), 7)))

    assert [(one.number, one.fault) for one in heard.failed] == [(0, fault)]
    assert heard.done == [1]
    assert bytes(places.of(1)) == b"def"
    places.check_guards()


def test_a_statement_that_was_forgotten_is_prepared_again() -> None:
    exchange, places, streams = asked([b"abc", b"def"])

    first = hear(exchange, [error(streams[0], 0x2500) + error(streams[1], 0x2500)])
    again = hear(exchange, [PREPARED.replace(NAME, b"\x09\x08\x07\x06")])
    heard = hear(exchange, [row(streams[1], b"def") + row(streams[0], b"abc")])

    assert first.sent.count(STATEMENT.encode()) == 1
    assert streams_of(again.sent) == streams
    assert b"\x09\x08\x07\x06" in again.sent
    assert (heard.done, heard.failed) == ([1, 0], [])
    assert bytes(places.of(0)) == b"abc"


@pytest.mark.parametrize("heard_before", [0, 9, 25, 50_000, len(BLOB)])
def test_a_late_row_is_discarded_once_its_place_was_given_up(heard_before: int) -> None:
    exchange, places, streams = asked([BLOB, b"next"])
    stream = row(streams[0], BLOB) + row(streams[1], b"next")
    hear(exchange, [stream[:heard_before]])

    exchange.abandon(0)
    places.of(0)[:] = bytes(len(BLOB))
    heard = hear(exchange, [stream[heard_before:]])

    assert (heard.done, heard.failed) == ([1], [])
    assert not any(places.of(0))
    places.check_guards()


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        frame(1, RESULT, b"", version=0x85),
        struct.pack(">BBhBi", 0x84, 0, 1, RESULT, -1),
        struct.pack(">BBhBi", 0x84, 1, 1, RESULT, 4) + b"abcd",
        frame(7, RESULT, struct.pack(">i", 1)),
        frame(1, RESULT, struct.pack(">iiiii", 2, NO_METADATA, 1, 1, 999)),
        frame(1, RESULT, struct.pack(">iii", 2, GLOBAL, 1) + b"\xff\xff"),
        frame(1, READY, b""),
        frame(0, 0x55, b""),
    ],
)
def test_an_invalid_reply_ends_the_conversation(stream: bytes) -> None:
    exchange, places, _ = asked([b"abc"])

    with pytest.raises(ExchangeError):
        hear(exchange, [stream])
    places.check_guards()


def test_unrequested_events_are_ignored() -> None:
    exchange, _, streams = asked([b"abc"])

    heard = hear(exchange, [frame(-1, 0x0C, b"event") + row(streams[0], b"abc")])

    assert heard.done == [0]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_damaged_bytes_never_leave_their_places(
    damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    values = [b"one", b"x" * 40, b"three"]
    exchange, places, streams = asked(values)
    stream = bytearray(
        row(streams[0], values[0])
        + row(streams[1], values[1], b"more", described=DESCRIBED)
        + row(streams[2], values[2])
    )
    for at, byte in damage:
        stream[at % len(stream)] = byte

    with contextlib.suppress(ExchangeError):
        hear(exchange, cut(bytes(stream), cuts))
    places.check_guards()
