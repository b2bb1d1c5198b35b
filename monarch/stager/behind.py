"""Files behind links to directories outside a dataset: fill stages them on demand only.

A link may add far more data than its dataset holds. So background fill stages the
dataset's own files first, and those behind a link only after a program opened one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.native import ReplicaState

Groups = npt.NDArray[np.int32]
Files = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

OWN: Final = 0
"""The group of Files that have a name of their own in a dataset."""
LOOK_S: Final = 1.0
"""The time between two searches for opened Files; a search takes up to 10 ms."""


class Behind:
    """The Files that fill does not stage for now.

    Args:
        groups: for each File OWN, or the number of the link that leads to it.
        links: the paths of these links, numbered from 1.
        clock: monotonic seconds.
    """

    def __init__(
        self, groups: Groups, links: Sequence[str], clock: Callable[[], float]
    ) -> None:
        self.links = tuple(links)
        self._groups = groups
        self._clock = clock
        self._looked_s = -LOOK_S
        self._closed = set(range(1, len(links) + 1))

    def __repr__(self) -> str:
        return f"<Behind {len(self._closed)} of {len(self.links)} links closed>"

    def open_all(self) -> None:
        """Let fill stage everything, as before a job."""
        self._closed.clear()

    def note_opened(self, in_state: Callable[[ReplicaState], Mask]) -> bool:
        """Search for opened Files; return whether fill may stage more.

        Args:
            in_state: returns which Files are in a state.
        """
        now_s = self._clock()
        if not self._closed or now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        asked = np.unique(self._groups[~in_state(ReplicaState.ABSENT)])
        opened = self._closed.intersection(asked.tolist())
        self._closed -= opened
        return bool(opened)

    def order(self, files: Files) -> Files:
        """Return the Files that fill may stage: the dataset's own Files first."""
        if not self.links:
            return files
        groups = self._groups[files]
        closed = np.isin(groups, np.fromiter(self._closed, np.int32))
        own, behind = groups == OWN, (groups != OWN) & ~closed
        return np.concatenate([files[own], files[behind]])


NOTHING_BEHIND: Final = Behind(np.zeros(0, np.int32), (), lambda: 0.0)
"""For datasets without such links."""
