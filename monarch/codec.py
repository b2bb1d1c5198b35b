"""The codecs of packed Tiers: their names and levels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LEVELS: Final = {"lz4hc": (1, 12), "zstd": (-50, 22)}
"""The lowest and the highest level of the methods that have one."""
ELEMENTS: Final = (2, 4, 8)
"""Bytes of the numbers that a shuffle groups."""
PLAIN: Final = "plain"
"""The codec of a Tier that is not packed: each File is a file of its own."""
AUTO: Final = "auto"
"""The codec of a packed Tier for which measurement chooses one."""
RATIO_MIN: Final = 1.05
"""A piece that shrinks by less is stored as it is: decoding it would gain nothing."""
FRAME_BYTES: Final = 64
"""The approximate overhead of a packed File."""
PIECE_BYTES: Final = 1 << 20
"""Larger Files are compressed in pieces of this size."""
ALLOWED: Final = (
    "none, lz4, lz4hc:LEVEL (1 to 12) or zstd:LEVEL (-50 to 22), the last three "
    "with +shuffle2, +shuffle4 or +shuffle8 for arrays of numbers, zstd also with +dict"
)
_FORM: Final = re.compile(
    r"(?P<method>none|lz4|lz4hc|zstd)(?::(?P<level>-?\d{1,3}))?"
    r"(?:\+shuffle(?P<shuffle>[248]))?(?P<dictionary>\+dict)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Codec:
    """How pieces of Files are compressed.

    Args:
        method: none, lz4, lz4hc or zstd.
        level: 0 where the method has none.
        shuffle: the size in bytes of the numbers whose bytes are grouped; 1: none are.
        dictionary: whether all pieces share a trained dictionary.
    """

    method: str = "none"
    level: int = 0
    shuffle: int = 1
    dictionary: bool = False

    def __str__(self) -> str:
        level = f":{self.level}" if self.method in LEVELS else ""
        shuffle = f"+shuffle{self.shuffle}" if self.shuffle > 1 else ""
        return f"{self.method}{level}{shuffle}{'+dict' if self.dictionary else ''}"

    @classmethod
    def parse(cls, text: str) -> Codec:
        """Return the codec of a name such as `zstd:3`.

        Raises:
            ValueError: unknown codec; the text lists the known ones.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(ALLOWED)
        method, level = found["method"], found["level"]
        lowest, highest = LEVELS.get(method, (0, 0))
        number = int(level or 0)
        plain = method == "none" and (found["shuffle"] or found["dictionary"])
        if (level is None) != (method not in LEVELS) or plain:
            raise ValueError(ALLOWED)
        if not lowest <= number <= highest or (number == 0 and method in LEVELS):
            raise ValueError(ALLOWED)
        if found["dictionary"] and method != "zstd":
            raise ValueError(ALLOWED)
        shuffle = int(found["shuffle"] or 1)
        return cls(method, number, shuffle, bool(found["dictionary"]))


DICTIONARY_FILES_MAX_BYTES: Final = 64 << 10
"""Larger files contain enough bytes of their own to refer to."""
USUAL_RATES: Final = {
    Codec.parse(name): (pack * 1e6, unpack * 1e6)
    for name, pack, unpack in (
        ("none", float("inf"), float("inf")),
        ("lz4", 600, 2500),
        ("lz4hc:4", 70, 2500),
        ("lz4hc:9", 25, 2500),
        ("zstd:-5", 500, 1400),
        ("zstd:1", 350, 1100),
        ("zstd:3", 200, 1100),
        ("zstd:6", 70, 1100),
        ("zstd:9", 40, 1100),
        ("lz4+shuffle2", 550, 1700),
        ("lz4+shuffle4", 550, 1700),
        ("zstd:1+shuffle2", 300, 900),
        ("zstd:1+shuffle4", 300, 900),
        ("zstd:3+dict", 200, 1100),
        ("zstd:9+dict", 40, 1100),
    )
}
"""Plain bytes per second that a thread of a server compresses and decompresses."""
CANDIDATES: Final = tuple(USUAL_RATES)
"""The codecs that are tried if the codec is chosen by measurement."""
BATCH_FILES: Final = 32
"""The files that a job reads for one iteration, by default."""
TOLERANCE: Final = 0.05
"""Reading a batch may take longer by this share than from plain files."""
