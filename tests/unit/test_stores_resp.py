"""The RESP half of a conversation with Redis: requests, and replies however cut."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.records.stores.exchange import ExchangeError, Fault, Wanted
from monarch.records.stores.resp import RespExchange, command
from support.exchanges import Places, ask, cut, hear

LARGE = 200_000
VALUES = [b"one", b"", b"\r\n$3\r\n", random.Random(1).randbytes(LARGE), b"x" * 9000]


def reply(value: bytes | None) -> bytes:
    """A bulk string, or none."""
    return b"$-1\r\n" if value is None else b"$%d\r\n%b\r\n" % (len(value), value)


def asked(values: list[bytes]) -> tuple[RespExchange, Places]:
    """A conversation in which each value was asked for, by its number as key."""
    exchange, places = RespExchange(), Places([len(value) for value in values])
    ask(exchange, {n: Wanted(b"%d" % n) for n in range(len(values))}, places)
    return exchange, places


def check(places: Places, values: list[bytes]) -> None:
    """Each value is in its place, and nothing beside it."""
    assert [bytes(places.of(n)) for n in range(len(values))] == values
    places.check_guards()


def test_requests_are_arrays_of_bulk_strings() -> None:
    exchange = RespExchange()
    part = Wanted(b"k\r\n", offset=10, length=5, whole=False)

    assert exchange.request(0, Wanted(b"key"), None) == command(b"GET", b"key")
    assert exchange.request(1, part, None) == command(
        b"GETRANGE", b"k\r\n", b"10", b"14"
    )
    assert command(b"GET", b"key") == b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"
    assert exchange.pending() == [0, 1]


def test_a_reply_cut_at_any_byte_is_the_same() -> None:
    values = [b"one", b"", b"\r\n$3\r\n", b"four"]
    stream = b"".join(map(reply, values))
    for at in range(len(stream) + 1):
        exchange, places = asked(values)

        heard = hear(exchange, cut(stream, [at]))

        assert (heard.done, heard.failed) == ([0, 1, 2, 3], [])
        check(places, values)
    exchange, places = asked(values)
    assert hear(exchange, [bytes([byte]) for byte in stream]).done == [0, 1, 2, 3]
    check(places, values)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=8),
    st.lists(st.integers(0, 3 * LARGE), max_size=12),
)
def test_values_land_in_their_places_however_the_stream_is_cut(
    values: list[bytes], cuts: list[int]
) -> None:
    exchange, places = asked(values)

    heard = hear(exchange, cut(b"".join(map(reply, values)), cuts))

    assert heard.done == list(range(len(values)))
    assert exchange.pending() == []
    check(places, values)


def test_values_without_a_place_are_kept_by_number() -> None:
    exchange = RespExchange()
    ask(exchange, {7: Wanted(b"a"), 3: Wanted(b"b")}, None)

    heard = hear(exchange, [reply(b"seven") + reply(VALUES[3])])

    assert heard.done == [7, 3]
    assert exchange.loose == {7: bytearray(b"seven"), 3: bytearray(VALUES[3])}


@pytest.mark.parametrize(
    ("line", "fault", "target"),
    [
        (b"-LOADING Redis is loading the dataset in memory", Fault.AWAY, ""),
        (b"-MOVED 3999 10.0.0.1:6381", Fault.MOVED, "10.0.0.1:6381"),
        (b"-ASK 3999 10.0.0.1:6381", Fault.ASKED, "10.0.0.1:6381"),
        (b"-CLUSTERDOWN The cluster is down", Fault.AWAY, ""),
        (b"-NOAUTH Authentication required.", Fault.DENIED, ""),
        (b"-NOPERM no permissions", Fault.DENIED, ""),
        (b"-WRONGTYPE Operation against a key", Fault.REFUSED, ""),
        (b"-", Fault.REFUSED, ""),
    ],
)
def test_an_error_is_reported_with_its_kind_and_target(
    line: bytes, fault: Fault, target: str
) -> None:
    exchange, places = asked([b"abc", b"def"])

    heard = hear(exchange, [line + b"\r\n" + reply(b"def")])

    [failure] = heard.failed
    assert (failure.number, failure.fault, failure.target) == (0, fault, target)
    assert failure.text == line[1:].decode()
    assert heard.done == [1]
    assert bytes(places.of(1)) == b"def"


def test_a_missing_key_fails_alone() -> None:
    exchange, _ = asked([b"abc", b"def"])

    heard = hear(exchange, [reply(None) + reply(b"def")])

    assert [one.fault for one in heard.failed] == [Fault.MISSING]
    assert heard.done == [1]


@pytest.mark.parametrize("value", [b"ab", b"abcd", b"", bytes(LARGE)])
def test_a_value_of_another_length_is_not_the_indexed_one(value: bytes) -> None:
    exchange, places = asked([b"abc", b"def"])
    before = bytes(places.of(0))

    heard = hear(exchange, cut(reply(value) + reply(b"def"), range(0, LARGE, 999)))

    [failure] = heard.failed
    assert failure.fault is Fault.CHANGED
    assert f"{len(value)} bytes, 3 were expected" in failure.text
    assert bytes(places.of(0)) == before
    assert heard.done == [1]
    places.check_guards()


@pytest.mark.parametrize("heard_before", [0, 4, 50_000, LARGE + 8])
def test_a_late_value_is_discarded_once_its_place_was_given_up(
    heard_before: int,
) -> None:
    exchange, places = asked([VALUES[3], b"next"])
    stream = reply(VALUES[3]) + reply(b"next")
    hear(exchange, [stream[:heard_before]])

    exchange.abandon(0)
    places.of(0)[:] = bytes(LARGE)
    heard = hear(exchange, [stream[heard_before:]])

    assert heard.done == [1]
    assert not any(places.of(0))
    assert bytes(places.of(1)) == b"next"
    places.check_guards()


def test_a_greeting_names_user_and_database_and_is_answered_first() -> None:
    exchange = RespExchange(user="me", password="secret", database=3)
    assert exchange.greeting() == command(b"AUTH", b"me", b"secret") + command(
        b"SELECT", b"3"
    )
    exchange.request(0, Wanted(b"a"), None)
    ready = [exchange.ready]

    heard = hear(exchange, [b"+OK\r\n+OK\r\n" + reply(b"value")])

    assert [*ready, exchange.ready, RespExchange().ready] == [False, True, True]
    assert heard.done == [0]
    assert RespExchange(password="p").greeting() == command(b"AUTH", b"p")


def test_a_refused_greeting_is_reported() -> None:
    exchange = RespExchange(password="wrong")

    hear(exchange, [b"-WRONGPASS invalid username-password pair\r\n"])

    assert exchange.refusal == "WRONGPASS invalid username-password pair"
    assert "wrong" not in repr(exchange).lower()


def test_a_request_to_the_target_of_ask_is_preceded_by_asking() -> None:
    exchange, places = RespExchange(), Places([3, 3])
    one, two = Wanted(b"a", asking=True), Wanted(b"b")

    sent = ask(exchange, {0: one, 1: two}, places)
    heard = hear(exchange, [b"+OK\r\n" + reply(b"abc") + reply(b"def")])

    assert sent == command(b"ASKING") + command(b"GET", b"a") + command(b"GET", b"b")
    assert heard.done == [0, 1]


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"$12x\r\n",
        b"$-2\r\n",
        b"$999999999999\r\n",
        b"$3\r\nabcd\r\n",
        b":1\r\n",
        b"x" * 40_000,
    ],
)
def test_an_invalid_reply_ends_the_conversation(stream: bytes) -> None:
    exchange, places = asked([b"abc"])

    with pytest.raises(ExchangeError):
        hear(exchange, [stream])
    places.check_guards()


def test_an_unrequested_reply_ends_the_conversation() -> None:
    with pytest.raises(ExchangeError, match="unexpected reply"):
        hear(RespExchange(), [reply(b"x")])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_damaged_bytes_never_leave_their_places(
    damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    values = [b"one", b"", b"x" * 150, b"four"]
    stream = bytearray(b"".join(map(reply, values)))
    for at, byte in damage:
        stream[at % len(stream)] = byte
    exchange, places = asked(values)

    try:
        heard = hear(exchange, cut(bytes(stream), cuts))
    except ExchangeError:
        pass
    else:
        assert len({*heard.done, *(one.number for one in heard.failed)}) <= len(values)
    places.check_guards()
