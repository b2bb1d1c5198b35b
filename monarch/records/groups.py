"""Groups: consecutive Records that are read together by a few large requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.records.index import Range, RecordIndex, Units

Array = npt.NDArray[Any]

GAP_MAX: Final = 256 << 10
"""Units with a smaller gap between them are read by one request: the bytes of the gap
cost less than another request."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The units of an index in groups, each of about the same size.

    Attributes:
        index: the index of the units.
        order: the units by object and offset.
        starts: start of each group in `order`, then the length of `order`.
        requests: start of each request in `order`, then its length; no request spans
            two groups.
    """

    index: RecordIndex
    order: Array
    starts: Array
    requests: Array

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"<Groups {len(self)} of {self.index!r}>"

    def units(self, group: int) -> Array:
        """Return the units of a group, by object and offset."""
        return self.order[self.starts[group] : self.starts[group + 1]]

    def records(self, group: int) -> Array:
        """Return the numbers of the Records of a group, by object and offset."""
        units = self.units(group)
        firsts = self.index.first_records
        if firsts is None:
            return units
        parts = [np.arange(firsts[unit], firsts[unit + 1]) for unit in units]
        return np.concatenate(parts).astype(np.int64)

    def ranges(self, group: int) -> list[Range]:
        """Return the requests that read a group."""
        first, end = self.starts[group], self.starts[group + 1]
        begin = int(np.searchsorted(self.requests, first))
        found = []
        while self.requests[begin] < end:
            row, stop = self.requests[begin], self.requests[begin + 1]
            units = self.index.units[self.order[row:stop]]
            offset = int(units["offset"][0])
            length = int((units["offset"] + units["length"]).max()) - offset
            found.append(Range(int(units["object"][0]), offset, length))
            begin += 1
        return found

    def record_counts(self) -> Array:
        """Return the number of Records of each group."""
        counts = np.diff(self.starts)
        if self.index.first_records is None:
            return counts
        rows = np.diff(self.index.first_records)[self.order].astype(np.int64)
        return np.add.reduceat(rows, self.starts[:-1]) if len(self) else counts

    def request_bytes(self) -> Array:
        """Return the bytes that the requests of each group read."""
        if not len(self):
            return np.zeros(0, np.int64)
        units = self.index.units[self.order]
        first = self.requests[:-1]
        ends = np.maximum.reduceat(units["offset"] + units["length"], first)
        sizes = (ends - units["offset"][first]).astype(np.int64)
        begins = np.searchsorted(self.requests, self.starts[:-1])
        return np.add.reduceat(sizes, begins)

    def cost(self) -> tuple[int, int]:
        """Return the number of requests for all groups, and their bytes."""
        return len(self.requests) - 1, int(self.request_bytes().sum())


def group(index: RecordIndex, group_bytes: int, gap_max: int = GAP_MAX) -> Groups:
    """Divide the units of an index into groups of consecutive units.

    Args:
        group_bytes: the bytes of the units of a group, rounded up to whole units.
        gap_max: larger gaps are not read.
    """
    order = lying_order(index.units)
    if not len(order):
        empty = np.zeros(1, np.int64)
        return Groups(index, order, empty, empty)
    units = index.units[order]
    before = np.cumsum(units["length"], dtype=np.int64) - units["length"]
    is_first = _changes(before // max(1, group_bytes))
    starts = _starts(is_first | request_marks(units, gap_max))
    return Groups(index, order, _starts(is_first), starts)


def lying_order(units: Units) -> Array:
    """Return the order of units by object and offset."""
    return np.lexsort((units["offset"], units["object"]))


def request_marks(units: Units, gap_max: int = GAP_MAX) -> Array:
    """Return which units begin a request.

    Args:
        units: units by object and offset.
        gap_max: larger gaps are not read.
    """
    begins = _changes(units["object"])
    ends = units["offset"].astype(np.int64) + units["length"]
    begins[1:] |= units["offset"][1:].astype(np.int64) > ends[:-1] + gap_max
    return begins


def _changes(values: Array) -> Array:
    """Return where a value differs from the previous one; the first always counts."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found


def _starts(marks: Array) -> Array:
    return np.append(np.flatnonzero(marks), len(marks))
