"""The marks of written Files between nodes: a set that only grows.

A mark is a number and a kind of change: numbers below ROOTS are whole roots, the others
Files and directories, by their position in the flags segment; the kind corresponds to a
bit of the mark there. A node stores all known marks in a log, in order of arrival. Each
end of a session sends the other its whole log from the start, one portion after
another, and continues when a portion is acknowledged. So a node that joins, or that
becomes the hub, receives all marks. A portion that arrives twice or out of order is
harmless.

Nodes whose Catalogs differ, because one has scanned again, cannot refer to each other's
Files by number: a mark of one of them switches all roots of the others to pass-through.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Final

from monarch.peers.protocol.conversation import ProtocolError
from monarch.peers.protocol.messages import Kind, Message

ROOTS: Final = 64
KINDS: Final = 4
# Added to a number for each kind, so that the numbers of one kind form runs.
KIND_SPAN: Final = 1 << 32
NUMBER_MAX: Final = KINDS * KIND_SPAN - 1
# Marks of one message. A number takes at most six bytes, so they fit into the body.
PORTION_MAX: Final = 8192
# Beyond this number all roots are marked instead, to limit the log of a node.
MARKS_MAX: Final = 1 << 20

_OWN: Final = 0
_ALL_ROOTS: Final = tuple(
    kind * KIND_SPAN + root for kind in range(KINDS) for root in range(ROOTS)
)


class MarkLog:
    """The known marks of a node, in order of arrival.

    Args:
        on_new: called with new marks of other nodes.
        on_grown: called when new marks are to be sent.
    """

    def __init__(
        self, on_new: Callable[[list[int]], None], on_grown: Callable[[], None]
    ) -> None:
        self.catalog: int | None = None
        self._on_new = on_new
        self._on_grown = on_grown
        self._own_catalog: int | None = None
        self._numbers: list[int] = []
        self._sources: list[int] = []
        self._known: set[int] = set()
        self._sessions = count(_OWN + 1)

    def __repr__(self) -> str:
        return f"<MarkLog of {len(self)} marks>"

    def __len__(self) -> int:
        return len(self._numbers)

    def open(self, catalog: int) -> list[int]:
        """Set the Catalog of this node; return its known marks."""
        if self.catalog is None:
            self.catalog = catalog
        self._own_catalog = catalog
        return self._translated(self._numbers)

    def _translated(self, numbers: list[int]) -> list[int]:
        """Translate marks of the job's Catalog to marks of this node's."""
        if self._own_catalog is None:
            return []
        if self._own_catalog != self.catalog:
            return [*_ALL_ROOTS] if numbers else []
        return [*numbers]

    def add_own(self, numbers: Iterable[int]) -> None:
        """Add marks set on this node, to be sent to all others."""
        given = dict.fromkeys(numbers)
        if self._own_catalog is None or not given:
            return
        same = self._own_catalog == self.catalog
        new = self._add(given if same else _ALL_ROOTS, _OWN)
        if not new:
            return
        # Roots that replace too many marks become pass-through on this node, too.
        if more := [number for number in new if number not in given]:
            self._on_new(self._translated(more))
        self._on_grown()

    def new_session(self) -> int:
        """Return the source number for marks of a new session."""
        return next(self._sessions)

    def add_received(self, session: int, catalog: int, numbers: Iterable[int]) -> None:
        """Add marks received from the other end of a session."""
        if self.catalog is None:
            self.catalog = catalog
        if self.catalog == catalog:
            new = self._add(numbers, session)
        else:
            new = self._add(_ALL_ROOTS, _OWN)
        if not new:
            return
        if translated := self._translated(new):
            self._on_new(translated)
        self._on_grown()

    def _add(self, numbers: Iterable[int], source: int) -> list[int]:
        new = [number for number in numbers if number not in self._known]
        if len(self._known) + len(new) > MARKS_MAX:
            new = [root for root in _ALL_ROOTS if root not in self._known]
        self._known.update(new)
        self._numbers += new
        self._sources += [source] * len(new)
        return new

    def portion(self, start: int, session: int) -> tuple[int, list[int]]:
        """Return marks from a position on, without those received from a session.

        Returns:
            The position after the last of them, and the marks.
        """
        chosen: list[int] = []
        end = start
        while end < len(self._numbers) and len(chosen) < PORTION_MAX:
            if self._sources[end] != session:
                chosen.append(self._numbers[end])
            end += 1
        return end, chosen


class MarkSync:
    """One end of a session: the sent and acknowledged marks, in both directions.

    Args:
        resend_s: how long to wait for an acknowledgement before sending again.
    """

    def __init__(self, marks: MarkLog, resend_s: float) -> None:
        self._marks = marks
        self._resend_s = resend_s
        self._session = marks.new_session()
        self._acknowledged = 0
        self._start = 0  # all marks before it are acknowledged or need not be sent
        self._sent = 0
        self._sent_s = 0.0
        self._received = 0
        self._owes_ack = False

    def __repr__(self) -> str:
        return f"<MarkSync {self._acknowledged} of {len(self._marks)} acknowledged>"

    def outgoing(self, now_s: float) -> Iterator[Message]:
        """Return the messages to send now."""
        if self._owes_ack:
            self._owes_ack = False
            yield Message(Kind.MARKS_ACK, {"next": self._received})
        waits = self._sent > self._acknowledged
        if waits and now_s - self._sent_s < self._resend_s:
            return
        end, numbers = self._marks.portion(self._start, self._session)
        if not numbers:
            self._start = end
            return
        self._sent, self._sent_s = end, now_s
        fields = {
            "catalog": self._marks.catalog,
            "first": self._acknowledged,
            "next": end,
        }
        yield Message(Kind.MARKS, fields, pack(numbers))

    @property
    def done(self) -> bool:
        """Return whether the other end has acknowledged all marks."""
        _, numbers = self._marks.portion(self._start, self._session)
        return not numbers

    def receive(self, message: Message) -> bool:
        """Process a message of the other end; return whether to send messages now.

        Raises:
            ProtocolError: its marks are not valid.
        """
        fields = message.fields
        if message.kind is Kind.MARKS_ACK:
            if self._acknowledged < fields["next"] <= self._sent:
                self._acknowledged = fields["next"]
                self._start = max(self._start, self._acknowledged)
            return self._start < len(self._marks)
        if message.kind is not Kind.MARKS:
            return False
        numbers = unpack(message.body)
        self._marks.add_received(self._session, fields["catalog"], numbers)
        # A portion after a gap is acknowledged after the gap has been filled.
        if fields["first"] <= self._received:
            self._received = max(self._received, fields["next"])
        self._owes_ack = True
        return True


# -- encoding -----------------------------------------------------------------------


def pack(numbers: Iterable[int]) -> bytes:
    """Encode marks as runs: for each the gap before it and its length less one."""
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
    """Return the marks of a message, in ascending order.

    Raises:
        ProtocolError: the encoding is not valid, or has too many marks.
    """
    numbers: list[int] = []
    values = _values(packed)
    end = 0
    for gap in values:
        length = next(values, None)
        if length is None:
            raise ProtocolError("a run of marks is incomplete")
        if len(numbers) + length >= PORTION_MAX or end + gap + length > NUMBER_MAX:
            raise ProtocolError("a message has too many or too large marks")
        numbers += range(end + gap, end + gap + length + 1)
        end += gap + length + 1
    return numbers


def _values(packed: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        if value > NUMBER_MAX:
            raise ProtocolError("a mark is too large")
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
    if shift:
        raise ProtocolError("a number of marks is incomplete")
