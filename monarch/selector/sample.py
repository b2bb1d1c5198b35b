"""Draws the pieces of a dataset on which codecs are tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

PIECES_MAX: Final = 2048
"""Each piece costs one open at the origin."""
SAMPLE_PARTS: Final = 100
"""1/SAMPLE_PARTS of the dataset is read, within the next two sizes."""
SAMPLE_BYTES_MIN: Final = 16 << 20
SAMPLE_BYTES_MAX: Final = 64 << 20
SMALL_BYTES: Final = 128 << 20
"""Of a smaller dataset, no more than one part is read: it is read in a moment."""
PIECE_BYTES_MIN: Final = 16 << 10
"""Smaller parts of a file are not representative."""
CLASS_BITS: Final = 2
"""Files in one class differ in size by a factor of at most 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Pieces of Files; all arrays have the same length.

    Attributes:
        files: numbers of the Files.
        offsets: starts of the pieces, in bytes.
        lengths: lengths of the pieces, in bytes.
        weights: share of the bytes of the dataset that each piece represents.
    """

    files: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def bytes(self) -> int:
        """Return the total bytes of all pieces."""
        return int(self.lengths.sum())


def sample_bytes(total_bytes: int) -> int:
    """Return how many bytes of a dataset of this size are read to try codecs.

    The limits apply to jobs and to `monarch codecs`. They do not depend on the Tiers,
    so that both read the same pieces.
    """
    share = total_bytes // SAMPLE_PARTS
    if total_bytes < SMALL_BYTES:
        return share
    return min(max(share, SAMPLE_BYTES_MIN), SAMPLE_BYTES_MAX)


def draw(
    sizes: npt.NDArray[np.uint64],
    piece_bytes: int,
    *,
    pieces: int | None = None,
    seed: int = 0,
) -> Sample:
    """Draw pieces so that each byte of the dataset is equally likely.

    The Files are ordered by size class, and within a class by path, as in the Catalog;
    one point is drawn in each of many stretches of equal length (systematic sampling:
    Cochran, Sampling Techniques, chapter 8). So each size and each directory has its
    share of the sample.

    A piece is a whole File, or `piece_bytes` of a larger one, at a multiple of that. A
    part of it would compress worse than the whole. A packed Tier compresses larger
    Files in pieces of PIECE_BYTES, each alone: with `piece_bytes` of this size, some
    pieces at different offsets represent the whole File, and cost less. In a small
    dataset even one such piece may exceed the sample; pieces are smaller then.

    Args:
        sizes: sizes of all Files, in bytes; empty Files are not drawn.
        piece_bytes: larger Files are cut into pieces of this size.
        pieces: how many to draw; None: as many as have sample_bytes() in total. Fewer
            are returned if several points fall into one piece.
    """
    order = np.lexsort((np.arange(len(sizes)), _classes(sizes)))
    lengths_in_order = sizes[order].astype(np.int64)
    ends = np.cumsum(lengths_in_order)
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        none = np.zeros(0, np.int64)
        return Sample(none, none, none, np.zeros(0))
    if pieces is None:
        piece_bytes = min(piece_bytes, max(sample_bytes(total), PIECE_BYTES_MIN))
        mean = float(np.minimum(sizes, piece_bytes).astype(np.float64) @ sizes) / total
        pieces = int(np.clip(sample_bytes(total) / max(mean, 1.0), 1, PIECES_MAX))
    random = np.random.default_rng(seed)
    points = (np.arange(pieces) + random.random(pieces)) * (total / pieces)
    at = np.minimum(points.astype(np.int64), total - 1)
    places = np.searchsorted(ends, at, side="right")
    offsets = at - (ends - lengths_in_order)[places]
    offsets = offsets // piece_bytes * piece_bytes
    drawn = np.stack([order[places], offsets])
    drawn, counts = np.unique(drawn, axis=1, return_counts=True)
    files, offsets = drawn[0], drawn[1]
    lengths = np.minimum(sizes[files].astype(np.int64) - offsets, piece_bytes)
    # Shuffled: a reader that stops early has seen all kinds of Files.
    shuffled = random.permutation(len(files))
    weights = counts / counts.sum()
    return Sample(*(one[shuffled] for one in (files, offsets, lengths, weights)))


def _classes(sizes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the size class of each File."""
    bits = np.log2(np.maximum(sizes, 1).astype(np.float64)).astype(np.int64)
    return bits // CLASS_BITS
