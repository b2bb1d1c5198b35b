"""The division of Files into units, each of which is placed by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.native import CONSTANTS
from monarch.placement.hashing import Mask, Numbers

Bytes: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The units of placement: a small File, or an Extent of a large one.

    The staging table has a row for each Extent, even if a small File has several.

    Attributes:
        first: the first unit of each File, and the number of all units.
        rows: the number of rows.
        first_rows: the first row of each unit; None: each unit is the row of its
            number.
    """

    first: Numbers
    rows: int
    first_rows: Numbers | None

    @classmethod
    def of(cls, first_rows: Bytes, large: npt.NDArray[Any]) -> Units:
        """Return the units of Files.

        Args:
            first_rows: the first row of each File, and the number of all rows.
            large: the numbers of the large Files.
        """
        # The same memory as signed numbers: unsigned ones become floats in sums.
        rows = first_rows.view(np.intp)
        counts = np.ones(len(rows) - 1, np.intp)
        counts[large] = np.diff(rows)[large]
        total = int(counts.sum())
        if total == rows[-1]:
            return cls(rows, total, None)
        first = np.zeros_like(rows)
        np.cumsum(counts, out=first[1:])
        starts = np.repeat(rows[:-1] - first[:-1], counts) + np.arange(total)
        return cls(first, int(rows[-1]), starts)

    @classmethod
    def whole(cls, first_rows: Bytes) -> Units:
        """Return Units in which each File is one unit, whatever its size."""
        return cls.of(first_rows, np.zeros(0, np.intp))

    def __repr__(self) -> str:
        return f"<{len(self)} Units of {self.files} files>"

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def files(self) -> int:
        """The number of Files."""
        return len(self.first) - 1

    @property
    def is_cut(self) -> bool:
        """Whether any File has more than one unit."""
        return len(self) > self.files

    @property
    def is_large(self) -> Mask:
        """A mask of the Files with more than one unit."""
        if not self.is_cut:
            return np.zeros(self.files, np.bool_)
        found: Mask = np.diff(self.first) > 1
        return found

    @property
    def file_of(self) -> Numbers:
        """The File of each unit."""
        return np.repeat(np.arange(self.files), np.diff(self.first))

    @property
    def of_rows(self) -> Numbers:
        """The unit of each row."""
        if self.first_rows is None:
            return np.arange(self.rows)
        starts = self.rows_of(np.arange(len(self)))
        return np.repeat(np.arange(len(self)), np.diff(starts, append=self.rows))

    def rows_of(self, units: Numbers) -> Numbers:
        """Return the first row of each of some units.

        It determines the order of nodes, which so stays the same if Files are divided
        differently.
        """
        return units if self.first_rows is None else self.first_rows[units]

    def spread(self, totals: Bytes) -> Bytes:
        """Return the bytes of each unit from those of each File.

        All Extents of a large File except the last one are full.
        """
        if not self.is_cut:
            return totals
        extent = CONSTANTS["EXTENT_BYTES"]
        found = np.full(len(self), extent, np.uint64)
        before = (np.diff(self.first) - 1).astype(np.uint64) * np.uint64(extent)
        found[self.first[1:] - 1] = totals - before
        return found

    def any_of(self, units: Mask) -> Mask:
        """Return a mask of the Files with at least one of these units."""
        if not self.is_cut:
            return units
        found: Mask = np.logical_or.reduceat(units, self.first[:-1])
        return found

    def all_of(self, units: Mask) -> Mask:
        """Return a mask of the Files whose units are all among these."""
        if not self.is_cut:
            return units
        found: Mask = np.logical_and.reduceat(units, self.first[:-1])
        return found
