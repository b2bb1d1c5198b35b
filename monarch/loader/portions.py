"""Portions: the units of reading, and the layout of their Records in a buffer.

A portion is a Group or, if all Records are shuffled, a batch of a rank. A buffer begins
with a table of the Records; their bytes follow request by request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from monarch.loader.order import Batches, EpochOrder, RecordOrder
from monarch.records.groups import lying_order, request_marks
from monarch.records.index import Range, RecordIndex
from monarch.records.keys import UNKNOWN_LENGTH

Array = npt.NDArray[Any]

ROW: Final = np.dtype([("start", "<u8"), ("length", "<u4"), ("request", "<u4")])
"""A Record in a buffer: its start, its length, and the request that reads it."""
ALIGN: Final = 64
GAP_ALONE: Final = 16 << 10
"""Largest gap between Records of a batch that is read with them."""
_EPOCHS_KEPT: Final = 2
EVERYBODY: Final = -1
"""The owner of a portion that each rank uses."""


class Key(NamedTuple):
    """Identifies a portion; portions are read in the order of their keys.

    Attributes:
        position: position in the order of the epoch.
        owner: the only rank that uses it, or EVERYBODY.
        start: the place at which the batches of the epoch begin, if it has an owner.
    """

    epoch: int
    position: int
    owner: int = EVERYBODY
    start: int = 0


def keys_of(spans: Sequence[Sequence[int]], owner: int) -> list[Key]:
    """Return the portions of spans `epoch, low, high, start` of positions."""
    return [
        Key(epoch, position, owner, 0 if owner == EVERYBODY else start)
        for epoch, low, high, start in spans
        for position in range(low, high)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """The units of a portion, by object and offset.

    Attributes:
        starts: start of each request in `units`, then the number of units.
    """

    index: RecordIndex
    units: Array
    starts: Array

    @property
    def records(self) -> Array:
        """Return the numbers of the Records, in the order of the table."""
        firsts = self.index.first_records
        if firsts is None:
            return self.units
        parts = [np.arange(firsts[unit], firsts[unit + 1]) for unit in self.units]
        return np.concatenate(parts).astype(np.int64)

    @property
    def reads_each_alone(self) -> bool:
        """Whether each unit is read by its own request."""
        return len(self.starts) == len(self.units) + 1

    def requests(self) -> Requests:
        """Return the range of bytes of each request."""
        units = self.index.units[self.units]
        offsets = units["offset"].astype(np.int64)
        lengths = units["length"].astype(np.int64)
        if self.reads_each_alone:
            return Requests(units["object"], offsets, lengths)
        first = self.starts[:-1]
        lengths = np.maximum.reduceat(offsets + lengths, first) - offsets[first]
        return Requests(units["object"][first], offsets[first], lengths)

    @property
    def has_unknown_lengths(self) -> bool:
        """Whether the length of a Record is unknown before it is read."""
        keys = self.index.keys
        if keys is None or self.index.is_decoded:
            return False
        return bool((self.index.units["length"][self.units] == UNKNOWN_LENGTH).any())

    def unit_ranges(self) -> list[Range]:
        """Return the range of bytes of each unit."""
        return [self.index.range_of(unit) for unit in self.units.tolist()]

    def layout(self, requests: Requests) -> Layout:
        """Return the layout of the Records in a buffer; not for decoded units.

        Args:
            requests: the result of `requests`.
        """
        table = np.empty(len(self.units), ROW)
        sizes = aligned(requests.lengths)
        ends = aligned(table.nbytes) + np.cumsum(sizes)
        begins = ends - sizes
        if self.reads_each_alone:
            table["start"] = begins
            table["length"] = requests.lengths
            table["request"] = np.arange(len(table))
        else:
            units = self.index.units[self.units]
            numbers = np.repeat(np.arange(len(begins)), np.diff(self.starts))
            starts = (begins - requests.offsets)[numbers]
            table["start"] = starts + units["offset"].astype(np.int64)
            table["length"] = units["length"]
            table["request"] = numbers
        return Layout(table, begins, int(aligned(table.nbytes) + sizes.sum()))


class Requests(NamedTuple):
    """The ranges of bytes of some requests; the attributes are those of Range."""

    objects: Array
    offsets: Array
    lengths: Array

    def ranges(self) -> list[Range]:
        """Return the ranges one by one."""
        columns = (column.tolist() for column in self)
        return list(map(Range._make, zip(*columns, strict=True)))


class Layout(NamedTuple):
    """The layout of the buffer of a portion.

    Attributes:
        table: table of type ROW, at the start of the buffer.
        begins: offset of the bytes of each request.
        bytes: size of the whole buffer.
    """

    table: Array
    begins: Array
    bytes: int


def aligned(size: Any) -> Any:
    """Return a size, or an array of sizes, rounded up to ALIGN."""
    return (size + ALIGN - 1) // ALIGN * ALIGN


class Portions:
    """The portions of all epochs.

    Args:
        batches: the distribution to ranks, for rank 0.
    """

    def __init__(self, order: RecordOrder, batches: Batches) -> None:
        self.order = order
        self._batches = batches
        self._epochs: dict[int, EpochOrder] = {}

    def __repr__(self) -> str:
        return f"<Portions of {self.order!r}>"

    @property
    def is_shared(self) -> bool:
        """Return whether each rank uses each portion."""
        return self.order.shuffle != "global"

    def epoch(self, number: int) -> EpochOrder:
        """Return the order of an epoch.

        Two are kept: the start of the next epoch is read while this one ends.
        """
        found = self._epochs.get(number)
        if found is None:
            if len(self._epochs) >= _EPOCHS_KEPT:
                del self._epochs[min(self._epochs)]
            found = self._epochs[number] = self.order.epoch(number)
        return found

    def paths(self, epoch: int) -> list[str]:
        """Return the objects in the order of their first use in an epoch.

        If all Records are shuffled, all objects are used from the start, so their order
        is that of the index.
        """
        groups, index = self.order.groups, self.order.groups.index
        objects = index.units["object"][groups.order]
        if self.is_shared and len(groups):
            of_groups = np.split(objects, groups.starts[1:-1])
            order = self.order.epoch(epoch).groups
            objects = np.concatenate([of_groups[group] for group in order])
        _, first = np.unique(objects, return_index=True)
        return [index.objects[objects[place]].path for place in np.sort(first)]

    def find(self, key: Key) -> Portion:
        """Return a portion."""
        index = self.order.groups.index
        if not self.is_shared:
            return self._of_batch(key)
        group = int(self.epoch(key.epoch).groups[key.position])
        groups = self.order.groups
        first, end = int(groups.starts[group]), int(groups.starts[group + 1])
        begin, stop = np.searchsorted(groups.requests, (first, end))
        starts = groups.requests[begin : stop + 1] - first
        return Portion(index, groups.order[first:end], starts)

    def _of_batch(self, key: Key) -> Portion:
        batches = replace(self._batches, rank=key.owner, start=key.start)
        every = self.epoch(key.epoch).every
        assert every is not None
        return portion_of(self.order.groups.index, every[batches.places(key.position)])


def portion_of(index: RecordIndex, records: Sequence[int] | Array) -> Portion:
    """Return the portion that holds some Records."""
    units = np.unique(np.asarray(records, np.int64))
    if index.is_keyed and not index.is_decoded:
        return Portion(index, units, np.arange(len(units) + 1))
    if index.first_records is not None:
        found = np.searchsorted(index.first_records, units, "right") - 1
        units = np.unique(found)
    units = units[lying_order(index.units[units])]
    marks = request_marks(index.units[units], GAP_ALONE)
    return Portion(index, units, np.append(np.flatnonzero(marks), len(units)))
