"""One conversation with a store: it makes requests, and puts payloads in their places.

An exchange opens no connection and never waits: its owner sends the bytes of `greeting`
and `request`, receives into the buffer of `space`, and then calls `advance`, which adds
complete replies to `done` and `failed`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

SCRATCH_BYTES: Final = 1 << 17
DIRECT_BYTES_MIN: Final = 1 << 15
"""A shorter rest of a payload is received with the following bytes, and copied."""
LOOK_BYTES: Final = 1 << 12
"""Bytes received at once for the head after a payload of at least DIRECT_BYTES_MIN."""
LINE_BYTES_MAX: Final = 1 << 14


class Fault(Enum):
    """Why a request has no payload, which determines the reaction."""

    MISSING = "no such object"
    CHANGED = "it was changed since its index was made"
    DENIED = "the store refuses access"
    REFUSED = "the store could not process the request"
    BUSY = "the store limits the rate of requests"
    AWAY = "a part of the store is temporarily unavailable"
    MOVED = "another node of the store has the object"
    ASKED = "another node of the store has the object, for this once"
    FAILED = "no valid reply; the request may be repeated"


class Wanted(NamedTuple):
    """The range of an object that is requested.

    Attributes:
        offset: offset of the first byte; 0 if the length is below 0.
        length: length in bytes; below 0: the whole object.
        whole: the range is the whole object according to the index.
        identity: the requested version of the object; b"": any.
        asking: the node was named by a Failure of ASKED.
    """

    key: bytes
    offset: int = 0
    length: int = -1
    whole: bool = True
    identity: bytes = b""
    asking: bool = False


class Failure(NamedTuple):
    """A request that has no payload.

    Attributes:
        target: for MOVED and ASKED, the address that has the object.
    """

    number: int
    fault: Fault
    text: str
    target: str = ""


class ExchangeError(Exception):
    """The received bytes are no valid reply: the connection is unusable."""


class Exchange(Protocol):
    """A conversation with a store, from its greeting to its end.

    Attributes:
        capacity: maximum requests in flight.
        done: numbers of requests whose payload is complete; the owner clears it.
        failed: requests without a payload; the owner clears it.
        loose: payloads of requests without a place, by number; the owner takes them.
        refusal: why the store rejects this client; "": it does not.
        refused: the fault of the refusal.
        ended: the store closes the connection; no more requests can be sent on it.
    """

    capacity: int
    done: list[int]
    failed: list[Failure]
    loose: dict[int, bytearray]
    refusal: str
    refused: Fault
    ended: bool

    @property
    def ready(self) -> bool:
        """Whether the greeting is complete."""

    @property
    def load(self) -> int:
        """Number of requests in flight, including abandoned ones."""

    def greeting(self) -> bytes:
        """Return the first bytes to send."""

    def request(self, number: int, wanted: Wanted, place: memoryview | None) -> bytes:
        """Return the bytes of a request.

        Args:
            number: identifies the request in `done` and `failed`.
            place: destination of the payload, of the same length; None: `loose`.
        """

    def abandon(self, number: int) -> None:
        """Discard the payload of a request, whose place is now used by another one."""

    def space(self) -> memoryview:
        """Return the buffer for the next received bytes."""

    def advance(self, count: int) -> bytes:
        """Process received bytes; return bytes to send in response.

        Raises:
            ExchangeError: the received bytes are no valid reply.
        """

    def pending(self) -> list[int]:
        """Return the numbers of the requests in flight."""


class Replies:
    """The replies of every exchange, see Exchange, and the buffer of received bytes."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.failed: list[Failure] = []
        self.loose: dict[int, bytearray] = {}
        self.refusal = ""
        self.refused = Fault.DENIED
        self.ended = False
        self._inbox = Inbox()

    def space(self) -> memoryview:
        """Return the buffer for the next received bytes."""
        return self._inbox.space()


class Inbox:
    """Received bytes: heads are buffered, payloads are put in their places.

    Bytes are received into a scratch buffer, or directly into the place of a payload if
    much of it is missing.
    """

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self._bytes = bytearray(size)
        self._view = memoryview(self._bytes)
        self._begin = self._end = 0
        self._place: memoryview | None = None
        self._left = 0
        self._look = size
        self._direct = False

    def __repr__(self) -> str:
        return f"<Inbox {self._end - self._begin} bytes, {self._left} to come>"

    def space(self) -> memoryview:
        """Return the buffer for the next received bytes; it is never empty."""
        self._direct = self._left >= DIRECT_BYTES_MIN and self._place is not None
        if self._direct:
            assert self._place is not None
            return self._place
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._end == len(self._bytes):
            rest = self._bytes[self._begin : self._end]
            self._view[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        return self._view[self._end : self._end + self._look]

    def received(self) -> tuple[bytearray, memoryview, int, int]:
        """Return the scratch buffer, its view, and the range of its unread bytes."""
        return self._bytes, self._view, self._begin, self._end

    def skip_to(self, place: int) -> None:
        """Mark all bytes of `received` before a place as read."""
        self._begin = place

    def add(self, count: int) -> None:
        """Note the number of bytes received into `space`."""
        if not self._direct:
            self._end += count
            return
        assert self._place is not None
        self._place = self._place[count:]
        self._left -= count

    def expect(self, length: int, place: memoryview | None) -> None:
        """Begin a payload.

        Args:
            place: its destination, of the same length; None: discard it.
        """
        self._left, self._place = length, place
        self._look = LOOK_BYTES if length >= DIRECT_BYTES_MIN else len(self._bytes)

    def discard(self) -> None:
        """Discard the rest of the payload."""
        self._place = None

    def filled(self) -> bool:
        """Copy received payload bytes to their place; return whether it is complete."""
        count = min(self._left, self._end - self._begin)
        if count:
            if self._place is not None:
                end = self._begin + count
                self._place[:count] = self._view[self._begin : end]
                self._place = self._place[count:]
            self._begin += count
            self._left -= count
        return not self._left

    def line(self) -> bytes | None:
        """Return the next line without its end; None: it is incomplete.

        Raises:
            ExchangeError: it is longer than LINE_BYTES_MAX.
        """
        end = self._bytes.find(b"\r\n", self._begin, self._end)
        if end < 0:
            if self._end - self._begin > LINE_BYTES_MAX:
                raise ExchangeError("a line of the reply has no end")
            return None
        found = bytes(self._view[self._begin : end])
        self._begin = end + 2
        return found

    def head(self) -> bytes | None:
        """Return all lines up to an empty one, with their ends; None: incomplete.

        Raises:
            ExchangeError: they are longer than LINE_BYTES_MAX.
        """
        end = self._bytes.find(b"\r\n\r\n", self._begin, self._end)
        if end < 0:
            if self._end - self._begin > LINE_BYTES_MAX:
                raise ExchangeError("the head of a reply has no end")
            return None
        found = bytes(self._view[self._begin : end + 2])
        self._begin = end + 4
        return found

    def begun(self) -> bytes:
        """Return the complete lines with their ends, without marking them as read."""
        end = self._bytes.rfind(b"\r\n", self._begin, self._end)
        return b"" if end < 0 else bytes(self._view[self._begin : end + 2])

    def take(self, count: int) -> bytes | None:
        """Return the next few bytes; None: they are incomplete."""
        if self._end - self._begin < count:
            return None
        found = bytes(self._view[self._begin : self._begin + count])
        self._begin += count
        return found


@dataclass(slots=True)
class Slot:
    """A request in flight.

    Attributes:
        number: its number in `done` and `failed`.
        place: destination of its payload; None: `loose`, or none.
        keeps: the payload is needed.
        skips: replies of the store to ignore before its own.
    """

    number: int
    wanted: Wanted
    place: memoryview | None
    keeps: bool = True
    skips: int = 0

    def accept(self, length: int) -> memoryview | bytearray | None:
        """Return the destination of a payload of this length; None: discard it.

        Raises:
            ValueError: its length differs from that of the request.
        """
        if not self.keeps:
            return None
        if self.place is None:
            return bytearray(length)
        if length != len(self.place):
            raise ValueError(f"it has {length} bytes, {len(self.place)} were expected")
        return self.place


class InOrder:
    """The requests of a connection whose replies arrive in the order of the requests.

    Attributes:
        slots: the requests in this order.
    """

    def __init__(self) -> None:
        self.slots: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, slot: Slot) -> None:
        """Note a request that is being sent."""
        self.slots.append(slot)

    def first(self) -> Slot:
        """Return the request that belongs to the next reply.

        Raises:
            ExchangeError: no request is outstanding.
        """
        if not self.slots:
            raise ExchangeError("unexpected reply")
        return self.slots[0]

    def end(self) -> Slot:
        """Remove the answered request, and return it."""
        return self.slots.popleft()

    def abandon(self, number: int) -> bool:
        """Discard the payload of a request; return whether it is the first."""
        for slot in self.slots:
            if slot.number == number:
                slot.keeps, slot.place = False, None
                return slot is self.slots[0]
        return False

    def numbers(self) -> list[int]:
        """Return the numbers of all requests that are not abandoned."""
        return [slot.number for slot in self.slots if slot.keeps]
