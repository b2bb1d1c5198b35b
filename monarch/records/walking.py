"""Finding the consecutive entries of a file from many places at once.

Each entry determines the start of the next one, so that one walk waits for each header.
More walks of the same file begin in its middle, at places that look like the start of
an entry. The entries of such a walk count if the walk from the start of the file
reaches one of them: from the same place on, both find the same entries.
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
"""The length of an entry without a payload, such as a link."""


class Damaged(Exception):
    """A file has something other than an entry; the text describes it.

    Attributes:
        entry: the number of that entry.
    """

    entry = 0


class Entry(NamedTuple):
    """One entry of a file.

    Attributes:
        begin: where its payload begins.
        length: length of the payload in bytes, or NO_PAYLOAD.
        key: equal for consecutive entries of one Record.
        next: where the next entry begins.
    """

    begin: int
    length: int
    key: int
    next: int


class Places(Protocol):
    """A file that can be read at offsets, such as a `headers.Cursor`."""

    def at(self, offset: int, length: int) -> bytes:
        """Return bytes; fewer at the end of the file."""


class Walk(Protocol):
    """Steps from one entry to the next."""

    @property
    def is_free(self) -> bool:
        """Whether later entries do not depend on earlier ones."""

    def step(self, file: Places, at: int, size: int) -> Entry | None:
        """Return the entry that begins at an offset; None: no further one.

        Args:
            size: size of the file.

        Raises:
            Damaged: no entry begins there.
        """

    def starts(self, window: bytes, offset: int, size: int) -> Sequence[int]:
        """Return the offsets in a file at which an entry seems to begin.

        Args:
            window: bytes of the file from `offset` on.
        """


Make = Callable[[], Walk]


def _numbers() -> array[int]:
    return array("Q")


@dataclass(slots=True, eq=False)
class Entries:
    """Consecutive entries.

    Attributes:
        ats: start of each entry.
        begins, lengths, keys: see Entry.
        end: start of the next entry, or of the first one.
        is_over: no further entry follows, though the file may be longer.
    """

    end: int = 0
    is_over: bool = False
    ats: array[int] = field(default_factory=_numbers)
    begins: array[int] = field(default_factory=_numbers)
    lengths: array[int] = field(default_factory=_numbers)
    keys: array[int] = field(default_factory=_numbers)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.ats)

    def add(self, entry: Entry) -> None:
        """Add the entry that begins at `end`."""
        self.ats.append(self.end)
        self.begins.append(entry.begin)
        self.lengths.append(entry.length)
        self.keys.append(entry.key)
        self.end = entry.next

    def join(self, other: Entries) -> bool:
        """Add the entries of another walk from `end` on.

        Returns:
            False if the other walk has no entry that begins at `end`.
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
    """Add the entries that begin before a limit.

    Args:
        size: size of the file.
        limit: offset in the file; None: its end.

    Raises:
        Damaged: the file has something other than an entry.
        RecordsError: it cannot be read.
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
        cursor: makes a cursor for one thread.
        size: size of the file.
        count: number of parts, each with its own walk.
        window: bytes that are searched for an entry by one read.
        pool: executor of the walks.
    """

    cursor: Callable[[], Places]
    size: int
    count: int
    window: int
    pool: Executor


def walk_in_parts(make: Make, parts: Parts) -> Entries:
    """Return the entries of a file, walked from several places at once.

    Raises:
        Damaged: the file has something other than an entry.
        RecordsError: it cannot be read.
    """
    bounds = [parts.size * n // parts.count for n in range(1, parts.count)]
    searches = [
        parts.pool.submit(_first_of, make, parts, begin, limit)
        for begin, limit in pairwise([*bounds, parts.size])
    ]
    wait(searches)  # no search may read after the file is closed
    places = [search.result() for search in searches]
    starts = sorted({place for place in places if place is not None})
    others = [
        (start, parts.pool.submit(_walked, make, parts, start, limit))
        for start, limit in pairwise([*starts, parts.size])
    ]
    try:
        return _joined(make, parts, others)
    finally:  # no walk may use the file when the caller closes it
        for _, other in others:
            other.cancel()
        wait([other for _, other in others])


def _joined(
    make: Make, parts: Parts, others: Sequence[tuple[int, Future[Entries]]]
) -> Entries:
    """Walk from the start of the file, and take over the entries of other walks."""
    found, walk, cursor = Entries(), make(), parts.cursor()
    for start, other in others:
        walk_on(walk, cursor, found, parts.size, start)
        if walk.is_free and found.join(other.result()):
            walk = make()
    walk_on(walk, cursor, found, parts.size)
    return found


def _first_of(make: Make, parts: Parts, begin: int, limit: int) -> int | None:
    """Return the offset at which the first entry of a part seems to begin, or None."""
    walk, cursor = make(), parts.cursor()
    while begin < limit:
        window = cursor.at(begin, parts.window)
        starts = walk.starts(window, begin, parts.size)
        if starts or len(window) < parts.window:
            return min(starts, default=None)
        begin += parts.window // 2  # a header may lie across the end of the window
    return None


def _walked(make: Make, parts: Parts, start: int, limit: int) -> Entries:
    """Return the entries of a walk from the middle, up to one that it cannot judge."""
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
