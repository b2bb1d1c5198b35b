"""The Files of a job as the agent sees and marks them in shared memory."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monarch.native import CONSTANTS, Reason, ReplicaState, state_word

TIER_UNIT = CONSTANTS["STATE_TIER_UNIT"]
REASON_UNIT = CONSTANTS["STATE_REASON_UNIT"]
ABSENT = int(ReplicaState.ABSENT)
READY = int(ReplicaState.READY)


@dataclass(frozen=True, slots=True)
class FileTable:
    """Sizes, names, state words and written marks of all Files, by File number.

    Args:
        words: the state words; the engine stores READY, the agent everything else.
        written: one sticky mark per File; programs set it too.
        passes: whether the whole root of a File passes through.
        store: writes a state word with release and wakes those who wait on it.
        name_of: the name of a File's Replica.
        inodes_of: the inodes of the Replicas of some Files in a Tier.
        inodes_in: the inodes of all Replicas that were ever in a Tier.
        bases: the first File of each root.
    """

    sizes: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint32]
    written: npt.NDArray[np.uint8]
    passes: Callable[[int], bool]
    store: Callable[[int, int], None]
    name_of: Callable[[int], str]
    inodes_of: Callable[[Sequence[int], int], list[int]]
    inodes_in: Callable[[int], list[int]]
    bases: Sequence[int] = (0,)

    def root_of(self, file: int) -> int:
        """Return the number of the root that a File belongs to."""
        return bisect_right(self.bases, file) - 1

    def files_of(self, root: int) -> slice:
        """Return the Files of a root."""
        return slice(*[*self.bases, len(self.sizes)][root : root + 2])

    def ready_in(self, tier: int) -> npt.NDArray[np.int64]:
        """Return the Files whose Replica is ready in a Tier."""
        sourceless = self.words % REASON_UNIT
        return np.flatnonzero(sourceless == state_word(ReplicaState.READY, tier))

    def is_ready_in(self, file: int, tier: int) -> bool:
        """Return whether the Replica of a File is ready in this Tier."""
        word = int(self.words[file]) % REASON_UNIT
        return word == state_word(ReplicaState.READY, tier)

    def absent(self, reason: Reason) -> npt.NDArray[np.int64]:
        """Return the Files that are absent for a reason."""
        word = state_word(ReplicaState.ABSENT, reason=reason)
        return np.flatnonzero(self.words == word)

    def is_written(self, file: int) -> bool:
        """Return whether a File is marked, by itself or with its root."""
        return bool(self.written[file]) or self.passes(file)

    def is_due(self, file: int) -> bool:
        """Return whether a File is absent, worth staging and not written."""
        return self.words[file] == ABSENT and not self.is_written(file)
