"""Which nodes keep and own each File: the same on every node, without communication."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.placement.hashing import CHUNK, Mask, Nodes, Numbers, Rendezvous

Bytes: TypeAlias = npt.NDArray[np.uint64]

SPILL_MAX: Final = 8
"""How many more nodes are tried if the first one of a File has no room."""


class Mode(Enum):
    """How many copies of a File a job keeps."""

    PARTITION = "partition"
    REPLICATE = "replicate"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the frozen list.

    Args:
        capacity_bytes: the sum of the capacities of its Tiers.
    """

    name: str
    capacity_bytes: int


class Placement:
    """Decides for each File which node owns it, and for each node what it keeps.

    First every File gets one copy, at its owner: the first node of its order or, if
    that one is full, the next that has room. Further copies take the room that is left
    at the next nodes in order, so that none of them displaces a first copy.

    Args:
        needs: the bytes of a Tier that each File takes, by its number.
        digest: the digest of the Catalog.

    Attributes:
        mode: as it is configured.
        copies: how many copies of each File are wanted.
        owners: the owner of each File, which alone reads it from the Origin.
        placed: whether any node keeps the File; else programs read the Origin.
    """

    def __init__(
        self, nodes: Sequence[Node], needs: Bytes, digest: int, mode: Mode
    ) -> None:
        total = int(needs.sum())
        # No node can fill more room than there are bytes: more room adds no weight.
        usable = [min(node.capacity_bytes, total) for node in nodes]
        self.nodes = tuple(nodes)
        self.needs = needs
        self.mode = mode
        self.copies = _wanted_copies(mode, usable, total)
        self.rendezvous = Rendezvous([node.name for node in nodes], usable, digest)
        self._free = [node.capacity_bytes for node in nodes]
        self.owners: Nodes = self.rendezvous.best(np.arange(len(needs)))
        self.placed: Mask = np.zeros(len(needs), np.bool_)
        self._place(np.arange(len(needs)), self.owners)
        self._spill()

    def __repr__(self) -> str:
        return (
            f"<Placement of {len(self.needs)} files on {len(self.nodes)} nodes, "
            f"{self.copies} copies wanted>"
        )

    def ranks(self, file: int) -> Iterator[int]:
        """Yield all nodes in the order in which to ask for a File, its owner first."""
        owner = int(self.owners[file])
        yield owner
        yield from (node for node in self.rendezvous.ranks(file) if node != owner)

    def order(self, file: int) -> list[int]:
        """Return all nodes in the order in which to ask for a File, its owner first."""
        return list(self.ranks(file))

    def kept(self, node: int) -> Mask:
        """Return which Files a node keeps."""
        held: Mask = self.placed & (self.owners == node)
        for _, files in self.further([node]):
            held[files] = True
        return held

    def further(self, nodes: Sequence[int]) -> Iterator[tuple[int, Numbers]]:
        """Yield for some nodes, repeatedly, Files that they keep but do not own."""
        if self.copies == 1:
            return
        free = list(self._free)
        chosen = set(nodes)
        groups = [
            number
            for number, group in enumerate(self.rendezvous.groups)
            if not chosen.isdisjoint(group.tolist())
        ]
        for start in range(0, len(self.needs), CHUNK):
            files = np.arange(start, min(start + CHUNK, len(self.needs)))
            files = files[self.placed[files]]
            for number in groups:
                yield from self._further(files, number, chosen, free)

    def _further(
        self, files: Numbers, number: int, chosen: set[int], free: list[int]
    ) -> Iterator[tuple[int, Numbers]]:
        """Give the nodes of one group further copies of some Files."""
        mask = self.rendezvous.among_first(files, self.copies, number)
        owners = self.owners[files]
        for row, node in enumerate(self.rendezvous.groups[number].tolist()):
            if node not in chosen:
                continue
            offered = files[mask[row] & (owners != node)]
            taken = offered[fitting(self.needs[offered], free[node])]
            free[node] -= int(self.needs[taken].sum())
            yield node, taken

    def _place(self, files: Numbers, wanted: Nodes) -> None:
        """Place each File at its wanted node, if that one has room."""
        places = np.argsort(wanted, kind="stable")
        found, starts = np.unique(wanted[places], return_index=True)
        for node, where in zip(
            found.tolist(), np.split(places, starts[1:]), strict=False
        ):
            offered = files[where]
            taken = offered[fitting(self.needs[offered], self._free[node])]
            self._free[node] -= int(self.needs[taken].sum())
            self.owners[taken] = node
            self.placed[taken] = True

    def _spill(self) -> None:
        """Place Files whose first node is full at the next ones that have room."""
        left = np.flatnonzero(~self.placed & (self.needs <= np.uint64(max(self._free))))
        # Files for which there cannot be room, whatever the order, are left out.
        needs = self.needs[left]
        left = left[np.cumsum(needs) - needs < np.uint64(sum(self._free))]
        choices = self.rendezvous.first(left, 1 + SPILL_MAX)
        for column in choices.T[1:]:
            waiting = ~self.placed[left]
            self._place(left[waiting], column[waiting])


def _wanted_copies(mode: Mode, usable: Sequence[int], total: int) -> int:
    if mode is Mode.REPLICATE:
        return len(usable)
    if mode is Mode.PARTITION or not total:
        return 1
    return max(1, sum(usable) // total)


def fitting(needs: Bytes, free_bytes: int) -> npt.NDArray[np.bool_]:
    """Return which Files get room, in their order and without splitting any.

    A File that does not fit is passed over, and smaller ones after it still get room.
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
