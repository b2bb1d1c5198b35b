"""What a Placement means: what each node keeps, and what is read from the Origin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monarch.placement.placement import Bytes, Placement


@dataclass(frozen=True, slots=True)
class Share:
    """What one node keeps of a dataset.

    Args:
        held_bytes: the sum of the sizes of the Files.
        room_bytes: what they take of the Tiers.
        owned_files: those that get another owner if this node is lost.
        only_here_bytes: those that are then read from the Origin again.
    """

    name: str
    capacity_bytes: int
    held_files: int
    held_bytes: int
    room_bytes: int
    owned_files: int
    only_here_bytes: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a cluster keeps of a dataset.

    Args:
        room_bytes: what one copy of each File takes of the Tiers.
        held_files: Files of which there is a copy.
        copies: how many there are of each of those, on average.
    """

    shares: tuple[Share, ...]
    files: int
    total_bytes: int
    room_bytes: int
    held_files: int
    held_bytes: int
    copies: float

    @property
    def left_bytes(self) -> int:
        """Bytes of which no node holds a copy."""
        return self.total_bytes - self.held_bytes

    def origin_bytes(self, epochs: int, readers: int) -> int:
        """Return the bytes that are read from the Origin by a whole job.

        Args:
            readers: how many nodes read each File in an epoch: one where they share
                the dataset between them, all where each reads everything.
        """
        return (self.held_bytes if epochs else 0) + epochs * readers * self.left_bytes


def forecast(placement: Placement, sizes: Bytes) -> Forecast:
    """Count what each node keeps under a Placement.

    Args:
        sizes: the bytes of each File, by its number.
    """
    count = len(placement.nodes)
    owners, placed = placement.owners, placement.placed
    # Sums of 64 bits: floating-point weights would lose bytes above 2**53.
    files = np.bincount(owners[placed], minlength=count)
    sums = np.zeros((2, count), np.uint64)
    np.add.at(sums[0], owners[placed], sizes[placed])
    np.add.at(sums[1], owners[placed], placement.needs[placed])
    copies = placed.astype(np.uint16)
    for node, further in placement.further(range(count)):
        files[node] += len(further)
        sums[0, node] += sizes[further].sum()
        sums[1, node] += placement.needs[further].sum()
        copies[further] += 1
    alone = copies == 1
    only_here = np.zeros(count, np.uint64)
    np.add.at(only_here, owners[alone], sizes[alone])
    owned = np.bincount(owners, minlength=count)
    columns = np.stack([files, *sums, owned, only_here]).astype(np.int64).T.tolist()
    held = int(placed.sum())
    return Forecast(
        shares=tuple(
            Share(node.name, node.capacity_bytes, *row)
            for node, row in zip(placement.nodes, columns, strict=True)
        ),
        files=len(sizes),
        total_bytes=int(sizes.sum()),
        room_bytes=int(placement.needs.sum()),
        held_files=held,
        held_bytes=int(sizes[placed].sum()),
        copies=float(copies.sum()) / held if held else 0.0,
    )
