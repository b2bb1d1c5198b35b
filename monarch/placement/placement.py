"""The nodes that keep and own each unit, the same on every node without messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.placement.hashing import CHUNK, Mask, Nodes, Numbers, Rendezvous
from monarch.placement.units import Bytes, Units

SPILL_MAX: Final = 8
"""The number of further nodes that are tried if the first one of a unit is full."""
TOGETHER_PARTS: Final = 2
"""The Extents of a large File have one owner if it takes at most 1 / TOGETHER_PARTS of
any node, and not every node keeps all: a File that is whole on a node is opened at full
speed there, and can be retained for later jobs."""


class Mode(Enum):
    """How many copies of a unit a job keeps."""

    PARTITION = "partition"
    REPLICATE = "replicate"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Copies:
    """The wanted number of copies of each unit.

    Args:
        count: replaces the number implied by the mode.
    """

    mode: Mode
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the frozen list.

    Args:
        capacity_bytes: the sum of the capacities of its Tiers.
    """

    name: str
    capacity_bytes: int


class Placement:
    """Decides the owner of each unit, and the units that each node keeps.

    A unit is a small File, or an Extent of a large one. First every unit gets one copy,
    at its owner: the first node of its order or, if that one is full, the next with
    free space. Further copies take the space that is left at the next nodes in order,
    so that none of them displaces a first copy.

    Args:
        needs: the bytes of a Tier that each File takes, by its number.
        digest: the digest of the Catalog.
        wanted: the wanted number of copies of each unit.

    Attributes:
        units: the division of the Files into units.
        needs: the bytes of a Tier that each unit takes.
        mode: the configured mode.
        copies: the wanted number of copies of each unit.
        owners: the owner of each unit; only the owner reads it from the Origin.
        placed: whether any node keeps the unit; if not, programs read the Origin.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        needs: Bytes,
        digest: int,
        wanted: Copies,
        units: Units,
    ) -> None:
        total = int(needs.sum())
        # No node can fill more space than all needs together: more adds no weight.
        usable = [min(node.capacity_bytes, total) for node in nodes]
        self.nodes = tuple(nodes)
        self.units = units
        self.needs = units.spread(needs)
        self.mode = wanted.mode
        self.copies = _wanted_copies(wanted, usable, total)
        self.rendezvous = Rendezvous([node.name for node in nodes], usable, digest)
        self._free = [node.capacity_bytes for node in nodes]
        everything = np.arange(len(units))
        rooms = [node.capacity_bytes for node in nodes]
        spread = self.copies == len(nodes) or not units.is_cut
        self._keys = None if spread else _keys(units, needs, rooms)
        self.owners: Nodes = self.rendezvous.best(self.keys_of(everything))
        self.placed: Mask = np.zeros(len(units), np.bool_)
        self._place(everything, self.owners)
        self._spill()

    def __repr__(self) -> str:
        return (
            f"<Placement of {len(self.units)} units on {len(self.nodes)} nodes, "
            f"{self.copies} copies wanted>"
        )

    def keys_of(self, units: Numbers) -> Numbers:
        """Return the numbers that determine the order of nodes for some units."""
        return self.units.rows_of(units) if self._keys is None else self._keys[units]

    def ranks(self, unit: int) -> Iterator[int]:
        """Yield all nodes in the order in which to ask for a unit, its owner first."""
        owner = int(self.owners[unit])
        row = int(self.keys_of(np.array([unit]))[0])
        yield owner
        yield from (node for node in self.rendezvous.ranks(row) if node != owner)

    def order(self, unit: int) -> list[int]:
        """Return all nodes in the order in which to ask for a unit, its owner first."""
        return list(self.ranks(unit))

    def kept(self, node: int) -> Mask:
        """Return the units that a node keeps."""
        held: Mask = self.placed & (self.owners == node)
        if self.copies > 1:
            for _, units in self.holdings([node]):
                held[units] = True
        return held

    def holdings(self, nodes: Sequence[int]) -> Iterator[tuple[int, Numbers]]:
        """Yield the units that some nodes keep, in ascending parts for each node."""
        if self.copies == 1:
            yield from self._owned(nodes)
            return
        free = list(self._free)
        chosen = set(nodes)
        groups = [
            number
            for number, group in enumerate(self.rendezvous.groups)
            if not chosen.isdisjoint(group.tolist())
        ]
        for start in range(0, len(self.units), CHUNK):
            units = np.arange(start, min(start + CHUNK, len(self.units)))
            units = units[self.placed[units]]
            for number in groups:
                yield from self._held(units, number, chosen, free)

    def _owned(self, nodes: Sequence[int]) -> Iterator[tuple[int, Numbers]]:
        """Yield the units that some nodes own and keep."""
        placed = np.flatnonzero(self.placed)
        owners = self.owners[placed]
        order = np.argsort(owners, kind="stable")
        starts = np.searchsorted(owners[order], np.arange(len(self.nodes) + 1))
        for node in nodes:
            yield node, placed[order[starts[node] : starts[node + 1]]]

    def _held(
        self, units: Numbers, number: int, chosen: set[int], free: list[int]
    ) -> Iterator[tuple[int, Numbers]]:
        """Yield the units that the nodes of one group keep, placing further copies."""
        rows = self.keys_of(units)
        mask = self.rendezvous.among_first(rows, self.copies, number)
        owners = self.owners[units]
        for line, node in enumerate(self.rendezvous.groups[number].tolist()):
            if node not in chosen:
                continue
            held = owners == node
            wanted = np.flatnonzero(mask[line] & ~held)
            needs = self.needs[units[wanted]]
            taken = fitting(needs, free[node])
            free[node] -= int(needs[taken].sum())
            held[wanted[taken]] = True
            yield node, units[held]

    def _place(self, units: Numbers, wanted: Nodes) -> None:
        """Place each unit at its wanted node, if it fits there."""
        places = np.argsort(wanted, kind="stable")
        found, starts = np.unique(wanted[places], return_index=True)
        for node, where in zip(
            found.tolist(), np.split(places, starts[1:]), strict=False
        ):
            offered = units[where]
            taken = offered[fitting(self.needs[offered], self._free[node])]
            self._free[node] -= int(self.needs[taken].sum())
            self.owners[taken] = node
            self.placed[taken] = True

    def _spill(self) -> None:
        """Place units whose first node is full at the next nodes with free space."""
        left = np.flatnonzero(~self.placed & (self.needs <= np.uint64(max(self._free))))
        # Units that cannot fit, whatever the order, are left out.
        needs = self.needs[left]
        left = left[np.cumsum(needs) - needs < np.uint64(sum(self._free))]
        choices = self.rendezvous.first(self.keys_of(left), 1 + SPILL_MAX)
        for column in choices.T[1:]:
            waiting = ~self.placed[left]
            self._place(left[waiting], column[waiting])


def _keys(units: Units, needs: Bytes, rooms: Sequence[int]) -> Numbers:
    """Return a number for each unit, the same for Extents that stay together.

    Args:
        needs: the bytes of a Tier that each File takes.
        rooms: the bytes of each node.
    """
    least = min((room for room in rooms if room), default=0)
    together = units.is_large & (needs <= np.uint64(least // TOGETHER_PARTS))
    counts = np.diff(units.first)
    firsts = np.repeat(units.rows_of(units.first[:-1]), counts)
    own = units.rows_of(np.arange(len(units)))
    keys: Numbers = np.where(np.repeat(together, counts), firsts, own)
    return keys


def _wanted_copies(wanted: Copies, usable: Sequence[int], total: int) -> int:
    mode = wanted.mode
    if wanted.count is not None:
        return min(wanted.count, len(usable))
    if mode is Mode.REPLICATE:
        return len(usable)
    if mode is Mode.PARTITION or not total:
        return 1
    return max(1, sum(usable) // total)


def fitting(needs: Bytes, free_bytes: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the units that fit, in their order and without splitting any.

    A unit that does not fit is skipped, and smaller ones after it may still fit.
    """
    ends = np.cumsum(needs, dtype=np.uint64)
    taken: npt.NDArray[np.bool_] = ends <= np.uint64(free_bytes)
    if taken.all():
        return taken
    head = int(np.argmin(taken))
    taken[head:] = False
    left = free_bytes - (int(ends[head - 1]) if head else 0)
    rest = head + np.flatnonzero(needs[head:] <= np.uint64(left))
    for place, need in zip(rest.tolist(), needs[rest].tolist(), strict=True):
        if need <= left:
            taken[place] = True
            left -= need
    return taken
