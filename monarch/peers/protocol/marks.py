"""The marks of written Files as nodes tell them to each other: a set that only grows.

A mark is a number: those below ROOTS are whole roots, the others Files and directories,
by their place in the flags segment. A node keeps the marks that it knows in the order
in which it learned of them. Each end of a session tells the other all of them from the
first one on, a portion at a time, and goes on when that is acknowledged; so whoever
joins, and whoever takes the hub's place, learns of all. What comes twice or out of
order changes nothing.

Nodes whose Catalogs differ, because one has scanned anew, cannot tell each other of
Files: what one of them marks lets all roots pass through on the others.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Final

from monarch.peers.protocol.conversation import ProtocolError
from monarch.peers.protocol.messages import Kind, Message

ROOTS: Final = 64
NUMBER_MAX: Final = (1 << 32) - 1
# Of one message. A number takes six bytes at most, so that the body has room for all.
PORTION_MAX: Final = 8192
# Beyond so many, all roots are marked instead: what a node keeps of marks is bounded.
MARKS_MAX: Final = 1 << 20

_OWN: Final = 0
_ALL_ROOTS: Final = range(ROOTS)


class Journal:
    """The marks that a node knows, in the order in which it learned of them.

    Args:
        heard: is told of marks that others have told and that are new here.
        grown: is told that there is something to pass on.
    """

    def __init__(
        self, heard: Callable[[list[int]], None], grown: Callable[[], None]
    ) -> None:
        self.catalog: int | None = None
        self._heard = heard
        self._grown = grown
        self._mine: int | None = None
        self._numbers: list[int] = []
        self._tellers: list[int] = []
        self._known: set[int] = set()
        self._sessions = count(_OWN + 1)

    def __repr__(self) -> str:
        return f"<Journal of {len(self)} marks>"

    def __len__(self) -> int:
        return len(self._numbers)

    def open(self, catalog: int) -> list[int]:
        """Say which Catalog this node has; return the marks that are known of it."""
        if self.catalog is None:
            self.catalog = catalog
        self._mine = catalog
        return self._translated(self._numbers)

    def _translated(self, numbers: list[int]) -> list[int]:
        """Return marks of the job's Catalog as marks of this node's."""
        if self._mine is None:
            return []
        if self._mine != self.catalog:
            return [*_ALL_ROOTS] if numbers else []
        return [*numbers]

    def mark(self, numbers: Iterable[int]) -> None:
        """Add marks that were set on this node, to be told to all."""
        given = dict.fromkeys(numbers)
        if self._mine is None or not given:
            return
        new = self._add(given if self._mine == self.catalog else _ALL_ROOTS, _OWN)
        if not new:
            return
        # Instead of too many marks the roots are told: here, too, they pass through.
        if more := [number for number in new if number not in given]:
            self._heard(self._translated(more))
        self._grown()

    def session(self) -> int:
        """Return the number by which a new session adds what it is told."""
        return next(self._sessions)

    def take(self, session: int, catalog: int, numbers: Iterable[int]) -> None:
        """Add marks that the other end of a session has told."""
        if self.catalog is None:
            self.catalog = catalog
        if self.catalog == catalog:
            new = self._add(numbers, session)
        else:
            new = self._add(_ALL_ROOTS, _OWN)
        if not new:
            return
        if told := self._translated(new):
            self._heard(told)
        self._grown()

    def _add(self, numbers: Iterable[int], teller: int) -> list[int]:
        new = [number for number in numbers if number not in self._known]
        if len(self._known) + len(new) > MARKS_MAX:
            new = [root for root in _ALL_ROOTS if root not in self._known]
        self._known.update(new)
        self._numbers += new
        self._tellers += [teller] * len(new)
        return new

    def portion(self, start: int, but: int) -> tuple[int, list[int]]:
        """Return marks from a place on, but those that one session has told us.

        Returns:
            The place behind the last of them, and the marks.
        """
        chosen: list[int] = []
        end = start
        while end < len(self._numbers) and len(chosen) < PORTION_MAX:
            if self._tellers[end] != but:
                chosen.append(self._numbers[end])
            end += 1
        return end, chosen


class Telling:
    """One end of a session: what was told and acknowledged, in both directions.

    Args:
        again_s: after how long without an acknowledgement a portion is told again.
    """

    def __init__(self, journal: Journal, again_s: float) -> None:
        self._journal = journal
        self._again_s = again_s
        self._session = journal.session()
        self._acknowledged = 0
        self._start = 0  # as far as acknowledged, or nothing to tell
        self._told = 0
        self._told_s = 0.0
        self._taken = 0
        self._owes = False

    def __repr__(self) -> str:
        return f"<Telling {self._acknowledged} of {len(self._journal)} acknowledged>"

    def outgoing(self, now_s: float) -> Iterator[Message]:
        """Return what is to be sent now."""
        if self._owes:
            self._owes = False
            yield Message(Kind.HEARD, {"next": self._taken})
        waits = self._told > self._acknowledged
        if waits and now_s - self._told_s < self._again_s:
            return
        end, numbers = self._journal.portion(self._start, self._session)
        if not numbers:
            self._start = end
            return
        self._told, self._told_s = end, now_s
        fields = {
            "catalog": self._journal.catalog,
            "first": self._acknowledged,
            "next": end,
        }
        yield Message(Kind.MARKS, fields, pack(numbers))

    @property
    def done(self) -> bool:
        """Return whether the other end has all that it is to be told."""
        _, numbers = self._journal.portion(self._start, self._session)
        return not numbers

    def take(self, message: Message) -> bool:
        """Take what the other end has said; return whether an answer is due.

        Raises:
            ProtocolError: it makes no sense.
        """
        fields = message.fields
        if message.kind is Kind.HEARD:
            if self._acknowledged < fields["next"] <= self._told:
                self._acknowledged = fields["next"]
                self._start = max(self._start, self._acknowledged)
            return self._start < len(self._journal)
        if message.kind is not Kind.MARKS:
            return False
        numbers = unpack(message.body)
        self._journal.take(self._session, fields["catalog"], numbers)
        # What came out of order is acknowledged when the gap has been filled.
        if fields["first"] <= self._taken:
            self._taken = max(self._taken, fields["next"])
        self._owes = True
        return True


def pack(numbers: Iterable[int]) -> bytes:
    """Return marks as bytes: runs, each the gap before it and its length less one."""
    packed = bytearray()
    end = 0
    for first, last in _runs(sorted(set(numbers))):
        _put(packed, first - end)
        _put(packed, last - first)
        end = last + 1
    return bytes(packed)


def _runs(ordered: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for place in range(1, len(ordered) + 1):
        if place == len(ordered) or ordered[place] != ordered[place - 1] + 1:
            yield ordered[start], ordered[place - 1]
            start = place


def _put(packed: bytearray, value: int) -> None:
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)


def unpack(packed: bytes) -> list[int]:
    """Return the marks of a message, in their order.

    Raises:
        ProtocolError: it is none, or one of too many marks.
    """
    numbers: list[int] = []
    values = _values(packed)
    end = 0
    for gap in values:
        length = next(values, None)
        if length is None:
            raise ProtocolError("marks that end in a run")
        if len(numbers) + length >= PORTION_MAX or end + gap + length > NUMBER_MAX:
            raise ProtocolError("marks that are too many or too large")
        numbers += range(end + gap, end + gap + length + 1)
        end += gap + length + 1
    return numbers


def _values(packed: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        if value > NUMBER_MAX:
            raise ProtocolError("a mark that is too large")
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
    if shift:
        raise ProtocolError("marks that end in a number")
