"""The destination of each unit on this node, and the order of its Sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.native import NO_SOURCE, SOURCES_MAX, TABLE_ROW
from monarch.placement import Mode, Placement, Units

Files: TypeAlias = npt.NDArray[np.uint32]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Destination(IntEnum):
    """The destination on this node of a small File, or of an Extent of a large one."""

    NOWHERE = 0
    """It fits on no node: programs read the Origin."""
    TIER = 1
    """A Tier of this node, which keeps it."""
    SPARE = 2
    """A Tier, as long as no kept File needs the space; else the Pool."""
    POOL = 3
    """The Pool; but the same as SPARE if this node had to read the Origin."""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """The treatment of each unit on a node, by its number; a value without state.

    A unit is a small File, or an Extent of a large one. Methods that take a File use
    the first unit of a large File.

    Attributes:
        own: the number of this node.
        nodes: the number of nodes.
        units: the division of the Files into units.
        owners: the node that reads a unit from the Origin while it is alive.
        destinations: the `Destination` of each unit.
        ranks: yields all nodes in the order in which a unit is requested from them, its
            owner first.
        asked: the first peers for each unit, in order, then NO_SOURCE; shape
            (units, SOURCES_MAX). They are the first ones that `sources` yields.
        uses_pool: whether a File that fits no Tier goes through the Pool.
        to_read: the Files that background fill reads from the Origin, in order; and
            each large File with kept Extents: they are fetched from their owners.
        to_fetch: the Files that it fetches from peers, in order.
    """

    own: int
    nodes: int
    units: Units
    owners: npt.NDArray[np.uint16]
    destinations: npt.NDArray[np.uint8]
    ranks: Callable[[int], Iterator[int]]
    asked: npt.NDArray[np.uint16]
    uses_pool: bool
    to_read: Files
    to_fetch: Files

    def __repr__(self) -> str:
        return f"<Policy of node {self.own} of {self.nodes}>"

    @classmethod
    def alone(cls, units: Units) -> Policy:
        """Return the Policy of a node that works alone: it reads and keeps all."""
        count = len(units)
        return cls(
            own=0,
            nodes=1,
            units=units,
            owners=np.zeros(count, np.uint16),
            destinations=np.full(count, Destination.TIER, np.uint8),
            ranks=lambda unit: iter((0,)),
            asked=np.full((count, SOURCES_MAX), NO_SOURCE, np.uint16),
            uses_pool=False,
            to_read=np.arange(units.files, dtype=np.uint32),
            to_fetch=np.zeros(0, np.uint32),
        )

    @classmethod
    def cluster(cls, placement: Placement, own: int) -> Policy:
        """Return the Policy of a node of a cluster.

        Fill processes the Files in the order of the Catalog: so owners already have
        the Files that others fetch first when they are requested.
        """
        units = placement.units
        kept, owned = placement.kept(own), placement.owners == own
        partition = placement.mode is Mode.PARTITION
        others = Destination.POOL if partition else Destination.SPARE
        elsewhere = np.where(placement.placed, others, Destination.NOWHERE)
        files = units.any_of(kept)
        reads = owned[units.first[:-1]] | units.is_large
        return cls(
            own=own,
            nodes=len(placement.nodes),
            units=units,
            owners=placement.owners,
            destinations=np.where(kept, Destination.TIER, elsewhere).astype(np.uint8),
            ranks=placement.ranks,
            asked=first_sources(placement, own),
            uses_pool=True,
            to_read=np.flatnonzero(files & reads).astype(np.uint32),
            to_fetch=np.flatnonzero(files & ~reads).astype(np.uint32),
        )

    # -- all units ----------------------------------------------------------------

    @property
    def kept(self) -> Mask:
        """The units that this node keeps."""
        found: Mask = self.destinations == Destination.TIER
        return found

    @property
    def placed(self) -> Mask:
        """The units that some node keeps."""
        found: Mask = self.destinations != Destination.NOWHERE
        return found

    @property
    def kept_whole(self) -> Mask:
        """The Files that this node keeps whole."""
        return self.units.all_of(self.kept)

    @property
    def to_read_in_part(self) -> Files:
        """The Files that fill reads from the Origin and peers: large ones, in order."""
        return self.to_read[self.units.is_large[self.to_read]]

    def rows(self) -> npt.NDArray[Any]:
        """Return the rows of the staging table: all rows of a unit are equal."""
        rows = np.zeros(self.units.rows, TABLE_ROW)
        units = self.units.of_rows
        rows["destination"] = self.destinations[units]
        rows["sources"] = self.asked[units]
        return rows

    # -- single Files -------------------------------------------------------------

    def destination(self, file: int) -> int:
        """Return the destination of a File, as the number of a `Destination`."""
        return int(self.destinations[self.units.first[file]])

    def owner(self, file: int) -> int:
        """Return the node that reads a File from the Origin while it is alive."""
        return int(self.owners[self.units.first[file]])

    def owns(self, file: int) -> bool:
        """Return whether this node is a File's owner."""
        return self.owner(file) == self.own

    def owned(self, files: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the given Files that this node owns."""
        found: npt.NDArray[np.int64] = files[
            self.owners[self.units.first[files]] == self.own
        ]
        return found

    def sources(self, file: int) -> Iterator[int]:
        """Yield the peers to ask for a File, in order; the Origin is the last resort.

        These are the nodes before this one in the File's order: so requests move
        towards its owner and never in a circle.
        """
        for node in self.ranks(int(self.units.first[file])):
            if node == self.own:
                return
            yield node


def first_sources(placement: Placement, own: int) -> npt.NDArray[np.uint16]:
    """Return the first peers to ask for each unit: its owner, then the next nodes.

    This node and those after it are left out: requests move towards the owner.
    """
    owners = placement.owners
    asked = np.full((len(owners), SOURCES_MAX), NO_SOURCE, np.uint16)
    # Units whose order has not reached this node yet, and the number of their peers.
    before = owners != own
    asked[before, 0] = owners[before]
    counts = before.astype(np.uint8)
    rows = placement.keys_of(np.arange(len(owners)))
    for nodes in placement.rendezvous.first(rows, SOURCES_MAX + 1).T:
        before &= nodes != own
        units = np.flatnonzero(before & (nodes != owners) & (counts < SOURCES_MAX))
        asked[units, counts[units]] = nodes[units]
        counts[units] += 1
    return asked
