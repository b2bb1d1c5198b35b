"""The entries of a file that lie one behind the other, found from many places at once.

Each entry tells where the next one begins, so that one walk waits for each header. More
walks of the same file begin in its middle, at places that look like the beginning of an
entry. What such a walk finds counts if the walk from the start of the file comes to a
place where it was: from the same place on, both find the same.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from monarch.records.errors import RecordsError

NO_PAYLOAD: Final = (1 << 64) - 1
"""The length of an entry of which nothing is read, such as a link."""


class Damaged(Exception):
    """A file has something else where an entry should be; the text says what.

    Attributes:
        entry: the number of that entry.
    """

    entry = 0


class Entry(NamedTuple):
    """One entry of a file.

    Attributes:
        begin: where its payload begins.
        length: of that, in bytes; or NO_PAYLOAD.
        key: the same for entries behind each other that are one Record.
        next: where the next entry begins.
    """

    begin: int
    length: int
    key: int
    next: int


class Places(Protocol):
    """What can be read at places, such as a `headers.Cursor`."""

    def at(self, offset: int, length: int) -> bytes:
        """Return bytes; fewer at the end of the file."""


class Walk(Protocol):
    """Steps from one entry to the next."""

    @property
    def is_free(self) -> bool:
        """Whether what comes next does not depend on what came before."""

    def step(self, file: Places, at: int, size: int) -> Entry | None:
        """Return the entry that begins at a place; None: no further one.

        Args:
            size: of the file.

        Raises:
            Damaged: no entry begins there.
        """

    def starts(self, window: bytes, offset: int, size: int) -> Sequence[int]:
        """Return where in a file an entry seems to begin.

        Args:
            window: what was read at `offset`.
        """


Make = Callable[[], Walk]


def _numbers() -> array[int]:
    return array("Q")


@dataclass(slots=True, eq=False)
class Entries:
    """Entries that lie one behind the other.

    Attributes:
        ats: where each one begins.
        begins, lengths, keys: see Entry.
        end: where the next one begins, or the first one.
        is_over: no further entry follows, though the file may go on.
    """

    end: int = 0
    is_over: bool = False
    ats: array[int] = field(default_factory=_numbers)
    begins: array[int] = field(default_factory=_numbers)
    lengths: array[int] = field(default_factory=_numbers)
    keys: array[int] = field(default_factory=_numbers)

    def __len__(self) -> int:
        """Return how many entries there are."""
        return len(self.ats)

    def add(self, entry: Entry) -> None:
        """Add the one that begins at the end."""
        self.ats.append(self.end)
        self.begins.append(entry.begin)
        self.lengths.append(entry.length)
        self.keys.append(entry.key)
        self.end = entry.next

    def join(self, other: Entries) -> bool:
        """Add what another walk has found from the end on.

        Returns:
            False if it was not there.
        """
        row = bisect_left(other.ats, self.end)
        if row == len(other) or other.ats[row] != self.end:
            return False
        self.ats += other.ats[row:]
        self.begins += other.begins[row:]
        self.lengths += other.lengths[row:]
        self.keys += other.keys[row:]
        self.end, self.is_over = other.end, other.is_over
        return True


def walk_on(
    walk: Walk, file: Places, found: Entries, size: int, limit: int | None = None
) -> None:
    """Add the entries that begin before a place.

    Args:
        size: of the file.
        limit: the place; None: the end of the file.

    Raises:
        Damaged: something else is there.
        RecordsError: the file cannot be read.
    """
    limit = size if limit is None else limit
    while found.end < limit and not found.is_over:
        try:
            entry = walk.step(file, found.end, size)
        except Damaged as error:
            error.entry = len(found)
            raise
        found.is_over = entry is None
        if entry is not None:
            found.add(entry)


@dataclass(frozen=True, slots=True)
class Parts:
    """How a file is walked from several places.

    Attributes:
        cursor: makes what reads it, for one thread.
        size: of the file.
        count: how many places are looked for.
        window: so many bytes are searched for an entry at once.
        pool: its threads walk.
    """

    cursor: Callable[[], Places]
    size: int
    count: int
    window: int
    pool: Executor


def walk_in_parts(make: Make, parts: Parts) -> Entries:
    """Return the entries of a file, walked from several places at once.

    Raises:
        Damaged: it has something else in it.
        RecordsError: it cannot be read.
    """
    bounds = [parts.size * n // parts.count for n in range(1, parts.count)]
    searches = [
        parts.pool.submit(_first_of, make, parts, begin, limit)
        for begin, limit in pairwise([*bounds, parts.size])
    ]
    wait(searches)  # none of them reads when the file is closed
    places = [search.result() for search in searches]
    starts = sorted({place for place in places if place is not None})
    others = [
        (start, parts.pool.submit(_walked, make, parts, start, limit))
        for start, limit in pairwise([*starts, parts.size])
    ]
    try:
        return _joined(make, parts, others)
    finally:  # who closes the file next must be the only one who uses it
        for _, other in others:
            other.cancel()
        wait([other for _, other in others])


def _joined(
    make: Make, parts: Parts, others: Sequence[tuple[int, Future[Entries]]]
) -> Entries:
    """Walk from the start of the file, and take over what others have found."""
    found, walk, cursor = Entries(), make(), parts.cursor()
    for start, other in others:
        walk_on(walk, cursor, found, parts.size, start)
        if walk.is_free and found.join(other.result()):
            walk = make()
    walk_on(walk, cursor, found, parts.size)
    return found


def _first_of(make: Make, parts: Parts, begin: int, limit: int) -> int | None:
    """Return where the first entry of a part seems to begin, or None."""
    walk, cursor = make(), parts.cursor()
    while begin < limit:
        window = cursor.at(begin, parts.window)
        starts = walk.starts(window, begin, parts.size)
        if starts or len(window) < parts.window:
            return min(starts, default=None)
        begin += parts.window // 2  # an entry may begin across the end
    return None


def _walked(make: Make, parts: Parts, start: int, limit: int) -> Entries:
    """Return what a walk from the middle finds before it meets what it cannot judge."""
    walk, cursor, found = make(), parts.cursor(), Entries(start)
    with suppress(Damaged, RecordsError):
        while found.end < limit and not found.is_over:
            entry = walk.step(cursor, found.end, parts.size)
            if not walk.is_free:
                break
            found.is_over = entry is None
            if entry is not None:
                found.add(entry)
    return found
