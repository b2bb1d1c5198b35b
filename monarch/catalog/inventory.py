"""The Files of a job by their numbers: sizes, Extents and paths."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from monarch.catalog.segment import MappedRoot


class Inventory:
    """Answers what File number N of a job is.

    Attributes:
        sizes: bytes of each File.
        extent_first: where each File's Extents begin if all Extents are numbered in
            one row; one more than there are Files, so that the last is the total.
    """

    def __init__(self, roots: Sequence[MappedRoot], extent_bytes: int) -> None:
        self._roots = tuple(roots)
        counts = [root.block.file_count for root in roots]
        self._bases: list[int] = np.cumsum([0, *counts])[:-1].tolist()
        self.sizes: npt.NDArray[np.uint64] = np.concatenate(
            [np.empty(0, np.uint64), *(root.block.sizes() for root in roots)]
        )
        # An empty File has one Extent too, so that each has a place for a checksum.
        extents = np.maximum((self.sizes + (extent_bytes - 1)) // extent_bytes, 1)
        self.extent_first: npt.NDArray[np.uint64] = np.concatenate(
            [np.zeros(1, np.uint64), np.cumsum(extents, dtype=np.uint64)]
        )

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all Files."""
        return int(self.sizes.sum())

    def root_of(self, file: int) -> int:
        """Return the number of the root that a File belongs to."""
        if not 0 <= file < len(self):
            raise IndexError(f"File {file} of {len(self)}")
        return bisect_right(self._bases, file) - 1

    def relative(self, file: int) -> bytes:
        """Return the first root-relative path of a File."""
        number = self.root_of(file)
        block = self._roots[number].block
        return block.path(int(block.first_entry[file - self._bases[number]]))

    def path(self, file: int) -> bytes:
        """Return the absolute path of a File on its Origin."""
        return self._roots[self.root_of(file)].path + b"/" + self.relative(file)
