"""Where each File goes on this node, and in which order its Sources are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.native import NO_SOURCE, SOURCES_MAX, TABLE_ROW
from monarch.placement import Mode, Placement

Files: TypeAlias = npt.NDArray[np.uint32]


class Destination(IntEnum):
    """Where a File goes on this node."""

    NOWHERE = 0
    """No node has room for it: programs read the Origin."""
    TIER = 1
    """A Tier of this node, which keeps it."""
    SPARE = 2
    """A Tier, as long as no kept File needs the room; else the Pool."""
    POOL = 3
    """The Pool; but as SPARE if this node has had to read the Origin."""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """What a node does with each File, by its number; a value without state.

    Attributes:
        own: the number of this node.
        nodes: how many nodes there are.
        owners: the node that reads a File from the Origin while it is alive.
        destinations: where it goes, as `Destination`.
        ranks: yields all nodes in the order in which to ask for a File, its owner
            first.
        asked: the first peers to ask for each File, in order, then NO_SOURCE; shape
            (files, SOURCES_MAX). It says what `sources` begins with.
        uses_pool: whether a File that no Tier has room for goes through the Pool.
        to_read: what background fill reads from the Origin, in order.
        to_fetch: what it fetches from peers, in order.
    """

    own: int
    nodes: int
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
    def alone(cls, files: int) -> Policy:
        """Return the Policy of a node that works alone: it reads and keeps all."""
        return cls(
            own=0,
            nodes=1,
            owners=np.zeros(files, np.uint16),
            destinations=np.full(files, Destination.TIER, np.uint8),
            ranks=lambda file: iter((0,)),
            asked=np.full((files, SOURCES_MAX), NO_SOURCE, np.uint16),
            uses_pool=False,
            to_read=np.arange(files, dtype=np.uint32),
            to_fetch=np.zeros(0, np.uint32),
        )

    @classmethod
    def cluster(cls, placement: Placement, own: int) -> Policy:
        """Return the Policy of a node of a cluster.

        Fill goes through the Files in the order of the Catalog: so owners have those
        that others fetch first when they are asked for them.
        """
        kept, owned = placement.kept(own), placement.owners == own
        partition = placement.mode is Mode.PARTITION
        others = Destination.POOL if partition else Destination.SPARE
        elsewhere = np.where(placement.placed, others, Destination.NOWHERE)
        return cls(
            own=own,
            nodes=len(placement.nodes),
            owners=placement.owners,
            destinations=np.where(kept, Destination.TIER, elsewhere).astype(np.uint8),
            ranks=placement.ranks,
            asked=first_sources(placement, own),
            uses_pool=True,
            to_read=np.flatnonzero(kept & owned).astype(np.uint32),
            to_fetch=np.flatnonzero(kept & ~owned).astype(np.uint32),
        )

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Which Files this node keeps."""
        found: npt.NDArray[np.bool_] = self.destinations == Destination.TIER
        return found

    @property
    def placed(self) -> npt.NDArray[np.bool_]:
        """Which Files any node keeps."""
        found: npt.NDArray[np.bool_] = self.destinations != Destination.NOWHERE
        return found

    def destination(self, file: int) -> int:
        """Return where a File goes, as the number of a `Destination`."""
        return int(self.destinations[file])

    def owner(self, file: int) -> int:
        """Return the node that reads a File from the Origin while it is alive."""
        return int(self.owners[file])

    def owns(self, file: int) -> bool:
        """Return whether this node is a File's owner."""
        return self.owner(file) == self.own

    def sources(self, file: int) -> Iterator[int]:
        """Yield the peers to ask for a File, in order; the Origin comes after them.

        These are the nodes before this one in the File's order: so requests go towards
        its owner and never in a circle.
        """
        for node in self.ranks(file):
            if node == self.own:
                return
            yield node

    def rows(self, first: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
        """Return the rows of the staging table: those of a File are all the same.

        Args:
            first: the first row of each File, and the number of all rows.
        """
        files = np.repeat(np.arange(len(first) - 1), np.diff(first).astype(np.intp))
        rows = np.zeros(len(files), TABLE_ROW)
        rows["destination"] = self.destinations[files]
        rows["sources"] = self.asked[files]
        return rows


def first_sources(placement: Placement, own: int) -> npt.NDArray[np.uint16]:
    """Return the first peers to ask for each File: its owner, then those after it.

    Nodes from this one on are left out: requests go towards the owner.
    """
    owners = placement.owners
    asked = np.full((len(owners), SOURCES_MAX), NO_SOURCE, np.uint16)
    # Files whose order has not come to this node yet, and how many peers they have.
    before = owners != own
    asked[before, 0] = owners[before]
    counts = before.astype(np.uint8)
    ranked = placement.rendezvous.first(np.arange(len(owners)), SOURCES_MAX + 1)
    for nodes in ranked.T:
        before &= nodes != own
        files = np.flatnonzero(before & (nodes != owners) & (counts < SOURCES_MAX))
        asked[files, counts[files]] = nodes[files]
        counts[files] += 1
    return asked
