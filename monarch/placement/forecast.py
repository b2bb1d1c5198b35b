"""The effects of a Placement: the contents of each node, and reads from the Origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monarch.placement.hashing import Numbers
from monarch.placement.placement import Placement
from monarch.placement.units import Bytes, Units


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a dataset that one node keeps.

    Args:
        held_files: the Files that it keeps whole.
        part_files: the large Files of which it keeps some Extents.
        held_bytes: the sum of the sizes of both.
        room_bytes: the bytes that they take in the Tiers.
        owned_files: the Files that get another owner if this node is lost; it may own
            only some Extents of a large File.
        only_here_bytes: the bytes that are then read from the Origin again.
    """

    name: str
    capacity_bytes: int
    held_files: int
    part_files: int
    held_bytes: int
    room_bytes: int
    owned_files: int
    only_here_bytes: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The part of a dataset that a cluster keeps.

    Args:
        room_bytes: the bytes that one copy of each File takes in the Tiers.
        held_files: Files with a copy, on one node or in parts on several.
        partly_held_files: large Files of which only some Extents fit.
        held_bytes: the bytes with a copy.
        copies: the average number of copies of small Files and Extents that are kept.
    """

    shares: tuple[Share, ...]
    files: int
    total_bytes: int
    room_bytes: int
    held_files: int
    partly_held_files: int
    held_bytes: int
    copies: float

    @property
    def left_bytes(self) -> int:
        """The bytes without a copy on any node."""
        return self.total_bytes - self.held_bytes

    def origin_bytes(self, epochs: int, readers: int) -> int:
        """Return the bytes that a whole job reads from the Origin.

        Args:
            readers: the number of nodes that read each File in an epoch: one if they
                share the dataset between them, all if each reads everything.
        """
        return (self.held_bytes if epochs else 0) + epochs * readers * self.left_bytes


class _Files:
    """Counts the Files that nodes keep whole and those that they keep in part.

    Attributes:
        whole: the Files kept whole, by node number.
        part: the Files kept in part, by node number.
    """

    def __init__(self, units: Units, nodes: int) -> None:
        self.whole = np.zeros(nodes, np.intp)
        self.part = np.zeros(nodes, np.intp)
        self._is_cut = units.is_cut
        self._file_of = units.file_of
        self._lengths = np.diff(units.first)
        # The last File of each node, and the number of its units so far.
        self._last = np.full(nodes, -1)
        self._length = np.zeros(nodes, np.intp)

    def add(self, node: int, units: Numbers) -> None:
        """Count units that a node keeps; they must be added in ascending order."""
        if not self._is_cut:
            self.whole[node] += len(units)
            return
        files = self._file_of[units]
        starts = np.flatnonzero(np.diff(files, prepend=-1))
        if not len(starts):
            return
        files, lengths = files[starts], np.diff(starts, append=len(units))
        if files[0] == self._last[node]:
            lengths[0] += self._length[node]
        else:
            self._end([node])
        is_whole = lengths[:-1] == self._lengths[files[:-1]]
        self.whole[node] += np.count_nonzero(is_whole)
        self.part[node] += np.count_nonzero(~is_whole)
        self._last[node], self._length[node] = files[-1], lengths[-1]

    def finish(self) -> None:
        """Count the last File of each node, after all units were added."""
        self._end(range(len(self._last)))

    def _end(self, nodes: Sequence[int]) -> None:
        """Count the last File of some nodes."""
        begun = np.array(nodes)[self._last[nodes] >= 0]
        is_whole = self._length[begun] == self._lengths[self._last[begun]]
        self.whole[begun] += is_whole
        self.part[begun] += ~is_whole


def forecast(placement: Placement, sizes: Bytes) -> Forecast:
    """Count the Files and bytes that each node keeps under a Placement.

    Args:
        sizes: the bytes of each File, by its number.
    """
    count, units = len(placement.nodes), placement.units
    owners, placed = placement.owners, placement.placed
    lengths, needs = units.spread(sizes), placement.needs
    files = _Files(units, count)
    # Sums of 64 bits: floating-point weights would lose bytes above 2**53.
    sums = np.zeros((2, count), np.uint64)
    copies = np.zeros(len(units), np.uint16)
    for node, held in placement.holdings(range(count)):
        files.add(node, held)
        sums[0, node] += lengths[held].sum()
        sums[1, node] += needs[held].sum()
        copies[held] += 1
    files.finish()
    alone = copies == 1
    only_here = np.zeros(count, np.uint64)
    np.add.at(only_here, owners[alone], lengths[alone])
    owned = _owned_files(placement)
    columns = np.stack([files.whole, files.part, *sums, owned, only_here])
    some, whole = units.any_of(placed), units.all_of(placed)
    held_units = int(placed.sum())
    return Forecast(
        shares=tuple(
            Share(node.name, node.capacity_bytes, *row)
            for node, row in zip(
                placement.nodes, columns.astype(np.int64).T.tolist(), strict=True
            )
        ),
        files=len(sizes),
        total_bytes=int(sizes.sum()),
        room_bytes=int(needs.sum()),
        held_files=int(whole.sum()),
        partly_held_files=int((some & ~whole).sum()),
        held_bytes=int(lengths[placed].sum()),
        copies=float(copies.sum()) / held_units if held_units else 0.0,
    )


def _owned_files(placement: Placement) -> Numbers:
    """Return the number of Files with a unit owned by each node."""
    count = len(placement.nodes)
    pairs = placement.units.file_of * count + placement.owners
    if placement.units.is_cut:
        pairs = np.unique(pairs)
    return np.bincount(pairs % count, minlength=count)
