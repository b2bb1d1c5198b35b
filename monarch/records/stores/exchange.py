"""One conversation with a store: requests are bytes, payloads land in their places.

An exchange opens no connection and waits for nothing: its owner sends what `greeting`
and `request` return, receives into what `space` returns, and says so with `advance`.
Replies that are complete are in `done` and `failed` then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

SCRATCH_BYTES: Final = 1 << 17
DIRECT_BYTES_MIN: Final = 1 << 15
"""A shorter rest of a payload is received with what follows it, and copied."""
LOOK_BYTES: Final = 1 << 12
"""After a payload that was longer, so much is received to look at the next head."""
LINE_BYTES_MAX: Final = 1 << 14


class Fault(Enum):
    """Why a request has no payload, and what follows from it."""

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
    """What a request asks for.

    Attributes:
        offset: of the first byte, in bytes; with a length below 0, 0.
        length: in bytes; below 0: all that there is.
        whole: the range is all of the object, as the index has it.
        identity: the version of the object that is wanted; b"": any.
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
        target: of MOVED and ASKED, the address that has the object.
    """

    number: int
    fault: Fault
    text: str
    target: str = ""


class ExchangeError(Exception):
    """What came is no reply: the connection cannot be used any more."""


class Exchange(Protocol):
    """A conversation with a store, from its greeting to its end.

    Attributes:
        capacity: how many requests may be in flight at once.
        done: numbers of requests whose payload is in its place; the owner clears it.
        failed: requests that have none; the owner clears it.
        loose: payloads of requests without a place, by number; the owner takes them.
        refusal: why the store does not talk with this client; "" as long as it does.
        refused: what kind of fault that is.
        ended: the store closes the connection; nothing more can be asked on it.
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
        """Whether the greeting has been answered."""

    @property
    def load(self) -> int:
        """How many requests are in flight, those that were abandoned among them."""

    def greeting(self) -> bytes:
        """Return what is sent first."""

    def request(self, number: int, wanted: Wanted, place: memoryview | None) -> bytes:
        """Return the bytes of a request.

        Args:
            number: names the request in `done` and `failed`.
            place: where the payload goes, as long as it; None: into `loose`.
        """

    def abandon(self, number: int) -> None:
        """Let a payload go nowhere: its place belongs to another request now."""

    def space(self) -> memoryview:
        """Return where the next bytes are to be received."""

    def advance(self, count: int) -> bytes:
        """Take in received bytes; return what is to be sent because of them.

        Raises:
            ExchangeError: what came is no reply.
        """

    def pending(self) -> list[int]:
        """Return the numbers of the requests in flight."""


class Replies:
    """What every exchange keeps of its replies, see Exchange, and where bytes go."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.failed: list[Failure] = []
        self.loose: dict[int, bytearray] = {}
        self.refusal = ""
        self.refused = Fault.DENIED
        self.ended = False
        self._inbox = Inbox()

    def space(self) -> memoryview:
        """Return where the next bytes are to be received."""
        return self._inbox.space()


class Inbox:
    """Received bytes: heads are kept for a look, payloads go where they belong.

    What is received goes to a scratch buffer, or straight to the place of a payload of
    which much is missing.
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
        """Return where the next bytes are to be received; it is not empty."""
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
        """Return the bytes that are kept for a look: they lie between two places."""
        return self._bytes, self._view, self._begin, self._end

    def skip_to(self, place: int) -> None:
        """Note that all of `received` before a place was taken."""
        self._begin = place

    def add(self, count: int) -> None:
        """Take in bytes that were received into `space`."""
        if not self._direct:
            self._end += count
            return
        assert self._place is not None
        self._place = self._place[count:]
        self._left -= count

    def expect(self, length: int, place: memoryview | None) -> None:
        """Begin a payload.

        Args:
            place: where it goes, as long as it; None: nowhere.
        """
        self._left, self._place = length, place
        self._look = LOOK_BYTES if length >= DIRECT_BYTES_MIN else len(self._bytes)

    def discard(self) -> None:
        """Let the rest of the payload go nowhere."""
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
        """Return the next line without its end; None: it is not all there.

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
        """Return all lines up to an empty one, with their ends; None: it is not there.

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
        """Return the lines that are all there, with their ends, without taking them."""
        end = self._bytes.rfind(b"\r\n", self._begin, self._end)
        return b"" if end < 0 else bytes(self._view[self._begin : end + 2])

    def take(self, count: int) -> bytes | None:
        """Return the next bytes, few of them; None: they are not all there."""
        if self._end - self._begin < count:
            return None
        found = bytes(self._view[self._begin : self._begin + count])
        self._begin += count
        return found


@dataclass(slots=True)
class Slot:
    """A request in flight.

    Attributes:
        number: its name in `done` and `failed`.
        place: where its payload goes; None: into `loose`, or nowhere.
        keeps: the payload is wanted.
        skips: replies of the store that come before its own.
    """

    number: int
    wanted: Wanted
    place: memoryview | None
    keeps: bool = True
    skips: int = 0

    def accept(self, length: int) -> memoryview | bytearray | None:
        """Return what a payload of this length goes to; None: nowhere.

        Raises:
            ValueError: it has another length than the request.
        """
        if not self.keeps:
            return None
        if self.place is None:
            return bytearray(length)
        if length != len(self.place):
            raise ValueError(f"it has {length} bytes, {len(self.place)} were expected")
        return self.place


class InOrder:
    """The requests of a connection whose replies come in the order of the requests.

    Attributes:
        slots: in this order.
    """

    def __init__(self) -> None:
        self.slots: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, slot: Slot) -> None:
        """Note a request that is being sent."""
        self.slots.append(slot)

    def first(self) -> Slot:
        """Return the request that is answered next.

        Raises:
            ExchangeError: no request is outstanding.
        """
        if not self.slots:
            raise ExchangeError("unexpected reply")
        return self.slots[0]

    def end(self) -> Slot:
        """Forget the request that was answered, and return it."""
        return self.slots.popleft()

    def abandon(self, number: int) -> bool:
        """Let the payload of a request go nowhere; return whether it is the first."""
        for slot in self.slots:
            if slot.number == number:
                slot.keeps, slot.place = False, None
                return slot is self.slots[0]
        return False

    def numbers(self) -> list[int]:
        """Return the numbers of all that are still wanted."""
        return [slot.number for slot in self.slots if slot.keeps]
