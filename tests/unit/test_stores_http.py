"""Conversations with S3 by HTTP: requests, signatures, replies however cut."""

import contextlib
import hashlib
import random
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.records.stores.exchange import ExchangeError, Fault, Wanted
from monarch.records.stores.http import ERROR_BYTES_MAX, HttpExchange
from monarch.records.stores.sigv4 import Credentials, Request, SigV4
from support.exchanges import Heard, Places, cut, hear

BODY = random.Random(1).randbytes(150_000)
XML = (
    b"<?xml version='1.0'?><Error><Code>%b</Code><Message>because</Message>"
    b"<Resource>/b/k</Resource></Error>"
)


def reply(status: bytes, body: bytes, **headers: str) -> bytes:
    """A reply with its length."""
    given = {"Content-Length": str(len(body)), **headers}
    lines = "".join(f"{n.replace('_', '-')}: {v}\r\n" for n, v in given.items())
    return b"HTTP/1.1 %b\r\n%b\r\n%b" % (status, lines.encode(), body)


def chunked(status: bytes, *parts: bytes) -> bytes:
    """A reply in chunks."""
    head = b"HTTP/1.1 %b\r\nTransfer-Encoding: chunked\r\n\r\n" % status
    body = b"".join(b"%x;x=1\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + body + b"0\r\nTrailer: 1\r\n\r\n"


def play(
    stream: bytes, wanted: Wanted, length: int, cuts: list[int]
) -> tuple[HttpExchange, Places, Heard]:
    """One request, with its reply in pieces."""
    exchange, places = HttpExchange("host"), Places([length])
    exchange.request(0, wanted, places.of(0))
    return exchange, places, hear(exchange, cut(stream, cuts))


def test_requests_quote_the_key_and_name_the_range_and_the_version() -> None:
    whole, part = HttpExchange("h:9000", "/bucket/"), HttpExchange("h", "/")

    assert whole.request(0, Wanted("a b/ü+&".encode()), None) == (
        b"GET /bucket/a%20b/%C3%BC%2B%26 HTTP/1.1\r\nHost: h:9000\r\n\r\n"
    )
    assert part.request(0, Wanted(b"k", 10, 5, False, b'"tag"'), None) == (
        b'GET /k HTTP/1.1\r\nHost: h\r\nRange: bytes=10-14\r\nIf-Match: "tag"\r\n\r\n'
    )
    with pytest.raises(ValueError, match="in flight"):
        part.request(1, Wanted(b"l"), None)


def test_the_signer_receives_path_and_headers() -> None:
    seen = []

    def sign(path: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        seen.append((path, dict(headers)))
        return {"Authorization": "me"}

    sent = HttpExchange("h", "/b/", sign).request(0, Wanted(b"k"), None)

    assert seen == [("/b/k", {"Host": "h"})]
    assert sent.endswith(b"Authorization: me\r\n\r\n")


@pytest.mark.parametrize(
    "stream",
    [
        reply(b"200 OK", b"hello", ETag='"tag"'),
        reply(b"200", b"hello"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"200 OK", b"hello"),
        chunked(b"200 OK", b"he", b"l", b"lo"),
    ],
)
def test_a_body_cut_at_any_byte_is_the_same(stream: bytes) -> None:
    for at in range(len(stream) + 1):
        exchange, places, heard = play(stream, Wanted(b"k", identity=b'"tag"'), 5, [at])

        assert (heard.done, heard.failed) == ([0], [])
        assert bytes(places.of(0)) == b"hello"
        assert exchange.pending() == []
        places.check_guards()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, len(BODY)), max_size=5),
    st.lists(st.integers(0, len(BODY) + 400), max_size=10),
)
def test_a_long_body_lands_in_its_place_however_it_is_sent(
    chunks: list[int], cuts: list[int]
) -> None:
    parts = [part for part in cut(BODY, chunks) if part]
    for stream in (reply(b"200 OK", BODY), chunked(b"200 OK", *parts)):
        _, places, heard = play(stream, Wanted(b"k"), len(BODY), cuts)

        assert heard.done == [0]
        assert bytes(places.of(0)) == BODY
        places.check_guards()


def test_a_connection_serves_one_request_after_the_other() -> None:
    exchange, places = HttpExchange("h"), Places([5, 3])
    for number, body in enumerate((b"hello", b"abc")):
        exchange.request(number, Wanted(b"k"), places.of(number))
        assert hear(exchange, [reply(b"200 OK", body)]).done == [number]
    assert not exchange.ended

    exchange.request(0, Wanted(b"k"), places.of(0))
    hear(exchange, [reply(b"200 OK", b"again", Connection="close")])
    assert exchange.ended


def test_bodies_without_a_place_are_kept() -> None:
    for stream in (reply(b"200 OK", BODY), chunked(b"200 OK", BODY[:9], BODY[9:])):
        exchange = HttpExchange("h")
        exchange.request(4, Wanted(b"k"), None)

        assert hear(exchange, [stream]).done == [4]
        assert exchange.loose == {4: bytearray(BODY)}


def test_only_the_requested_range_is_accepted() -> None:
    part = Wanted(b"k", 10, 5, whole=False)
    good = reply(b"206 Partial Content", b"hello", Content_Range="bytes 10-14/99")
    other = reply(b"206 Partial Content", b"hello", Content_Range="bytes 0-4/99")
    whole = reply(b"200 OK", b"hello")

    assert play(good, part, 5, [])[2].done == [0]
    for stream, fault, words in (
        (other, Fault.CHANGED, "bytes 0-4/99"),
        (whole, Fault.REFUSED, "range requests"),  # a new listing would not help
    ):
        _, places, heard = play(stream, part, 5, [])
        [failure] = heard.failed
        assert (failure.fault, heard.done) == (fault, [])
        assert words in failure.text
        assert set(places.bytes) == {0xA5}


def test_another_version_is_not_put_into_the_place() -> None:
    wanted = Wanted(b"k", identity=b'"old"')

    _, places, heard = play(reply(b"200 OK", b"hello", ETag='"new"'), wanted, 5, [])

    assert [one.fault for one in heard.failed] == [Fault.CHANGED]
    assert set(places.bytes) == {0xA5}


@pytest.mark.parametrize("body", [b"hell", b"hello!", b"", BODY])
def test_another_length_is_another_object(body: bytes) -> None:
    streams = (reply(b"200 OK", body), chunked(b"200 OK", *[body] * bool(body)))
    for stream in streams:
        exchange, places, heard = play(stream, Wanted(b"k"), 5, [3, 60, 70])

        assert [one.fault for one in heard.failed] == [Fault.CHANGED]
        assert heard.done == []
        places.check_guards()
        exchange.request(0, Wanted(b"k"), places.of(0))
        assert hear(exchange, [reply(b"200 OK", b"hello")]).done == [0]


@pytest.mark.parametrize(
    ("status", "code", "fault"),
    [
        (b"403 Forbidden", b"SignatureDoesNotMatch", Fault.DENIED),
        (b"401 Unauthorized", b"", Fault.DENIED),
        (b"404 Not Found", b"NoSuchKey", Fault.MISSING),
        (b"412 Precondition Failed", b"PreconditionFailed", Fault.CHANGED),
        (b"416 Range Not Satisfiable", b"InvalidRange", Fault.CHANGED),
        (b"503 Slow Down", b"SlowDown", Fault.BUSY),
        (b"429 Too Many Requests", b"", Fault.BUSY),
        (b"500 Internal Server Error", b"InternalError", Fault.FAILED),
        (b"301 Moved Permanently", b"PermanentRedirect", Fault.MOVED),
        (b"400 Bad Request", b"ExpiredToken", Fault.REFUSED),
    ],
)
def test_an_error_is_reported_with_the_message_of_the_store(
    status: bytes, code: bytes, fault: Fault
) -> None:
    body = XML % code if code else b""
    for stream in (reply(status, body), chunked(status, *[body] * bool(body))):
        exchange, places, heard = play(stream, Wanted(b"k"), 5, [10, 90])

        [failure] = heard.failed
        assert failure.fault is fault
        assert failure.text.startswith(f"HTTP {status[:3].decode()}")
        assert code.decode() in failure.text
        assert ("because" in failure.text) == bool(code)
        assert exchange.pending() == []
        places.check_guards()


def test_a_pause_or_another_location_is_reported_with_the_error() -> None:
    busy = play(reply(b"503 X", b"", Retry_After="7"), Wanted(b"k"), 5, [])[2]
    moved = play(reply(b"307 X", b"", Location="http://b.host/k"), Wanted(b"k"), 5, [])[
        2
    ]

    assert busy.failed[0].target == "7"
    assert moved.failed[0].target == "http://b.host/k"


def test_a_long_error_is_not_kept_whole() -> None:
    stream = chunked(b"500 X", *[b"x" * 9000] * 9)
    assert ERROR_BYTES_MAX < 9 * 9000

    assert play(stream, Wanted(b"k"), 5, [])[2].failed[0].text == "HTTP 500"


@pytest.mark.parametrize("heard_before", [0, 10, 60, 100_000])
def test_a_late_body_is_discarded_once_its_place_was_given_up(
    heard_before: int,
) -> None:
    stream = reply(b"200 OK", BODY)
    exchange, places, _ = play(stream[:heard_before], Wanted(b"k"), len(BODY), [])

    exchange.abandon(0)
    places.of(0)[:] = bytes(len(BODY))
    heard = hear(exchange, [stream[heard_before:]])

    assert (heard.done, heard.failed) == ([], [])
    assert not any(places.of(0))
    exchange.request(1, Wanted(b"k"), None)
    assert hear(exchange, [reply(b"200 OK", b"next")]).done == [1]


@pytest.mark.parametrize(
    "stream",
    [
        b"+PONG\r\n",
        b"HTTP/2 200\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 4000,
        b"x" * 40_000,
    ],
)
def test_an_invalid_reply_ends_the_conversation(stream: bytes) -> None:
    with pytest.raises(ExchangeError):
        play(stream, Wanted(b"k"), 5, [])


def test_an_unrequested_reply_ends_the_conversation() -> None:
    with pytest.raises(ExchangeError, match="unexpected reply"):
        hear(HttpExchange("h"), [reply(b"200 OK", b"x")])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([reply(b"200 OK", b"hello"), chunked(b"200 OK", b"hel", b"lo")]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=5),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_damaged_bytes_never_leave_their_place(
    good: bytes, damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    stream = bytearray(good)
    for at, byte in damage:
        stream[at % len(stream)] = byte
    exchange, places = HttpExchange("h"), Places([5])
    exchange.request(0, Wanted(b"k"), places.of(0))

    with contextlib.suppress(ExchangeError):
        hear(exchange, cut(bytes(stream), cuts))
    places.check_guards()


# -- signatures --------------------------------------------------------------------

# The example of the S3 API Reference: GET of an object with a range.
DAY = datetime(2013, 5, 24, tzinfo=UTC)
EXAMPLE = Credentials(
    "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)
ANY = Request("GET", "/k", "", {"Host": "h"})
EMPTY = hashlib.sha256(b"").hexdigest()


def test_the_signature_is_that_of_the_published_example() -> None:
    headers = {"Host": "examplebucket.s3.amazonaws.com", "Range": "bytes=0-9"}
    request = Request("GET", "/test.txt", "", headers, EMPTY)

    added = SigV4(EXAMPLE, "us-east-1").headers(request, DAY)

    assert added["x-amz-date"] == "20130524T000000Z"
    assert added["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
        "aws4_request, SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_credentials_are_not_shown_and_a_token_is_signed() -> None:
    signer = SigV4(Credentials("key", "hush", "tok"), "r")

    added = signer.headers(ANY, DAY)

    assert added["x-amz-security-token"] == "tok"
    assert "x-amz-security-token" in added["Authorization"]
    assert not any(word in repr(signer) for word in ("hush", "tok"))


def test_the_key_of_a_day_is_not_that_of_the_next() -> None:
    signer = SigV4(EXAMPLE, "us-east-1")
    later = datetime(2013, 5, 25, tzinfo=UTC)

    first = signer.headers(ANY, DAY)
    signer.headers(ANY, later)

    assert signer.headers(ANY, DAY) == first
    assert SigV4(EXAMPLE, "us-east-1").headers(ANY, later) != first
