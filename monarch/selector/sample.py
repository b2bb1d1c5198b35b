"""Draws the pieces of a dataset on which codecs are tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

PIECES_MIN: Final = 128
"""Some points may fall into one piece; 64 pieces are enough for what is asked."""
PIECES_MAX: Final = 2048
SAMPLE_BYTES: Final = 32 << 20
"""So much is drawn if pieces are small."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Pieces of Files; arrays of one length.

    Attributes:
        files: by number.
        offsets: where the piece begins, in bytes.
        lengths: of the piece, in bytes.
        weights: of the bytes of the dataset, the share that each stands for.
    """

    files: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def bytes(self) -> int:
        """Return what all pieces have together."""
        return int(self.lengths.sum())


def draw(
    sizes: npt.NDArray[np.uint64],
    piece_bytes: int,
    *,
    pieces: int | None = None,
    seed: int = 0,
) -> Sample:
    """Draw pieces such that each byte of the dataset is as likely as any other.

    The Files stand in a row, as the Catalog has them, sorted by path; a point is drawn
    in each of many stretches of equal length (systematic sampling: Cochran, Sampling
    Techniques, chapter 8). So each directory is represented by its share of the bytes,
    and large Files by theirs.

    Args:
        sizes: of all Files, in bytes.
        piece_bytes: larger Files are cut into pieces of this size.
        pieces: how many to draw; None: at least 128, more if they are small. Fewer are
            returned if several points fall into one piece.
    """
    ends = np.cumsum(sizes.astype(np.int64))
    total = int(ends[-1]) if len(ends) else 0
    none = np.zeros(0, np.int64)
    if not total:
        return Sample(none, none, none, np.zeros(0))
    if pieces is None:
        mean = float(np.minimum(sizes, piece_bytes).astype(np.float64) @ sizes) / total
        pieces = int(np.clip(SAMPLE_BYTES / max(mean, 1.0), PIECES_MIN, PIECES_MAX))
    random = np.random.default_rng(seed)
    stretch = total / pieces
    points = (np.arange(pieces) + random.random(pieces)) * stretch
    at = np.minimum(points.astype(np.int64), total - 1)
    files = np.searchsorted(ends, at, side="right")
    begins = ends[files] - sizes[files].astype(np.int64)
    offsets = (at - begins) // piece_bytes * piece_bytes
    drawn, counts = np.unique(np.stack([files, offsets]), axis=1, return_counts=True)
    files, offsets = drawn[0], drawn[1]
    lengths = np.minimum(sizes[files].astype(np.int64) - offsets, piece_bytes)
    # In an order without a trend: who stops early has seen all kinds of Files.
    order = random.permutation(len(files))
    weights = counts / counts.sum()
    return Sample(files[order], offsets[order], lengths[order], weights[order])
