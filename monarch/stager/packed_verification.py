"""Frames in the pack files of retained Tiers, for those who compare them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from monarch.native import (
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


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a File is packed.

    Args:
        entry: a row of the index of the pack file.
        packing: None: it is not one of those that the Tier was retained with.
    """

    path: Path
    entry: PackIndex
    packing: Packing | None

    def fault(self) -> str:
        """Decode it; return what is wrong with it, "" if nothing is."""
        if self.packing is None:
            return "its copy is packed by an unknown codec"
        try:
            right = is_frame_right(self.path, self.entry, self.packing)
        except OSError as error:
            return f"its copy: {error.strerror}"
        return "" if right else "its copy has another checksum"


def frames_of(
    directory: Path, packs: Packs, expected: Expected
) -> tuple[dict[int, Frame], int]:
    """Return the frames of Files of now, and how many others there are."""
    files = {bytes.fromhex(name): file for file, name in enumerate(expected.names)}
    found: dict[int, Frame] = {}
    foreign = 0
    for segment in packs.segments:
        path = directory / segment.name
        index = read_index(path)
        if index is None:
            continue  # its Files are not staged
        for name, entry in zip(names_of(index), index, strict=True):
            file = files.get(name)
            if file is None or int(entry["plain"]) != int(expected.sizes[file]):
                foreign += 1
            else:
                packing = packs.by_id.get(int(entry["id"]))
                found[file] = Frame(path, entry, packing)
    return found, foreign
