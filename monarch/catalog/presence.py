"""The part of the flags segment that records the present Pages of large Files.

A File is large in this sense if it has more than one Extent and programs do not wait
for the whole of it. The data plane writes the words of its Blocks, one bit per Page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.catalog.block import Bytes, aligned

# The limits of a request for Pages; Files beyond are staged whole.
LARGE_MAX = 1 << native.CONSTANTS["REQUEST_FILE_BITS"]
LARGE_BYTES_MAX = (1 << native.CONSTANTS["REQUEST_FIRST_BITS"]) * native.CONSTANTS[
    "PAGE_BYTES"
] - native.CONSTANTS["EXTENT_BYTES"]

_PARTS: Final = ("files", "first", "parts", "words", "changes", "places", "packed")
_ONES: Final = np.array([number.bit_count() for number in range(256)], np.uint8)

ABOVE_ALL: Final = 1 << 62
"""No File is larger."""


@dataclass(frozen=True, slots=True, eq=False)
class PresentPages:
    """The present Pages of large Files, in memory that the data plane writes.

    Attributes:
        files: the numbers of the large Files, ascending.
        first: the first Extent of each, and the number of all Extents.
        words: per Extent a word for each of its Blocks, with one bit per Page.
        parts: of each large File, a struct part.
        packed: of each Extent, the packed Tier that holds it, plus 1; or 0.
    """

    files: npt.NDArray[np.uint32]
    first: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint64]
    parts: npt.NDArray[Any]
    packed: npt.NDArray[np.uint8]

    @property
    def without_room(self) -> npt.NDArray[np.bool_]:
        """Which large Files will not be whole: no Tier has space for all of it."""
        pieces = self.parts["pieces"]
        return (pieces > 0) & (pieces < native.CONSTANTS["PIECES_PACKED"])

    @property
    def in_pieces(self) -> npt.NDArray[np.intp]:
        """The Files that will not be whole: no Tier has space for all of it."""
        return self.files[self.without_room].astype(np.intp)

    def is_in_pieces(self, file: int) -> bool:
        """Return whether a File will not be whole."""
        place = int(np.searchsorted(self.files, file))
        found = place < len(self.files) and self.files[place] == file
        return bool(found and self.without_room[place])

    def sizes(self, file_sizes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return the present bytes of each Extent; packed Extents count as whole.

        Args:
            file_sizes: of each File of the job.
        """
        page = native.CONSTANTS["PAGE_BYTES"]
        in_extent = native.CONSTANTS["EXTENT_PAGES"]
        some = np.flatnonzero(self.words.any(axis=1))
        found = np.zeros(len(self.words), np.uint64)
        found[some] = _count(self.words[some]) * np.uint64(page)
        sizes = file_sizes[self.files].astype(np.int64)
        last = self.first[1:].astype(np.intp) - 1
        # The last Page of a File is shorter. The data plane writes meanwhile.
        held = self.words[last]
        block, bit = np.divmod((sizes - 1) // page % in_extent, 64)
        there = held[np.arange(len(held)), block] >> bit.astype(np.uint64)
        tail = (there & np.uint64(1)) * (-sizes % page).astype(np.uint64)
        found[last] = _count(held) * np.uint64(page) - tail
        extent = native.CONSTANTS["EXTENT_BYTES"]
        whole = np.full(len(found), extent, np.uint64)
        whole[last] = ((sizes - 1) % extent + 1).astype(np.uint64)
        return np.where(self.packed > 0, whole, found)


def _count(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the number of Pages that are set in the words of each Extent."""
    count: npt.NDArray[np.uint64] = _ONES[words.view(np.uint8)].sum(
        axis=1, dtype=np.uint64
    )
    return count


NO_PAGES: Final = PresentPages(
    np.zeros(0, np.uint32),
    np.zeros(1, np.uint64),
    np.zeros((0, native.CONSTANTS["EXTENT_BLOCKS"]), np.uint64),
    np.zeros(0, native.DTYPES["part"]),
    np.zeros(0, np.uint8),
)
"""The value for a job without large Files."""


@dataclass(frozen=True, slots=True)
class PresencePlan:
    """The offsets of all parts, from the start of the flags segment.

    Attributes:
        files: the numbers of the large Files, ascending.
        first: the first Extent of each, and the number of all Extents.
        start: where the struct presence is.
    """

    files: npt.NDArray[np.uint32]
    first: npt.NDArray[np.uint64]
    start: int

    @property
    def _places(self) -> dict[str, int]:
        """Return the offset of each part, and the end."""
        count = len(self.files)
        part = native.DTYPES["part"].itemsize
        files = aligned(self.start + native.DTYPES["presence"].itemsize)
        first = aligned(files + 4 * count)
        parts = aligned(first + 8 * (count + 1))
        extents = int(self.first[-1])
        words = aligned(parts + part * count)
        changes = words + 8 * native.CONSTANTS["EXTENT_BLOCKS"] * extents
        places = changes + 4 * extents
        return {
            "files": files,
            "first": first,
            "parts": parts,
            "words": words,
            "changes": changes,
            "places": places,
            "packed": places + extents,
            "end": places + 2 * extents,
        }

    @property
    def end(self) -> int:
        """Return the offset behind all parts; without large Files the start."""
        return self._places["end"] if len(self.files) else self.start

    def pages(self, memory: Bytes) -> PresentPages:
        """Return a live view of the present Pages in a flags segment."""
        places = self._places
        words = memory[places["words"] : places["changes"]].view(np.uint64)
        words = words.reshape(-1, native.CONSTANTS["EXTENT_BLOCKS"])
        dtype = native.DTYPES["part"]
        end = places["parts"] + len(self.files) * dtype.itemsize
        parts = memory[places["parts"] : end].view(dtype)
        packed = memory[places["packed"] : places["end"]]
        return PresentPages(self.files, self.first, words, parts, packed)

    def write(self, memory: Bytes) -> None:
        """Write everything into a zeroed flags segment: no Page is present yet."""
        places = self._places
        dtype = native.DTYPES["presence"]
        record = memory[self.start : self.start + dtype.itemsize].view(dtype)
        record["count"] = len(self.files)
        for name in _PARTS:
            record[name] = places[name]
        for name, values in (("files", self.files), ("first", self.first)):
            raw = values.view(np.uint8)
            memory[places[name] : places[name] + len(raw)] = raw
        memory[places["places"] : places["packed"]] = native.CONSTANTS["PLACE_NONE"]


def large_above(cold_mode: native.ColdMode, wait_max_bytes: int) -> int:
    """Return the size above which Files are large; ABOVE_ALL without partial reads.

    Args:
        wait_max_bytes: the largest File for which programs wait as a whole.
    """
    return wait_max_bytes if cold_mode == native.ColdMode.AUTO else ABOVE_ALL


def large_files(
    sizes: npt.NDArray[np.uint64], above_bytes: int
) -> npt.NDArray[np.uint32]:
    """Return the numbers of the large Files of a job, ascending.

    Args:
        sizes: of each File of the job.
        above_bytes: as `large_above` returns it.
    """
    least = max(above_bytes, native.CONSTANTS["EXTENT_BYTES"])
    large = np.flatnonzero((sizes > least) & (sizes <= LARGE_BYTES_MAX))
    return large[: LARGE_MAX - 1].astype(np.uint32)


def plan_presence(
    sizes: npt.NDArray[np.uint64], above_bytes: int, start: int
) -> PresencePlan:
    """Plan the presence of all large Files.

    Args:
        sizes: of each File of the job.
        above_bytes: as `large_above` returns it.
        start: where the parts may begin in the flags segment.
    """
    extent = native.CONSTANTS["EXTENT_BYTES"]
    files = large_files(sizes, above_bytes)
    counts = -(-sizes[files].astype(np.int64) // extent)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    begin = aligned(start) if len(files) else start
    return PresencePlan(files, first.astype(np.uint64), begin)
