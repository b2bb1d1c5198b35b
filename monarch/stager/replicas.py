"""The states of this node's Replicas: their transitions, and their only Python writer.

Programs read the state word of a File while it changes, and the data plane changes it
too: it begins Transfers, publishes Replicas and empties the Pool. So each change made
here is a compare-and-swap, which fails if the data plane was faster. A *written* mark
is never removed: programs of the job read such a File from the Origin from then on.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum, auto
from itertools import product
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from monarch.catalog.presence import NO_PAGES, PresentPages
from monarch.native import (
    CONSTANTS,
    Reason,
    ReplicaState,
    fixed_part,
    marks_set,
    state_change,
    state_word,
    states_change,
    states_confirm,
)

ABSENT: Final = int(ReplicaState.ABSENT)
"""The word of a File that can be requested."""

_READY: Final = int(ReplicaState.READY)
_FIXED: Final = CONSTANTS["STATE_FIXED"]
_TIER_UNIT: Final = CONSTANTS["STATE_TIER_UNIT"]
_REASON_UNIT: Final = CONSTANTS["STATE_REASON_UNIT"]
_TIERS: Final = _REASON_UNIT // _TIER_UNIT
_STATE_MASK: Final = _TIER_UNIT - 1
_PLACE_MASK: Final = _REASON_UNIT - 1
_MARKED_ALL: Final = CONSTANTS["MARKED_ALL"]

_T = TypeVar("_T", bound=np.generic)

Bytes = npt.NDArray[np.uint8]
Files = npt.NDArray[np.int64]


class Event(IntEnum):
    """An event of a Replica; the comment notes whether it is absent afterwards."""

    BEGUN = auto()  # a Transfer begins; by the data plane
    PUBLISHED = auto()  # its copy can be opened; by the data plane
    FAILED = auto()  # it failed: absent, with a Reason if final; by the table
    REFUSED = auto()  # the File cannot be staged: absent, with the Reason
    RETRIED = auto()  # the Reason has passed: absent, can be requested
    LOST = auto()  # the Replica or its Tier is gone: absent, can be requested
    EVICTED = auto()  # its space is needed: programs open the Origin
    REMOVED = auto()  # its name is removed: absent, with a Reason if it stays so
    ENDED = auto()  # the agent ends: absent for good


NATIVE: Final = frozenset({Event.BEGUN, Event.PUBLISHED, Event.FAILED})
"""Events of Transfers, which the data plane carries out by their generation."""

TRANSITIONS: Final = {
    (ReplicaState.ABSENT, Event.BEGUN): ReplicaState.STAGING,
    (ReplicaState.ABSENT, Event.REFUSED): ReplicaState.ABSENT,
    (ReplicaState.ABSENT, Event.RETRIED): ReplicaState.ABSENT,
    (ReplicaState.STAGING, Event.PUBLISHED): ReplicaState.READY,
    (ReplicaState.STAGING, Event.FAILED): ReplicaState.ABSENT,
    (ReplicaState.READY, Event.LOST): ReplicaState.ABSENT,
    (ReplicaState.READY, Event.EVICTED): ReplicaState.EVICTING,
    (ReplicaState.READY, Event.REMOVED): ReplicaState.ABSENT,
    (ReplicaState.EVICTING, Event.REMOVED): ReplicaState.ABSENT,
    **{(state, Event.ENDED): ReplicaState.ABSENT for state in ReplicaState},
}

_NO_REASON: Final = frozenset({Reason.NONE})
REASONS: Final = {
    Event.FAILED: frozenset(
        {
            *(Reason.NONE, Reason.CHANGED, Reason.ERROR, Reason.DENIED),
            *(Reason.BUSY, Reason.STOPPING),
        }
    ),
    Event.REFUSED: frozenset(
        {Reason.NO_ROOM, Reason.CHANGED, Reason.ERROR, Reason.BUSY, Reason.STOPPING}
    ),
    Event.REMOVED: frozenset({Reason.NONE, Reason.MEMORY}),
    Event.ENDED: frozenset({Reason.STOPPING}),
}
"""The Reasons with which an event may leave a File absent; other events set none."""

PASSING: Final = {
    Event.BEGUN: frozenset({Reason.NONE, Reason.NO_ROOM}),  # the latter by a hint
    Event.RETRIED: frozenset({Reason.NO_ROOM, Reason.BUSY}),
}
"""The Reasons of absence after which an event is allowed; others are final."""

WAKING: Final = frozenset(
    {Event.FAILED, Event.REFUSED, Event.EVICTED, Event.REMOVED},
)
"""Events after which waiting programs check again; after others they keep waiting."""


class IllegalTransition(AssertionError):
    """An event occurred in a state that does not allow it: a bug."""


def advance(
    state: ReplicaState,
    event: Event,
    before: Reason = Reason.NONE,
    after: Reason = Reason.NONE,
) -> ReplicaState:
    """Return the state that follows an event.

    Args:
        before: why the File is absent before the event, if it is.
        after: why it is absent after the event.

    Raises:
        IllegalTransition: the table does not allow it.
    """
    following = TRANSITIONS.get((state, event))
    allowed = (
        following is not None
        and after in REASONS.get(event, _NO_REASON)
        and (event not in PASSING or before in PASSING[event])
    )
    if following is None or not allowed:
        raise IllegalTransition(
            f"{event.name} {after.name} of a Replica {state.name} {before.name}"
        )
    return following


def _legal() -> dict[tuple[int, int, int, int], int]:
    """Return the word after each legal change, without its Tier: for speed."""
    legal: dict[tuple[int, int, int, int], int] = {}
    for (state, event), before, after in product(TRANSITIONS, Reason, Reason):
        with suppress(IllegalTransition):
            following = advance(state, event, before, after)
            word = state_word(following, reason=after)
            legal[int(state), int(event), int(before), int(after)] = word
    return legal


_LEGAL: Final = _legal()


class WrittenMarks:
    """The *written* marks of Files, directories and whole roots.

    Programs set marks too, in the same memory.

    Args:
        roots: a mark for each root: no Replica below a marked root is served any more.
        marks: a mark for each File and, after those, for each directory.
        notify: wakes programs after a mark.
    """

    def __init__(self, roots: Bytes, marks: Bytes, notify: Callable[[], None]) -> None:
        self._roots, self._marks = roots, marks
        self.roots, self.marks = _read_only(roots), _read_only(marks)
        self.notify = notify

    def __repr__(self) -> str:
        return f"<WrittenMarks {np.count_nonzero(self.marks)} set>"

    def add(self, numbers: Files, bits: Bytes) -> None:
        """Add marks to Files and directories: a bit for each kind of change."""
        marks_set(self._marks, numbers.astype(np.uint64), bits)

    def add_to_roots(self, roots: Files, bits: Bytes) -> None:
        """Add marks to whole roots."""
        marks_set(self._roots, roots.astype(np.uint64), bits)

    def mark_changed(self, file: int) -> None:
        """Mark a File with all kinds of change."""
        self._marks[file] = _MARKED_ALL


@dataclass(frozen=True, slots=True)
class FileTable:
    """The data of all Files on a node, by number, and the memory of their states.

    Args:
        words: the state words.
        name_of: the name of a File's Replica.
        inodes_of: the inodes of the Replicas of some Files in a Tier.
        inodes_in: the inodes of all Replicas that were ever in a Tier.
        bases: the first File of each root.
        pages: the present Pages of large Files.
    """

    sizes: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint32]
    marks: WrittenMarks
    name_of: Callable[[int], str]
    inodes_of: Callable[[Sequence[int], int], list[int]]
    inodes_in: Callable[[int], list[int]]
    bases: Sequence[int] = (0,)
    pages: PresentPages = NO_PAGES


class Replicas:
    """The Files of a job with the states of their Replicas on this node.

    Attributes:
        words: the state words, read-only.
        pages: the present Pages of large Files.
    """

    def __init__(self, files: FileTable) -> None:
        self.sizes = files.sizes
        self.words = _read_only(files.words)
        self.name_of = files.name_of
        self.inodes_of = files.inodes_of
        self.inodes_in = files.inodes_in
        self.pages = files.pages
        self._words = files.words
        self._written = files.marks
        self._bases = files.bases

    def __repr__(self) -> str:
        return f"<Replicas of {len(self.sizes)} files>"

    # -- Files ------------------------------------------------------------------

    def size_of(self, file: int) -> int:
        """Return the bytes of a File."""
        return int(self.sizes[file])

    def root_of(self, file: int) -> int:
        """Return the number of the root that a File belongs to."""
        return bisect_right(self._bases, file) - 1

    def is_written(self, file: int) -> bool:
        """Return whether a File is marked, by itself or with its root."""
        marks = self._written
        return bool(marks.marks[file]) or bool(marks.roots[self.root_of(file)])

    def unwritten(self, files: Files) -> Files:
        """Return the given Files that have no mark of their own."""
        found: Files = files[self._written.marks[files] == 0]
        return found

    def mark_written(self, file: int) -> None:
        """Never serve a File again: its Origin differs from the Catalog."""
        self._written.mark_changed(file)

    def confirm(self, files: Files) -> None:
        """Note that some Files match the Catalog, in this job."""
        states_confirm(self._words, files)

    # -- states -----------------------------------------------------------------

    def is_absent(self, file: int) -> bool:
        """Return whether a File is absent and can be requested."""
        return fixed_part(self._words[file]) == ABSENT

    def is_staging(self, file: int) -> bool:
        """Return whether a Transfer of a File is in flight."""
        return fixed_part(self._words[file]) & _STATE_MASK == ReplicaState.STAGING

    def is_due(self, file: int) -> bool:
        """Return whether a File can be requested and is not written."""
        return self.is_absent(file) and not self.is_written(file)

    def ready_tier(self, file: int) -> int | None:
        """Return the Tier in which a File is ready; None: it is not ready."""
        word = fixed_part(self._words[file])
        return word // _TIER_UNIT % _TIERS if word % _TIER_UNIT == _READY else None

    def ready_in(self, tier: int) -> Files:
        """Return the Files whose Replica is ready in a Tier."""
        # In the word of a ready Replica, the bits of the Reason hold its source.
        sourceless = self._words & np.uint32(_PLACE_MASK)
        return np.flatnonzero(sourceless == state_word(ReplicaState.READY, tier))

    def in_state(self, state: ReplicaState) -> npt.NDArray[np.bool_]:
        """Return a mask of the Files in a state, with any Tier and Reason."""
        found: npt.NDArray[np.bool_] = (self._words & np.uint32(_STATE_MASK)) == state
        return found

    def is_in_pieces(self, file: int) -> bool:
        """Return whether a large File is held in part because it fits no Tier."""
        return self.pages.is_in_pieces(file)

    def absent(self, reason: Reason) -> Files:
        """Return the Files that are absent for a Reason."""
        word = state_word(ReplicaState.ABSENT, reason=reason)
        return np.flatnonzero((self._words & np.uint32(_FIXED)) == word)

    def change(
        self, file: int, event: Event, *, tier: int = 0, reason: Reason = Reason.NONE
    ) -> bool:
        """Apply an event to the Replica of a File.

        Args:
            tier: where it is afterwards, unless it is absent.
            reason: why it is absent afterwards.

        Returns:
            False: the event is outdated, because the data plane was faster.
        """
        assert event not in NATIVE, "the data plane carries it out"
        while True:
            seen = int(self._words[file])
            following = _following(seen, event, reason)
            if following is None:
                return False
            word = seen & ~_FIXED | following + tier * _TIER_UNIT
            if state_change(self._words, file, seen, word, wake=event in WAKING):
                return True

    def change_ready(self, files: Files, tier: int) -> int:
        """Mark the Replicas of some Files in a Tier as lost.

        Returns:
            The number of those marked: the data plane may just have removed others.
        """
        place = state_word(ReplicaState.READY, tier)
        return states_change(self._words, files, (_PLACE_MASK, place), ABSENT)

    def retry(self, file: int, reason: Reason) -> bool:
        """Allow requests for a File absent for a Reason; return False if it is not."""
        word = state_word(ReplicaState.ABSENT, reason=reason)
        where = np.array([file])
        return states_change(self._words, where, (_FIXED, word), ABSENT) > 0

    def retry_root(self, root: int, reason: Reason) -> None:
        """Allow requests for the Files of a root that are absent for a Reason."""
        start, end = [*self._bases, len(self.sizes)][root : root + 2]
        self.retry_all(np.arange(start, end), reason)

    def retry_all(self, files: Files, reason: Reason) -> None:
        """Allow requests for the given Files that are absent for a Reason."""
        assert reason in PASSING[Event.RETRIED]
        word = state_word(ReplicaState.ABSENT, reason=reason)
        states_change(self._words, files, (_FIXED, word), ABSENT)

    def end(self) -> None:
        """Withdraw every Replica from programs that outlive the agent."""
        files = np.arange(len(self.sizes))
        word = state_word(ReplicaState.ABSENT, reason=Reason.STOPPING)
        states_change(self._words, files, (0, 0), word)


def _following(seen: int, event: Event, reason: Reason) -> int | None:
    """Return the word after an event, without its Tier; None: it is not allowed."""
    word = fixed_part(seen)
    state = word % _TIER_UNIT
    # Unless the Replica is absent, the bits of the Reason hold its source.
    before = 0 if state else word // _REASON_UNIT
    return _LEGAL.get((state, int(event), before, int(reason)))


def _read_only(array: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Return a read-only view of shared memory."""
    view = array.view()
    view.flags.writeable = False
    return view
