"""The states of this node's Replicas: their transitions, and their only Python writer.

Programs read the state word of a File while it changes. The data plane publishes a
Replica (staging to ready); every other change is made here. A *written* mark is never
taken back: programs of the job read such a File from the Origin from then on.
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

from monarch.native import CONSTANTS, Reason, ReplicaState, marks_set, state_word

ABSENT: Final = int(ReplicaState.ABSENT)
"""The word of a File that can be asked for."""

_READY: Final = int(ReplicaState.READY)
_TIER_UNIT: Final = CONSTANTS["STATE_TIER_UNIT"]
_REASON_UNIT: Final = CONSTANTS["STATE_REASON_UNIT"]
_TIERS: Final = _REASON_UNIT // _TIER_UNIT
_MARKED_ALL: Final = CONSTANTS["MARKED_ALL"]

_T = TypeVar("_T", bound=np.generic)

Bytes = npt.NDArray[np.uint8]
Files = npt.NDArray[np.int64]


class Event(IntEnum):
    """What may happen to a Replica; the comment says where it is absent afterwards."""

    ORDERED = auto()  # a Transfer begins
    MOVED = auto()  # the Transfer goes on into another Tier
    PUBLISHED = auto()  # the data plane has published the copy
    FAILED = auto()  # the Transfer has failed: absent, with a Reason if it is final
    RESTARTED = auto()  # the Transfer begins again at once: absent in between
    REFUSED = auto()  # the File cannot be staged: absent, with the Reason
    RETRIED = auto()  # the Reason has passed: absent, can be asked for
    LOST = auto()  # the Replica or its Tier is gone: absent, can be asked for
    EVICTED = auto()  # its room is needed: programs open the Origin
    REMOVED = auto()  # its name is removed: absent, with a Reason if it stays away
    ENDED = auto()  # the agent ends: absent for good


TRANSITIONS: Final = {
    (ReplicaState.ABSENT, Event.ORDERED): ReplicaState.STAGING,
    (ReplicaState.ABSENT, Event.REFUSED): ReplicaState.ABSENT,
    (ReplicaState.ABSENT, Event.RETRIED): ReplicaState.ABSENT,
    (ReplicaState.STAGING, Event.MOVED): ReplicaState.STAGING,
    (ReplicaState.STAGING, Event.PUBLISHED): ReplicaState.READY,
    (ReplicaState.STAGING, Event.FAILED): ReplicaState.ABSENT,
    (ReplicaState.STAGING, Event.RESTARTED): ReplicaState.ABSENT,
    (ReplicaState.READY, Event.LOST): ReplicaState.ABSENT,
    (ReplicaState.READY, Event.EVICTED): ReplicaState.EVICTING,
    (ReplicaState.READY, Event.REMOVED): ReplicaState.ABSENT,
    (ReplicaState.EVICTING, Event.REMOVED): ReplicaState.ABSENT,
    **{(state, Event.ENDED): ReplicaState.ABSENT for state in ReplicaState},
}

_NO_REASON: Final = frozenset({Reason.NONE})
REASONS: Final = {
    Event.FAILED: frozenset(
        {Reason.NONE, Reason.CHANGED, Reason.ERROR, Reason.BUSY, Reason.STOPPING}
    ),
    Event.REFUSED: frozenset(
        {Reason.NO_ROOM, Reason.CHANGED, Reason.ERROR, Reason.BUSY, Reason.STOPPING}
    ),
    Event.REMOVED: frozenset({Reason.NONE, Reason.MEMORY}),
    Event.ENDED: frozenset({Reason.STOPPING}),
}
"""The Reasons with which an event may leave a File absent; of others, none."""

PASSING: Final = {
    Event.ORDERED: frozenset({Reason.NONE, Reason.BUSY}),
    Event.RETRIED: frozenset({Reason.NO_ROOM, Reason.BUSY}),
}
"""The Reasons of absence after which an event may come; others are final."""

WAKING: Final = frozenset(
    {Event.FAILED, Event.REFUSED, Event.EVICTED, Event.REMOVED},
)
"""Events after which waiting programs must look again; the others wait on."""


class IllegalTransition(AssertionError):
    """An event came to a Replica that cannot have it: a fault of the program."""


def advance(
    state: ReplicaState,
    event: Event,
    before: Reason = Reason.NONE,
    after: Reason = Reason.NONE,
) -> ReplicaState:
    """Return the state that follows an event.

    Args:
        before: why the File is absent, if it is.
        after: why it is absent from then on.

    Raises:
        IllegalTransition: the table does not have it.
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
    """Return the word that follows each legal change, without its Tier: for speed."""
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
        roots: a mark for each root: nothing below it is served any more.
        marks: a mark for each File and, behind those, for each directory.
        notify: tells programs that something is marked.
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
    """What a node knows of all Files, by number, and the memory of their states.

    Args:
        words: the state words.
        publish: writes a state word with release and wakes those who wait on it.
        name_of: the name of a File's Replica.
        inodes_of: the inodes of the Replicas of some Files in a Tier.
        inodes_in: the inodes of all Replicas that were ever in a Tier.
        bases: the first File of each root.
    """

    sizes: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint32]
    marks: WrittenMarks
    publish: Callable[[int, int], None]
    name_of: Callable[[int], str]
    inodes_of: Callable[[Sequence[int], int], list[int]]
    inodes_in: Callable[[int], list[int]]
    bases: Sequence[int] = (0,)


class Replicas:
    """The Files of a job with the states of their Replicas on this node.

    Attributes:
        words: the state words, to be read only.
    """

    def __init__(self, files: FileTable) -> None:
        self.sizes = files.sizes
        self.words = _read_only(files.words)
        self.name_of = files.name_of
        self.inodes_of = files.inodes_of
        self.inodes_in = files.inodes_in
        self._words = files.words
        self._publish = files.publish
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
        """Return those of some Files that are not marked by themselves."""
        found: Files = files[self._written.marks[files] == 0]
        return found

    def mark_written(self, file: int) -> None:
        """Never serve a File again: its Origin differs from the Catalog."""
        self._written.mark_changed(file)

    # -- states -----------------------------------------------------------------

    def is_absent(self, file: int) -> bool:
        """Return whether a File is absent and can be asked for."""
        return bool(self._words[file] == ABSENT)

    def is_due(self, file: int) -> bool:
        """Return whether a File can be asked for and is not written."""
        return self.is_absent(file) and not self.is_written(file)

    def ready_tier(self, file: int) -> int | None:
        """Return the Tier in which a File is ready; None: it is not."""
        word = int(self._words[file])
        return word // _TIER_UNIT % _TIERS if word % _TIER_UNIT == _READY else None

    def ready_in(self, tier: int) -> Files:
        """Return the Files whose Replica is ready in a Tier."""
        # Of a Replica that is ready, the place of the Reason says where it is from.
        sourceless = self._words % _REASON_UNIT
        return np.flatnonzero(sourceless == state_word(ReplicaState.READY, tier))

    def in_state(self, state: ReplicaState) -> npt.NDArray[np.bool_]:
        """Return which Files are in a state, whatever the Tier and the Reason."""
        found: npt.NDArray[np.bool_] = self._words % _TIER_UNIT == state
        return found

    def absent(self, reason: Reason) -> Files:
        """Return the Files that are absent for a Reason."""
        word = state_word(ReplicaState.ABSENT, reason=reason)
        return np.flatnonzero(self._words == word)

    def change(
        self, file: int, event: Event, *, tier: int = 0, reason: Reason = Reason.NONE
    ) -> None:
        """Carry out an event that has come to the Replica of a File.

        Args:
            tier: where it is from now on, unless it is absent.
            reason: why it is absent from now on.

        Raises:
            IllegalTransition: it cannot have come to it.
        """
        word = int(self._words[file])
        state = word % _TIER_UNIT
        # Of a Replica that is not absent, the place of the Reason means its source.
        before = 0 if state else word // _REASON_UNIT
        following = _LEGAL.get((state, event, before, reason))
        if following is None:
            advance(ReplicaState(state), event, Reason(before), reason)
            raise AssertionError("the two forms of the table differ")
        word = following + tier * _TIER_UNIT
        if event in WAKING:
            self._publish(file, word)
        else:
            self._words[file] = word

    def change_all(
        self,
        files: Files,
        event: Event,
        *,
        before: Reason = Reason.NONE,
        reason: Reason = Reason.NONE,
    ) -> None:
        """Carry out an event that leaves many Files absent and wakes nobody.

        Args:
            before: why all of them are absent, if they are.
            reason: why they are absent from now on.

        Raises:
            IllegalTransition: it cannot have come to one of them.
        """
        states = np.bincount(self._words[files] % _TIER_UNIT)
        for state in np.flatnonzero(states).tolist():
            advance(ReplicaState(state), event, before, reason)
        self._words[files] = state_word(ReplicaState.ABSENT, reason=reason)

    def retry(self, file: int, reason: Reason) -> bool:
        """Let a File that is absent for a Reason be asked for; False: it is not."""
        if self._words[file] != state_word(ReplicaState.ABSENT, reason=reason):
            return False
        self.change(file, Event.RETRIED)
        return True

    def retry_root(self, root: int, reason: Reason) -> None:
        """Let the Files of a root that are absent for a Reason be asked for."""
        start, end = [*self._bases, len(self.sizes)][root : root + 2]
        self.retry_all(np.arange(start, end), reason)

    def retry_all(self, files: Files, reason: Reason) -> None:
        """Let those of some Files that are absent for a Reason be asked for."""
        word = state_word(ReplicaState.ABSENT, reason=reason)
        passed = files[self._words[files] == word]
        self.change_all(passed, Event.RETRIED, before=reason)

    def end(self) -> None:
        """Withdraw every Replica from programs that live on: the agent ends."""
        files = np.arange(len(self.sizes))
        self.change_all(files, Event.ENDED, reason=Reason.STOPPING)


def _read_only(array: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Return a view of shared memory that refuses to be written."""
    view = array.view()
    view.flags.writeable = False
    return view
