"""Rendezvous hashing: every node draws a lot for every File, and the least one wins.

The lots depend on names, weights, the Catalog's digest and the File's number alone,
and are computed by operations that IEEE 754 defines to the last bit: whoever asks, in
whatever order, on whatever machine, gets the same answer. A node that is lost leaves
the order of the others as it was, so that only its own Files move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.placement.hrw_scores import CHUNK, Lots, file_keys

Numbers: TypeAlias = npt.NDArray[np.intp]
Nodes: TypeAlias = npt.NDArray[np.uint16]
Mask: TypeAlias = npt.NDArray[np.bool_]

FLAT_NODES_MAX: Final = 128
"""Up to here every node draws for every File."""
GROUP_NODES: Final = 64
"""Above, groups of about so many neighbours draw, then the nodes of the winner."""
NODES_MAX: Final = 1 << 16


class Rendezvous:
    """Ranks the nodes of a cluster for each File.

    Attributes:
        groups: the node numbers of each group; one group up to FLAT_NODES_MAX.
    """

    def __init__(
        self, names: Sequence[str], weights: Sequence[int], digest: int
    ) -> None:
        if not 0 < len(names) <= NODES_MAX:
            raise ValueError(f"{len(names)} nodes; allowed are 1 to {NODES_MAX}")
        if len(set(names)) < len(names):
            raise ValueError("two nodes have one name")
        count = len(names)
        parts = -(-count // GROUP_NODES) if count > FLAT_NODES_MAX else 1
        self.groups: list[Numbers] = np.array_split(np.arange(count), parts)
        self._digest = digest
        # Where no node has room at all, they still have to take turns as owners.
        shares = list(weights) if any(weights) else [1] * count
        self._nodes = Lots([_seed("node", name) for name in names], shares)
        self._groups = Lots(
            [_seed("group", str(number)) for number in range(parts)],
            [sum(shares[node] for node in group) for group in self.groups],
        )

    def __repr__(self) -> str:
        count = sum(len(group) for group in self.groups)
        return f"<Rendezvous of {count} nodes in {len(self.groups)} groups>"

    def best(self, files: Numbers) -> Nodes:
        """Return the first node of each File's order."""
        keys = file_keys(files, self._digest)
        found = np.empty(len(keys), np.uint16)
        for group, where in self._split(keys):
            found[where] = self._nodes.least(keys[where], group)
        return found

    def first(self, files: Numbers, count: int) -> Nodes:
        """Return the first nodes of each File's order, a row for each File.

        At most as many as the smallest group has: they are all of the File's group.
        """
        count = min(count, *(len(group) for group in self.groups), NODES_MAX)
        keys = file_keys(files, self._digest)
        found = np.empty((len(keys), count), np.uint16)
        for group, where in self._split(keys):
            for part in _parts(where, len(group)):
                lots = self._nodes.draw(keys[part], group)
                rows = np.argsort(lots, axis=0, kind="stable")[:count]
                found[part] = group[rows].T
        return found

    def ranks(self, file: int) -> Iterator[int]:
        """Yield all nodes, the first one for a File first."""
        keys = file_keys(np.array([file]), self._digest)
        for group in self._ranked_groups(keys):
            lots = self._nodes.draw(keys, group)[:, 0]
            yield from group[np.argsort(lots, kind="stable")].tolist()

    def _ranked_groups(self, keys: npt.NDArray[np.uint64]) -> list[Numbers]:
        if len(self.groups) == 1:
            return self.groups
        lots = self._groups.draw(keys, np.arange(len(self.groups)))[:, 0]
        return [self.groups[number] for number in np.argsort(lots, kind="stable")]

    def order(self, file: int) -> list[int]:
        """Return all nodes, the first one for a File first."""
        return list(self.ranks(file))

    def among_first(self, files: Numbers, count: int, number: int) -> Mask:
        """Return whether each node of a group is among a File's first `count` ones.

        A row for each node of the group, a column for each File.
        """
        group = self.groups[number]
        keys = file_keys(files, self._digest)
        wanted = self._wanted(keys, count, number)
        if wanted.min(initial=len(group)) == len(group):
            return np.ones((len(group), len(keys)), np.bool_)
        lots = self._nodes.draw(keys, group)
        last = np.maximum(wanted - 1, 0)[None, :]
        limit = np.take_along_axis(np.sort(lots, axis=0), last, axis=0)
        mask: Mask = (lots <= limit) & (wanted > 0)
        return mask

    def _wanted(self, keys: npt.NDArray[np.uint64], count: int, number: int) -> Numbers:
        """Return how many nodes of a group are among the first `count` of each File."""
        sizes = np.array([len(group) for group in self.groups])
        before = np.zeros(len(keys), np.intp)
        if len(sizes) > 1:
            lots = self._groups.draw(keys, np.arange(len(sizes)))
            before = (sizes[:, None] * (lots < lots[number])).sum(axis=0)
        return np.clip(count - before, 0, sizes[number])

    def _split(self, keys: npt.NDArray[np.uint64]) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield each group with the places of the Files that it has won."""
        if len(self.groups) == 1:
            yield self.groups[0], np.arange(len(keys))
            return
        winners = self._groups.least(keys, np.arange(len(self.groups)))
        places = np.argsort(winners, kind="stable")
        ends = np.searchsorted(winners[places], np.arange(1, len(self.groups)))
        yield from zip(self.groups, np.split(places, ends), strict=True)


def _parts(places: Numbers, rows: int) -> Iterator[Numbers]:
    """Cut places so that a matrix of lots stays small."""
    step = max(1, 16 * CHUNK // rows)
    for start in range(0, len(places), step):
        yield places[start : start + step]


def _seed(kind: str, name: str) -> int:
    digest = hashlib.blake2b(f"{kind} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
