"""Cassandra and ScyllaDB: one row per request, by CQL's binary protocol, version 4.

Source: "CQL BINARY PROTOCOL v4" (native_protocol_v4.spec of Apache Cassandra). A frame
names a stream, so that replies may arrive in any order. A statement is prepared once
per connection, and again if the server has forgotten it.
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum, auto
from typing import Final

from monarch.records.stores.cql_bodies import (
    HAS_MORE,
    NO_METADATA,
    PREPARED,
    ROWS,
    error_of,
    result_of,
    statement_of,
    values,
)
from monarch.records.stores.exchange import (
    ExchangeError,
    Failure,
    Fault,
    Replies,
    Slot,
    Wanted,
)

STREAMS_MAX: Final = 32768
BODY_BYTES_MAX: Final = 256 << 20
_HEAD: Final = struct.Struct(">BBhBi")
_INT: Final = struct.Struct(">i")
_INTS: Final = struct.Struct(">ii")
_SHORT: Final = struct.Struct(">H")
_REQUEST, _REPLY = 0x04, 0x84
_COMPRESSED: Final = 0x01
_WITH_VALUES, _SKIP_METADATA = 0x01, 0x02
LOCAL_ONE: Final = 0x000A
UNPREPARED: Final = 0x2500
_EVENTS: Final = -1
"""The stream of unsolicited frames."""


class _Op(IntEnum):
    ERROR = 0x00
    STARTUP = 0x01
    READY = 0x02
    AUTHENTICATE = 0x03
    RESULT = 0x08
    PREPARE = 0x09
    EXECUTE = 0x0A
    AUTH_CHALLENGE = 0x0E
    AUTH_RESPONSE = 0x0F
    AUTH_SUCCESS = 0x10


# Faults of error codes; other codes are final.
_FAULTS: Final = {
    0x0000: Fault.FAILED,
    0x0100: Fault.DENIED,
    0x1000: Fault.FAILED,
    0x1001: Fault.BUSY,
    0x1002: Fault.FAILED,
    0x1200: Fault.FAILED,
    0x1300: Fault.FAILED,
    0x2100: Fault.DENIED,
}


class _State(Enum):
    HEAD = auto()
    RESULT = auto()
    ROWS = auto()
    COLUMN = auto()
    PAYLOAD = auto()
    REST = auto()
    COLLECT = auto()


class CqlExchange(Replies):
    """A conversation with one node of a cluster.

    Args:
        statement: selects one column of one row by one key.
        user: for the authenticator of the cluster; "": none is expected.
        capacity: maximum requests in flight.
    """

    def __init__(
        self,
        statement: str,
        *,
        user: str = "",
        password: str = "",
        capacity: int = 1024,
        consistency: int = LOCAL_ONE,
    ) -> None:
        super().__init__()
        self.capacity = min(capacity, STREAMS_MAX - 1)
        self._statement = statement.encode()
        self._token = f"\0{user}\0{password}".encode() if user else b""
        self._consistency = consistency
        self._prepared = b""
        self._state = _State.HEAD
        self._slots: dict[int, Slot] = {}
        self._free = [*range(self.capacity, 0, -1)]
        self._waiting: list[int] = []  # streams to execute after the statement
        self._preparing = False
        self._stream, self._op, self._left = 0, 0, 0
        self._target: memoryview | bytearray | None = None
        self._body = bytearray()

    def __repr__(self) -> str:
        return f"<CqlExchange {len(self._slots)} in flight>"

    @property
    def ready(self) -> bool:
        """Whether the statement is prepared."""
        return bool(self._prepared)

    @property
    def load(self) -> int:
        """Number of requests in flight."""
        return len(self._slots)

    def greeting(self) -> bytes:
        """Return the first bytes to send."""
        options = b"\x00\x01" + _string(b"CQL_VERSION") + _string(b"3.0.0")
        return _frame(0, _Op.STARTUP, options)

    def request(self, number: int, wanted: Wanted, place: memoryview | None) -> bytes:
        """Return the bytes of a request.

        Raises:
            ValueError: too many are in flight, or the statement is not prepared yet.
        """
        if not self._free or not self._prepared:
            raise ValueError("no stream is free" if self._prepared else "not ready")
        stream = self._free.pop()
        self._slots[stream] = Slot(number, wanted, place)
        return self._execute(stream)

    def abandon(self, number: int) -> None:
        """Discard the payload of a request."""
        for stream, slot in self._slots.items():
            if slot.number == number:
                slot.keeps, slot.place = False, None
                if stream == self._stream and self._state is _State.PAYLOAD:
                    self._target = None
                    self._inbox.discard()

    def pending(self) -> list[int]:
        """Return the numbers of the requests in flight."""
        return [slot.number for slot in self._slots.values() if slot.keeps]

    def advance(self, count: int) -> bytes:
        """Process received bytes; return bytes to send in response.

        Raises:
            ExchangeError: the received bytes are no valid reply.
        """
        self._inbox.add(count)
        answers = b""
        while True:
            answer = self._STEPS[self._state](self)
            if answer is None:
                return answers
            answers += answer

    # -- frames -------------------------------------------------------------------
    # Each step returns bytes to send, or None if more bytes must arrive first.

    def _take_head(self) -> bytes | None:
        head = self._inbox.take(_HEAD.size)
        if head is None:
            return None
        version, flags, self._stream, self._op, self._left = _HEAD.unpack(head)
        if version != _REPLY:
            raise ExchangeError(f"the server speaks version {version & 0x7F} of CQL")
        if flags & _COMPRESSED or not 0 <= self._left <= BODY_BYTES_MAX:
            raise ExchangeError("the head of a frame is not valid")
        is_row = self._op == _Op.RESULT and self._stream in self._slots
        if is_row and self._left >= _INT.size + _INTS.size:
            self._state = _State.RESULT
        else:
            self._collect(b"")
        return b""

    def _collect(self, begun: bytes) -> None:
        """Collect the rest of the body behind the part that was already taken."""
        self._body = bytearray(begun) + bytearray(self._left)
        self._inbox.expect(self._left, memoryview(self._body)[len(begun) :])
        self._left, self._state = 0, _State.COLLECT

    def _take_result(self) -> bytes | None:
        """Read the kind of a result, its flags and the number of its columns."""
        head = self._inbox.take(_INT.size + _INTS.size)
        if head is None:
            return None
        self._left -= len(head)
        kind, flags, columns = struct.unpack(">iii", head)
        plain = flags & NO_METADATA and not flags & HAS_MORE and columns == 1
        if kind == ROWS and plain and self._left >= _INT.size:
            self._state = _State.ROWS
        else:
            self._collect(head)
        return b""

    def _take_rows(self) -> bytes | None:
        head = self._inbox.take(_INT.size)
        if head is None:
            return None
        self._left -= len(head)
        (rows,) = _INT.unpack(head)
        if rows and self._left >= _INT.size:
            self._state = _State.COLUMN
        else:
            self._fail(Fault.MISSING, "no such row")
            self._skip_rest()
        return b""

    def _take_column(self) -> bytes | None:
        head = self._inbox.take(_INT.size)
        if head is None:
            return None
        self._left -= len(head)
        (length,) = _INT.unpack(head)
        if length > self._left:
            raise ExchangeError("a value is longer than its frame")
        if length < 0:
            self._fail(Fault.MISSING, "the row has no value")
            self._skip_rest()
            return b""
        self._target = self._accept(length)
        target = None if self._target is None else memoryview(self._target)
        self._inbox.expect(length, target)
        self._left -= length
        self._state = _State.PAYLOAD
        return b""

    def _accept(self, length: int) -> memoryview | bytearray | None:
        """Return the destination of a value; None: discard it, as on a wrong length."""
        try:
            return self._slots[self._stream].accept(length)
        except ValueError as error:
            self._fail(Fault.CHANGED, str(error))
            return None

    def _take_payload(self) -> bytes | None:
        if not self._inbox.filled():
            return None
        slot = self._slots[self._stream]
        if slot.keeps and self._target is not None:
            number = slot.number
            if isinstance(self._target, bytearray):
                self.loose[number] = self._target
            self.done.append(number)
        self._target = None
        self._skip_rest()
        return b""

    def _skip_rest(self) -> None:
        """Skip the rest of the frame; its stream is free after that."""
        self._inbox.expect(self._left, None)
        self._left, self._state = 0, _State.REST

    def _take_rest(self) -> bytes | None:
        if not self._inbox.filled():
            return None
        self._release(self._stream)
        self._state = _State.HEAD
        return b""

    def _take_collected(self) -> bytes | None:
        if not self._inbox.filled():
            return None
        self._state = _State.HEAD
        body = bytes(self._body)
        self._body = bytearray()
        try:
            return self._answer(body)
        except (struct.error, IndexError) as error:
            raise ExchangeError("the body of a frame is not valid") from error

    def _release(self, stream: int) -> None:
        if self._slots.pop(stream, None) is not None:
            self._free.append(stream)

    def _fail(self, fault: Fault, text: str) -> None:
        slot = self._slots[self._stream]
        if slot.keeps:
            slot.keeps = False
            self.failed.append(Failure(slot.number, fault, text))

    # -- whole bodies -------------------------------------------------------------

    def _answer(self, body: bytes) -> bytes:
        """Process a body that is no plain row; return bytes to send in response."""
        if self._stream == _EVENTS:
            return b""
        if self._stream in self._slots:
            return self._answer_request(body)
        if self._stream:
            raise ExchangeError("unexpected reply")
        if self._op == _Op.ERROR:
            code, self.refusal = error_of(body)
            self.refused = _FAULTS.get(code, Fault.REFUSED)
            return b""
        if self._op == _Op.AUTHENTICATE:
            return self._authenticate()
        if self._op in (_Op.READY, _Op.AUTH_SUCCESS):
            return self._prepare()
        if self._op == _Op.RESULT and result_of(body) == PREPARED:
            self._prepared = statement_of(body)
            self._preparing = False
            waiting, self._waiting = self._waiting, []
            return b"".join(map(self._execute, waiting))
        raise ExchangeError(f"an unexpected frame of kind {self._op}")

    def _authenticate(self) -> bytes:
        if not self._token:
            self.refusal = "the cluster wants a user and a password"
            return b""
        return _frame(0, _Op.AUTH_RESPONSE, _INT.pack(len(self._token)) + self._token)

    def _answer_request(self, body: bytes) -> bytes:
        if self._op == _Op.RESULT:
            self._place_row(body)
        elif self._op == _Op.ERROR:
            code, text = error_of(body)
            if code == UNPREPARED:
                self._waiting.append(self._stream)
                return b"" if self._preparing else self._prepare()
            self._fail(_FAULTS.get(code, Fault.REFUSED), text)
        else:
            raise ExchangeError(f"an unexpected frame of kind {self._op}")
        self._release(self._stream)
        return b""

    def _place_row(self, body: bytes) -> None:
        """Store the value of a row that includes descriptions of its columns."""
        value = next(values(body), None)
        slot = self._slots[self._stream]
        if value is None:
            self._fail(Fault.MISSING, "no such row")
            return
        target = self._accept(len(value))
        if target is None or not slot.keeps:
            return
        target[:] = value
        if isinstance(target, bytearray):
            self.loose[slot.number] = target
        self.done.append(slot.number)

    def _prepare(self) -> bytes:
        self._preparing = True
        body = _INT.pack(len(self._statement)) + self._statement
        return _frame(0, _Op.PREPARE, body)

    def _execute(self, stream: int) -> bytes:
        key = self._slots[stream].wanted.key
        flags = _WITH_VALUES | _SKIP_METADATA
        body = b"%b%b%b%b%b" % (
            _string(self._prepared),
            struct.pack(">HBH", self._consistency, flags, 1),
            _INT.pack(len(key)),
            key,
            b"",
        )
        return _frame(stream, _Op.EXECUTE, body)

    _STEPS: Final = {
        _State.HEAD: _take_head,
        _State.RESULT: _take_result,
        _State.ROWS: _take_rows,
        _State.COLUMN: _take_column,
        _State.PAYLOAD: _take_payload,
        _State.REST: _take_rest,
        _State.COLLECT: _take_collected,
    }


def _frame(stream: int, op: _Op, body: bytes) -> bytes:
    return _HEAD.pack(_REQUEST, 0, stream, op, len(body)) + body


def _string(text: bytes) -> bytes:
    return _SHORT.pack(len(text)) + text
