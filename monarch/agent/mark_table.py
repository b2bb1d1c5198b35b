"""The marks of written Files on one node, and which of them the others are told."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.peers.protocol.marks import ROOTS
from monarch.stager import WrittenMarks

PIECE_BYTES: Final = 1 << 20
# So many marks of one root are told one by one; with more of them, the root is told.
SINGLY_MAX: Final = 16_384

Numbers = npt.NDArray[np.int64]


class MarkTable:
    """The marks of this node, and which of them the other nodes know or are told.

    Args:
        marks: shared with programs.
        bases: the first File of each root, and then its first directory.
    """

    def __init__(self, marks: WrittenMarks, bases: Sequence[int]) -> None:
        self._marks = marks
        self._roots = marks.roots
        self._written = marks.marks
        self._bases = np.array(bases, np.int64)
        self._root_count = len(bases) // 2
        self._known = np.zeros_like(marks.marks)
        self._whole = np.zeros(self._root_count, bool)
        self._singly = np.zeros(self._root_count, np.int64)

    def __repr__(self) -> str:
        return f"<MarkTable {np.count_nonzero(self._known)} known>"

    def new_roots(self) -> list[int]:
        """Return the marks of roots that were set since the last call."""
        marked = self._roots[: self._root_count] != 0
        new = np.flatnonzero(marked & ~self._whole)
        self._whole[new] = True
        found: list[int] = new.tolist()
        return found

    def new_in(self, start: int) -> list[int]:
        """Return marks that were set in a piece of the table since the last call.

        A root of which there are too many is marked whole, for the others.
        """
        live = self._written[start : start + PIECE_BYTES]
        known = self._known[start : start + PIECE_BYTES]
        if np.array_equal(live, known):
            return []
        # Programs go on setting marks: what is looked at is looked at once.
        found = live.copy()
        new = np.flatnonzero(found != known)
        known[new] = found[new]
        return self._told(new + start)

    def _told(self, new: Numbers) -> list[int]:
        roots = self._roots_of(new)
        single = ~self._whole[roots]
        new, roots = new[single], roots[single]
        self._singly += np.bincount(roots, minlength=self._root_count)
        crowded = (self._singly > SINGLY_MAX) & ~self._whole
        self._whole |= crowded
        told: list[int] = np.flatnonzero(crowded).tolist()
        told += (new[~crowded[roots]] + ROOTS).tolist()
        return told

    def _roots_of(self, numbers: Numbers) -> Numbers:
        places = np.searchsorted(self._bases, numbers, side="right") - 1
        roots: Numbers = places % self._root_count
        return roots

    def set(self, marks: Sequence[int]) -> Numbers:
        """Set marks that another node has told; return those that are new here."""
        told = np.array(marks, np.int64)
        roots = told[told < self._root_count]
        self._marks.set_roots(roots)
        self._whole[roots] = True
        numbers = told[told >= ROOTS] - ROOTS
        numbers = numbers[numbers < len(self._written)]
        new: Numbers = numbers[self._known[numbers] == 0]
        self._marks.set(new)
        self._known[new] = self._written[new]
        self._marks.notify()
        return new

    @property
    def pieces(self) -> range:
        """Return where the pieces of the table start."""
        return range(0, len(self._written), PIECE_BYTES)
