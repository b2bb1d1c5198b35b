"""What one node sends another at once: pieces of Files, and what to know of each."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from monarch.catalog.block import Bytes
from monarch.errors import MonarchError

PIECES_MAX: Final = 1024
PIECE: Final = np.dtype(
    [
        ("file", "<u4"),
        ("extent", "<u4"),
        ("bytes", "<u4"),
        ("status", "<i4"),
        ("digest", "<u8"),
    ]
)
_COUNT_BYTES: Final = 8
_HEAD_BYTES: Final = _COUNT_BYTES + PIECES_MAX * PIECE.itemsize


class Piece(NamedTuple):
    """One Extent of a File, or word that there will be none of it.

    Attributes:
        status: 0, or a negative errno: the File cannot be had.
        digest: the checksum of the Extent as it came from the Origin.
    """

    file: int
    extent: int
    bytes: int
    status: int
    digest: int


class Parcel:
    """A buffer that is packed piece by piece, for one node at a time."""

    def __init__(self, payload_bytes_max: int) -> None:
        self._memory = np.zeros(_HEAD_BYTES + payload_bytes_max, np.uint8)
        self._pieces = self._memory[_COUNT_BYTES:_HEAD_BYTES].view(PIECE)
        self.empty()

    def __repr__(self) -> str:
        return f"<Parcel of {self.count} pieces, {self.used} bytes>"

    def empty(self) -> None:
        """Begin anew."""
        self.count = 0
        self.used = 0

    @property
    def room(self) -> int:
        """How many bytes the next piece may have; less than none if it may not be."""
        if self.count == PIECES_MAX:
            return -1
        return len(self._memory) - _HEAD_BYTES - self.used

    def space(self, size: int) -> memoryview:
        """Return where the next piece's bytes go."""
        start = _HEAD_BYTES + self.used
        return self._memory[start : start + size].data

    def add(self, piece: Piece) -> None:
        """Add a piece whose bytes are in place."""
        self._pieces[self.count] = tuple(piece)
        self.count += 1
        self.used += piece.bytes

    def packed(self) -> Bytes:
        """Return the bytes to send."""
        self._memory[:_COUNT_BYTES].view(np.uint64)[0] = self.count
        return self._memory[: _HEAD_BYTES + self.used]


def parcel_bytes(payload_bytes_max: int) -> int:
    """Return the bytes of the largest parcel."""
    return _HEAD_BYTES + payload_bytes_max


def unpacked(memory: Bytes) -> list[tuple[Piece, memoryview]]:
    """Return the pieces of a parcel, each with its bytes.

    Raises:
        MonarchError: it is none.
    """
    if len(memory) < _HEAD_BYTES:
        raise MonarchError(f"{len(memory)} bytes from another node are no parcel")
    count = int(memory[:_COUNT_BYTES].view(np.uint64)[0])
    rows = memory[_COUNT_BYTES:_HEAD_BYTES].view(PIECE)[: min(count, PIECES_MAX)]
    pieces = [Piece(*row) for row in rows.tolist()]
    start, found = _HEAD_BYTES, []
    for piece in pieces:
        found.append((piece, memory[start : start + piece.bytes].data))
        start += piece.bytes
    if count > PIECES_MAX or start != len(memory):
        raise MonarchError(f"a parcel from another node is broken: {len(memory)} bytes")
    return found
