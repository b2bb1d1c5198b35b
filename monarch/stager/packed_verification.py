"""Frames in the pack files of retained Tiers, for comparing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from monarch.native import (
    CONSTANTS,
    PackIndex,
    Packing,
    is_frame_right,
    names_of,
    read_index,
)
from monarch.tiers.packed import Packs


@dataclass(frozen=True, slots=True)
class Expected:
    """The Files of the datasets as they are.

    Args:
        names: the name of the Replica of each File.
        first: the first Extent of each File, and the number of all Extents.
    """

    names: Sequence[str]
    sizes: npt.NDArray[np.uint64]
    first: npt.NDArray[np.uint64]

    def extents(self, file: int) -> int:
        """Return how many Extents a File has."""
        return int(self.first[file + 1]) - int(self.first[file])

    def bytes_of(self, file: int, extent: int) -> int:
        """Return the size of an Extent of a File; 0: it has no such Extent."""
        if extent >= self.extents(file):
            return 0
        left = int(self.sizes[file]) - extent * CONSTANTS["EXTENT_BYTES"]
        return min(left, CONSTANTS["EXTENT_BYTES"])


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a File, or an Extent of a large one, is packed.

    Args:
        entry: a row of the index of the pack file.
        packing: None: it is not among the packings of the retained Tier.
    """

    path: Path
    entry: PackIndex
    packing: Packing | None

    def fault(self) -> str:
        """Decode it and return its fault, or "" if it has none."""
        if self.packing is None:
            return "its copy is packed by an unknown codec"
        try:
            right = is_frame_right(self.path, self.entry, self.packing)
        except OSError as error:
            return f"its copy: {error.strerror}"
        return "" if right else "its copy has another checksum"


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a File: one, or one for each Extent of a large one."""

    frames: Sequence[Frame]

    def fault(self) -> str:
        """Decode all frames and return the first fault, or ""."""
        return next(filter(None, (frame.fault() for frame in self.frames)), "")


def frames_of(
    directory: Path, packs: Packs, expected: Expected
) -> tuple[dict[int, Frames], int]:
    """Return the frames of current Files, and the number of other frames.

    Large Files with Extents that have no frame are left out: a job reads these
    Extents from the origin.
    """
    files = {bytes.fromhex(name): file for file, name in enumerate(expected.names)}
    found: dict[int, dict[int, Frame]] = {}
    foreign = 0
    for segment in packs.segments:
        path = directory / segment.name
        index = read_index(path)
        if index is None:
            continue  # its Files are not staged
        for name, entry in zip(names_of(index), index, strict=True):
            file, extent = files.get(name), int(entry["extent"])
            if file is None or int(entry["plain"]) != expected.bytes_of(file, extent):
                foreign += 1
            else:
                packing = packs.by_id.get(int(entry["id"]))
                found.setdefault(file, {})[extent] = Frame(path, entry, packing)
    return {
        file: Frames(tuple(frames.values()))
        for file, frames in found.items()
        if len(frames) == expected.extents(file)
    }, foreign
