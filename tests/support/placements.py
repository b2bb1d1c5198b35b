"""Placements of Files whose sizes a test gives."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from monarch.catalog.presence import large_files
from monarch.native import CONSTANTS
from monarch.placement import Copies, Mode, Node, Placement, Units
from monarch.stager import footprints

EXTENT_BYTES = CONSTANTS["EXTENT_BYTES"]
Bytes = npt.NDArray[np.uint64]


def first_rows(sizes: Bytes) -> Bytes:
    """Return the first row of each File in a staging table, and how many there are."""
    extents = np.maximum(-(-sizes.astype(np.int64) // EXTENT_BYTES), 1)
    return np.array([0, *np.cumsum(extents)], np.uint64)


def units_of(sizes: Bytes, above_bytes: int = EXTENT_BYTES) -> Units:
    """Return the units of Files, of which those above some bytes are large."""
    return Units.of(first_rows(sizes), large_files(sizes, above_bytes))


def place_sizes(
    nodes: Sequence[Node],
    sizes: Bytes,
    digest: int = 7,
    mode: Mode = Mode.PARTITION,
    above_bytes: int = EXTENT_BYTES,
) -> Placement:
    """Place Files, of which those above some bytes are large, on nodes."""
    units = units_of(sizes, above_bytes)
    return Placement(nodes, footprints(sizes), digest, Copies(mode), units)


def place_whole(
    nodes: Sequence[Node],
    needs: Bytes,
    digest: int,
    mode: Mode,
    copies: int | None = None,
) -> Placement:
    """Place Files of which each is one unit of one row, whatever it takes of a Tier."""
    rows = np.arange(len(needs) + 1, dtype=np.uint64)
    wanted = Copies(mode, copies)
    return Placement(nodes, needs, digest, wanted, Units.whole(rows))
