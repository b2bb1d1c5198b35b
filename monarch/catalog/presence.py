"""The part of the flags segment that says which Blocks of large Files there are.

A File is large in this sense if it has more than one Extent and programs do not wait
for the whole of it. The words of its Extents, a bit per Block, are written by the data
plane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.catalog.block import Bytes, aligned

# What a request for Blocks can name; Files beyond are staged whole.
LARGE_MAX = 1 << native.CONSTANTS["REQUEST_FILE_BITS"]
BLOCKS_MAX = 1 << native.CONSTANTS["REQUEST_FIRST_BITS"]


@dataclass(frozen=True, slots=True)
class PresencePlan:
    """The offsets of all parts, from the start of the flags segment.

    Attributes:
        files: the numbers of the large Files, ascending.
        first: the first word of each, and the number of all words.
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
        words = aligned(parts + part * count)
        end = words + 4 * int(self.first[-1])
        return {"files": files, "first": first, "parts": parts, "words": words} | {
            "end": end
        }

    @property
    def end(self) -> int:
        """Return the offset behind all parts; the start if there is no large File."""
        return self._places["end"] if len(self.files) else self.start

    def write(self, memory: Bytes) -> None:
        """Write everything into a zeroed flags segment: no Block is there yet."""
        places = self._places
        dtype = native.DTYPES["presence"]
        record = memory[self.start : self.start + dtype.itemsize].view(dtype)
        record["count"] = len(self.files)
        for name in ("files", "first", "parts", "words"):
            record[name] = places[name]
        for name, values in (("files", self.files), ("first", self.first)):
            raw = values.view(np.uint8)
            memory[places[name] : places[name] + len(raw)] = raw


def plan_presence(
    sizes: npt.NDArray[np.uint64], above: int, start: int
) -> PresencePlan:
    """Plan the presence of all Files that are larger than some bytes.

    Args:
        sizes: of each File of the job.
        above: what programs wait for as a whole.
        start: where the parts may begin in the flags segment.
    """
    extent = native.CONSTANTS["EXTENT_BYTES"]
    most = (BLOCKS_MAX - 1) * native.CONSTANTS["BLOCK_BYTES"]
    large = (sizes > max(above, extent)) & (sizes <= most)
    files = np.flatnonzero(large)[: LARGE_MAX - 1].astype(np.uint32)
    words = -(-sizes[files].astype(np.int64) // extent)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(words)]).astype(np.uint64)
    return PresencePlan(files, first, aligned(start) if len(files) else start)
