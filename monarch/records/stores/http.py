"""HTTP/1.1 GET with Range and If-Match, one request at a time on a connection.

Sources: RFC 9112 (messages), RFC 9110 (ranges, conditional requests). S3 and compatible
servers return the cause of an error as XML; its code and message are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final
from urllib.parse import quote

from xxhash import xxh3_128_digest

from monarch.records.stores.exchange import (
    ExchangeError,
    Failure,
    Fault,
    Replies,
    Slot,
    Wanted,
)

Headers = Mapping[str, str]
Signer = Callable[[str, Headers], Headers]
"""Returns the headers to add to a request for a quoted path."""

SAFE: Final = "/-_.~"
"""Characters, besides letters and digits, that are not quoted in paths of S3."""
ERROR_BYTES_MAX: Final = 1 << 14
LENGTH_MAX: Final = 1 << 48

_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d\d\d)(?: .*)?")
_FIELDS: Final = re.compile(rb"(?:[^\r\n:]+:[^\r\n]*\r\n){0,100}")
"""The fields of a head, 100 at most."""
_FIELD: Final = re.compile(
    rb"^(content-length|content-range|transfer-encoding|etag|connection|location|"
    rb"retry-after)[ \t]*:[ \t]*([^\r\n]*?)[ \t]*\r$",
    re.IGNORECASE | re.MULTILINE,
)
"""The fields that are used."""
_CODE: Final = re.compile(rb"<Code>([^<]{1,200})</Code>")
_MESSAGE: Final = re.compile(rb"<Message>([^<]{1,500})</Message>")
_NO_RANGES: Final = "the server does not support range requests; use a server that does"
_OK, _PARTIAL, _NO_CONTENT, _NOT_MODIFIED = 200, 206, 204, 304
_NOT_FOUND, _PRECONDITION_FAILED = 404, 412
_FAULTS: Final = {
    301: Fault.MOVED,
    307: Fault.MOVED,
    308: Fault.MOVED,
    401: Fault.DENIED,
    403: Fault.DENIED,
    404: Fault.MISSING,
    408: Fault.FAILED,
    410: Fault.MISSING,
    412: Fault.CHANGED,
    416: Fault.CHANGED,
    429: Fault.BUSY,
    500: Fault.FAILED,
    502: Fault.FAILED,
    503: Fault.BUSY,
    504: Fault.FAILED,
}


class Tags(Enum):
    """The meaning of an object's identity in an index."""

    TEXT = "its ETag"
    MD5 = "the 16 bytes of which its ETag has the digits"
    DIGEST = "xxh3_128 of its ETag"


class _State(Enum):
    HEAD = auto()
    BODY = auto()
    CHUNK = auto()
    CHUNK_BODY = auto()
    CHUNK_END = auto()
    TRAILER = auto()


class HttpExchange(Replies):
    """A conversation with one HTTP server.

    Args:
        host: value of the Host header, with the port if it is not the default one.
        prefix: quoted prefix of the path of each key, such as "/bucket/".
        sign: returns headers that authorize a request.
        tags: the meaning of identities.
    """

    capacity = 1

    def __init__(
        self,
        host: str,
        prefix: str = "/",
        sign: Signer | None = None,
        tags: Tags = Tags.TEXT,
    ) -> None:
        super().__init__()
        self._tags = tags
        self.ready = True
        self._host, self._prefix, self._sign = host, prefix, sign
        self._slot: Slot | None = None
        self._state = _State.HEAD
        self._status = 0
        self._headers: dict[str, str] = {}
        self._sink = _Sink(None)

    def __repr__(self) -> str:
        return f"<HttpExchange with {self._host}>"

    @property
    def load(self) -> int:
        """Number of requests in flight."""
        return int(self._slot is not None)

    def greeting(self) -> bytes:
        """Return the first bytes to send: none."""
        return b""

    def request(self, number: int, wanted: Wanted, place: memoryview | None) -> bytes:
        """Return the bytes of a request.

        Raises:
            ValueError: another one is in flight.
        """
        if self._slot is not None:
            raise ValueError("another request is in flight")
        self._slot = Slot(number, wanted, place)
        path = self._prefix + quote(wanted.key, safe=SAFE)
        headers = {"Host": self._host}
        if not wanted.whole and wanted.length > 0:
            last = wanted.offset + wanted.length - 1
            headers["Range"] = f"bytes={wanted.offset}-{last}"
        if wanted.identity and self._tags is not Tags.DIGEST:
            headers["If-Match"] = self._tag_of(wanted.identity)
        if self._sign is not None:
            headers |= self._sign(path, headers)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

    def abandon(self, number: int) -> None:
        """Discard the payload of a request."""
        slot = self._slot
        if slot is not None and slot.number == number:
            slot.keeps, slot.place = False, None
            self._sink = _Sink(None)
            self._inbox.discard()

    def pending(self) -> list[int]:
        """Return the number of the request in flight."""
        slot = self._slot
        return [slot.number] if slot is not None and slot.keeps else []

    def advance(self, count: int) -> bytes:
        """Process received bytes; the response is always empty.

        Raises:
            ExchangeError: the received bytes are no valid reply.
        """
        self._inbox.add(count)
        while self._STEPS[self._state](self):
            pass
        return b""

    # -- the head -----------------------------------------------------------------

    def _take_head(self) -> bool:
        head = self._inbox.head()
        if head is None:
            if begun := self._inbox.begun():
                _parts_of(begun)  # detects an invalid reply, which may never end
            return False
        self._status, fields = _parts_of(head)
        if self._slot is None:
            raise ExchangeError("unexpected reply")
        self._headers = {
            name.decode().lower(): value.decode("latin-1")
            for name, value in _FIELD.findall(fields)
        }
        self._begin_body()
        return True

    def _begin_body(self) -> None:
        """Choose the destination of the body, after the head is complete."""
        if self._status < _OK:  # an interim reply; the final one follows
            self._state = _State.HEAD
            return
        headers = self._headers
        self.ended = headers.get("connection", "").lower() == "close"
        if "chunked" in headers.get("transfer-encoding", "").lower():
            self._sink = self._sink_for(None)
            self._state = _State.CHUNK
            return
        length = self._length()
        self._sink = self._sink_for(length)
        self._inbox.expect(length, self._sink.next(length))
        self._state = _State.BODY

    def _length(self) -> int:
        if self._status in (_NO_CONTENT, _NOT_MODIFIED):
            return 0
        text = self._headers.get("content-length", "")
        if not text.isdecimal() or int(text) > LENGTH_MAX:
            raise ExchangeError("a reply does not say how long it is")
        return int(text)

    def _sink_for(self, length: int | None) -> _Sink:
        """Return the destination of the body; for an error, a buffer for its text."""
        assert self._slot is not None
        slot = self._slot
        if not slot.keeps:
            return _Sink(None)
        reason = self._mismatch(slot.wanted)
        if self._status in (_OK, _PARTIAL) and not reason:
            if length is None:
                return _Sink(slot.place, grows=slot.place is None)
            try:
                return _Sink(slot.accept(length))
            except ValueError as error:
                reason = str(error)
        if self._status in (_OK, _PARTIAL):
            fault = Fault.REFUSED if reason == _NO_RANGES else Fault.CHANGED
            self._fail(fault, reason)
            return _Sink(None)
        return _Sink(None, grows=True, limit=ERROR_BYTES_MAX)

    def _mismatch(self, wanted: Wanted) -> str:
        """Return why a successful reply does not match its request; "": it does."""
        tag = self._headers.get("etag", "")
        if wanted.identity and tag and not self._is_of(tag, wanted.identity):
            return "it was changed since its index was made"
        is_part = not wanted.whole and wanted.length > 0
        if is_part and self._status == _PARTIAL:
            given = self._headers.get("content-range", "")
            last = wanted.offset + wanted.length - 1
            if not given.startswith(f"bytes {wanted.offset}-{last}/"):
                return f"the server gives {given or 'no range'}"
        if is_part and self._status == _OK and wanted.offset:
            return _NO_RANGES
        return ""

    def _tag_of(self, identity: bytes) -> str:
        """Return the ETag of an identity."""
        if self._tags is Tags.MD5:
            return f'"{identity.hex()}"'
        return identity.decode("latin-1")

    def _is_of(self, tag: str, identity: bytes) -> bool:
        if self._tags is Tags.DIGEST:
            return xxh3_128_digest(tag.encode("latin-1")) == identity
        return tag == self._tag_of(identity)

    # -- the body -----------------------------------------------------------------

    def _take_body(self) -> bool:
        if not self._inbox.filled():
            return False
        self._end_reply()
        return True

    def _take_chunk(self) -> bool:
        line = self._inbox.line()
        if line is None:
            return False
        try:
            length = int(line.partition(b";")[0], 16)
        except ValueError:
            length = -1
        if not 0 <= length <= LENGTH_MAX:
            raise ExchangeError("a chunk of a reply is not valid")
        if not length:
            self._state = _State.TRAILER
            return True
        try:
            self._inbox.expect(length, self._sink.next(length))
        except ValueError as error:
            self._fail(Fault.CHANGED, str(error))
            self._sink = _Sink(None)
            self._inbox.expect(length, None)
        self._state = _State.CHUNK_BODY
        return True

    def _take_chunk_body(self) -> bool:
        if not self._inbox.filled():
            return False
        self._state = _State.CHUNK_END
        return True

    def _take_chunk_end(self) -> bool:
        end = self._inbox.take(2)
        if end is None:
            return False
        if end != b"\r\n":
            raise ExchangeError("a chunk is longer than the reply says")
        self._state = _State.CHUNK
        return True

    def _take_trailer(self) -> bool:
        line = self._inbox.line()
        if line is None:
            return False
        if not line:
            self._end_reply()
        return True

    def _end_reply(self) -> None:
        slot, sink = self._slot, self._sink
        assert slot is not None
        self._state = _State.HEAD
        self._slot, self._sink = None, _Sink(None)
        if not slot.keeps:
            return
        number = slot.number
        if self._status not in (_OK, _PARTIAL):
            self._slot = slot
            self._fail(_FAULTS.get(self._status, Fault.REFUSED), self._told(sink))
            self._slot = None
        elif not sink.is_full:
            text = f"it has {sink.length} bytes, more were expected"
            self.failed.append(Failure(number, Fault.CHANGED, text))
        else:
            kept = sink.kept
            if kept is not None:
                self.loose[number] = kept
            self.done.append(number)

    def _told(self, sink: _Sink) -> str:
        """Return the server's description of an error."""
        body = bytes(sink.kept or b"")
        code, message = _CODE.search(body), _MESSAGE.search(body)
        said = [found[1].decode(errors="replace") for found in (code, message) if found]
        if self._status == _PRECONDITION_FAILED:
            said.append("it was changed since its index was made")
        elif self._status == _NOT_FOUND and not code:
            said = ["no such object"]
        return f"HTTP {self._status}" + (f": {', '.join(said)}" if said else "")

    def _fail(self, fault: Fault, text: str) -> None:
        """Note that the request has failed, and discard the rest of its reply."""
        assert self._slot is not None
        if not self._slot.keeps:
            return
        self._slot.keeps = False
        target = self._headers.get("location", "") if fault is Fault.MOVED else ""
        if fault is Fault.BUSY and (pause := self._headers.get("retry-after")):
            target = pause
        number = self._slot.number
        self.failed.append(Failure(number, fault, text, target))

    _STEPS: Final = {
        _State.HEAD: _take_head,
        _State.BODY: _take_body,
        _State.CHUNK: _take_chunk,
        _State.CHUNK_BODY: _take_chunk_body,
        _State.CHUNK_END: _take_chunk_end,
        _State.TRAILER: _take_trailer,
    }


def _parts_of(head: bytes) -> tuple[int, bytes]:
    """Return the status and the fields of a head."""
    line, _, fields = head.partition(b"\r\n")
    found = _STATUS.fullmatch(line)
    if found is None:
        raise ExchangeError("the server does not speak HTTP/1.1")
    if _FIELDS.fullmatch(fields) is None:
        raise ExchangeError("the head of a reply is not valid")
    return int(found[1]), fields


class _Sink:
    """The destination of a body, in one piece or in chunks.

    Args:
        target: the place; None: the body is discarded, unless it grows.
        grows: the body is kept, and its length is not known in advance.
        limit: maximum bytes that are kept of a growing body.
    """

    def __init__(
        self,
        target: memoryview | bytearray | None,
        *,
        grows: bool = False,
        limit: int = LENGTH_MAX,
    ) -> None:
        self._target = None if target is None else memoryview(target)
        self._whole = target if isinstance(target, bytearray) else None
        self._parts: list[bytearray] | None = [] if grows else None
        self._limit = limit
        self.length = 0

    @property
    def kept(self) -> bytearray | None:
        """The body, if it is not in the place of a request; None: nothing is kept."""
        return self._whole if self._parts is None else bytearray().join(self._parts)

    @property
    def is_full(self) -> bool:
        """Whether the place is filled."""
        return self._target is None or self.length == len(self._target)

    def next(self, length: int) -> memoryview | None:
        """Return the destination of the next bytes; None: discard them.

        Raises:
            ValueError: they do not fit the place.
        """
        start, self.length = self.length, self.length + length
        if self._parts is not None:
            if self.length > self._limit:
                return None
            self._parts.append(bytearray(length))
            return memoryview(self._parts[-1])
        if self._target is None:
            return None
        if self.length > len(self._target):
            raise ValueError(f"it has more than {len(self._target)} bytes")
        return self._target[start : self.length]
