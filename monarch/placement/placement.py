"""Where the Files of a job are held: the same answer on every node, without a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from monarch.placement.first_fit import Bytes, fitting
from monarch.placement.hrw_scores import CHUNK
from monarch.placement.rendezvous import Mask, Nodes, Numbers, Rendezvous

SPILL_MAX: Final = 8
"""How many more nodes are asked where a File's first one has no room."""


class Mode(Enum):
    """How many copies of a File a job holds."""

    PARTITION = "partition"
    REPLICATE = "replicate"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the frozen list.

    Args:
        capacity_bytes: what all of its Tiers may hold together.
    """

    name: str
    capacity_bytes: int


class Placement:
    """Decides for each File which node owns it, and for each node what it holds.

    First every File gets one copy, at its owner: the first node of its order, or, where
    that one is full, the next that has room. Further copies take what room is left,
    each at the next nodes in order, so that none of them ever displaces a first copy.

    Args:
        needs: the bytes of a Tier that each File takes, by its number.
        digest: the digest of the Catalog.

    Attributes:
        mode: what was asked for.
        copies: how many copies of each File are wanted.
        owners: the owner of each File, which alone reads it from the Origin.
        placed: whether anyone holds the File; else it stays at the Origin.
    """

    def __init__(
        self, nodes: Sequence[Node], needs: Bytes, digest: int, mode: Mode
    ) -> None:
        total = int(needs.sum())
        # No node can fill more room than there are bytes: more is no more weight.
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
        """Return which Files a node holds."""
        held: Mask = self.placed & (self.owners == node)
        for _, files in self.further([node]):
            held[files] = True
        return held

    def further(self, nodes: Sequence[int]) -> Iterator[tuple[int, Numbers]]:
        """Yield for some nodes, again and again, Files of others that they hold too."""
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
        """Place each File at the node that it wants, if that one has room."""
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
        # Those for which there cannot be room, whatever the order, are not looked at.
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
