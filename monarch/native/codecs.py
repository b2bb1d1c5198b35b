"""Codecs of the data plane: the system's libraries compress pieces of Files."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.errors import MonarchError
from monarch.native.layout import DTYPES, Method
from monarch.native.library import LIB, Closable, span

if TYPE_CHECKING:
    from monarch.codec import Codec
    from monarch.native.library import Memory

TRIED = DTYPES["monarch_tried"]
TRIAL = DTYPES["monarch_trial"]
Tried: TypeAlias = npt.NDArray[Any]
"""By piece: bytes, packed (0: stored unpacked), pack_ns, unpack_ns."""

_METHODS: Final = {
    "none": Method.NONE,
    "lz4": Method.LZ4,
    "lz4hc": Method.LZ4,
    "zstd": Method.ZSTD,
}
_LIBRARIES: Final = {"lz4": "liblz4", "lz4hc": "liblz4", "zstd": "libzstd"}


@dataclass(frozen=True, slots=True)
class Packing:
    """How a Tier is packed, or its Files of one rule.

    Attributes:
        dictionary: the dictionary of all its Files; only for zstd.
        rule: its number; 0: for the Files of no other rule.
        rules: for rule 0 the rule of each File; None: all are 0.
    """

    tier: int
    codec: Codec
    dictionary: bytes = field(default=b"", repr=False)
    rule: int = 0
    rules: npt.NDArray[np.uint8] | None = field(default=None, repr=False, compare=False)


def packing_records(packings: Sequence[Packing]) -> npt.NDArray[Any]:
    """Return packings as records of the data plane, with borrowed bytes."""
    rows = np.zeros(max(1, len(packings)), DTYPES["monarch_packing"])
    for row, packing in zip(rows, packings, strict=False):
        codec = packing.codec
        row["tier"], row["method"] = packing.tier, _METHODS[codec.method]
        row["level"], row["shuffle"] = codec.level, codec.shuffle
        row["rule"] = packing.rule
        if packing.rules is not None and len(packing.rules):
            row["rules"] = span(packing.rules)[0]
        if packing.dictionary:
            row["dictionary"] = span(packing.dictionary)[0]
            row["dictionary_bytes"] = len(packing.dictionary)
    return rows


class CodecMissingError(MonarchError):
    """This node lacks the library of a codec."""


def codec_library(codec: Codec) -> str | None:
    """Return the file name of the library of a codec, "" if it needs none.

    Returns:
        None if this node does not have it.
    """
    name = LIB.monarch_codec_library(_METHODS[codec.method])
    return None if name is None else name.decode()


class Coder(Closable):
    """Compresses and decompresses pieces, with reused contexts.

    One thread at a time may use it. The GIL is released meanwhile.

    Args:
        dictionary: the dictionary of all pieces.

    Raises:
        CodecMissingError: this node lacks the library of the codec.
        ValueError: the dictionary is not a zstd dictionary.
    """

    def __init__(self, codec: Codec, dictionary: bytes = b"") -> None:
        self.codec = codec
        self._place = ctypes.c_void_p()
        rc = LIB.monarch_coder_new(
            _METHODS[codec.method],
            codec.level,
            codec.shuffle,
            ctypes.byref(self._place),
        )
        if rc == -errno.ENOSYS:
            library = _LIBRARIES[codec.method]
            raise CodecMissingError(f"codec {codec}: this node has no {library}")
        if rc:
            raise MemoryError(f"codec {codec}: {errno.errorcode[-rc]}")
        if dictionary and LIB.monarch_coder_learn(
            self._place, dictionary, len(dictionary)
        ):
            self.close()
            raise ValueError(f"codec {codec}: not a dictionary of zstd")

    def __repr__(self) -> str:
        return f"<Coder {self.codec}>"

    def pack(self, piece: Memory, out: Memory) -> int | None:
        """Compress a piece into `out`; return the size, None if it does not fit."""
        (start, count), (to, room) = span(piece), span(out)
        got: int = LIB.monarch_coder_pack(self._place, start, count, to, room)
        if got == -errno.ENOMEM:
            raise MemoryError(f"codec {self.codec}")
        return got if got >= 0 else None

    def unpack(self, packed: Memory, out: Memory) -> bool:
        """Decompress a piece into all of `out`; return False if the size differs."""
        (start, count), (to, room) = span(packed), span(out)
        rc: int = LIB.monarch_coder_unpack(self._place, start, count, to, room)
        if rc == -errno.ENOMEM:
            raise MemoryError(f"codec {self.codec}")
        return rc == 0

    def try_pieces(
        self, pieces: Sequence[bytes], ratio: float, seconds: float, least: int
    ) -> Tried:
        """Compress pieces and decompress them, one after the other.

        Args:
            ratio: a piece that shrinks by less counts as incompressible.
            seconds: no further piece is compressed after this time.
            least: the number of pieces that are compressed in any case.

        Raises:
            MemoryError: out of memory.
            ValueError: a decompressed piece differs from the original.
        """
        rows = np.zeros(len(pieces), TRIED)
        rows["bytes"] = [len(piece) for piece in pieces]
        rows["room"] = rows["bytes"] / ratio
        start, _ = span(together := b"".join(pieces))
        trial = np.array([(int(seconds * 1e9), least)], TRIAL)
        count: int = LIB.monarch_coder_try(
            self._place, start, rows.ctypes.data, len(rows), trial.ctypes.data
        )
        del together  # it had to live until now
        if count == -errno.ENOMEM:
            raise MemoryError(f"codec {self.codec}")
        if count < 0:
            raise ValueError(f"codec {self.codec} does not restore what it compressed")
        return rows[:count]

    def close(self) -> None:
        """Free the contexts."""
        LIB.monarch_coder_free(self._place)
        self._place = ctypes.c_void_p()
