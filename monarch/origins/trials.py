"""Tries codecs on pieces of the user's own files: how far they shrink, how fast."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from monarch.background import begin
from monarch.codec import DICTIONARY_FILES_MAX_BYTES, RATIO_MIN, Codec
from monarch.native import Coder, codec_library
from monarch.selector import Candidate

if TYPE_CHECKING:
    import numpy.typing as npt

    from monarch.catalog.inventory import Inventory
    from monarch.selector import Sample

READERS: Final = 8
READ_S: Final = 2.0
"""No further piece is read after this time."""
READ_MAX_S: Final = 2.5
"""What has not come by then is not waited for: an origin may hang."""
EACH_S: Final = 0.2
"""How long a codec is tried; at least a few pieces are."""
PIECES_LEAST: Final = 8
DICTIONARY_BYTES: Final = 112 << 10
"""What zstd's own trainer makes by default."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """What was read of a sample, in its order.

    Attributes:
        weights: which share of the dataset each stands for.
        failed: pieces that could not be read.
        read_s: how long reading took.
        files: of which File each is, by number.
        busy_s: how long each was read, added up.
    """

    bytes_of: Sequence[bytes]
    weights: npt.NDArray[np.float64]
    failed: int
    read_s: float
    files: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    busy_s: float = 0.0

    def __len__(self) -> int:
        return len(self.bytes_of)

    @property
    def total_bytes(self) -> int:
        """Return what all pieces have together."""
        return sum(map(len, self.bytes_of))

    def part(self, chosen: npt.NDArray[np.bool_]) -> Pieces:
        """Return some of the pieces, as if the dataset were their Files."""
        numbers = np.flatnonzero(chosen)
        weights = self.weights[numbers]
        return Pieces(
            [self.bytes_of[number] for number in numbers.tolist()],
            weights / weights.sum() if len(numbers) else weights,
            self.failed,
            self.read_s,
            self.files[numbers],
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """What a codec has made of a sample.

    Attributes:
        ratio: plain bytes by stored bytes, of the whole dataset as far as the sample
            tells. Pieces that hardly shrink count as they are.
        pack_bytes_per_s: plain bytes compressed by one thread, in its CPU time.
        unpack_s_per_byte: to decompress, by plain byte; pieces stored as they are
            take none.
        raw_share: of the bytes that are stored as they are.
        pieces: on how many it was tried.
    """

    codec: Codec
    ratio: float
    pack_bytes_per_s: float
    unpack_s_per_byte: float
    raw_share: float
    pieces: int

    def candidate(self, file_bytes: float) -> Candidate:
        """Return it as the selector takes it, for files of this mean size."""
        return Candidate(
            str(self.codec),
            self.ratio,
            self.unpack_s_per_byte * file_bytes,
            self.pack_bytes_per_s,
        )


def read_pieces(inventory: Inventory, sample: Sample) -> Pieces:
    """Read the pieces of a sample, until there is no time left.

    Those that cannot be read are counted and passed over.
    """
    began = time.monotonic()
    places = list(zip(sample.files, sample.offsets, sample.lengths, strict=True))
    read: dict[int, tuple[bytes, float]] = {}
    numbers = iter(range(len(places)))

    def read_some() -> None:
        for number in numbers:
            begin_s = time.monotonic()
            if begin_s - began > READ_S and number >= PIECES_LEAST:
                return
            file, offset, length = places[number]
            piece = _read(inventory.path(int(file)), int(offset), int(length))
            read[number] = piece, time.monotonic() - begin_s

    for wait in [begin(read_some) for _ in range(READERS)]:
        with suppress(TimeoutError):
            wait(max(0.0, began + READ_MAX_S - time.monotonic()))
    found = dict(sorted(read.copy().items()))  # a late thread may still add to it
    kept = [number for number, (piece, _) in found.items() if piece]
    weights = sample.weights[kept]
    return Pieces(
        [found[number][0] for number in kept],
        weights / weights.sum() if kept else weights,
        len(found) - len(kept),
        time.monotonic() - began,
        sample.files[kept],
        sum(took_s for _, took_s in found.values()),
    )


def _read(path: bytes, offset: int, length: int) -> bytes:
    """Return a piece of a file, empty if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        # Else the kernel reads more than this piece.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return os.pread(fd, length, offset)
    except OSError:
        return b""
    finally:
        os.close(fd)


def try_codecs(
    pieces: Pieces, codecs: Iterable[Codec], seconds: float = EACH_S
) -> tuple[list[Trial], dict[Codec, str]]:
    """Try codecs one after the other.

    Returns:
        A Trial of each codec that could be tried; and why the others could not.
    """
    trials: list[Trial] = []
    missing: dict[Codec, str] = {}
    for codec in codecs:
        if codec_library(codec) is None:
            missing[codec] = "this node has not its library"
        elif codec.dictionary:
            trial = _try_dictionary(pieces, codec, seconds)
            if isinstance(trial, str):
                missing[codec] = trial
            else:
                trials.append(trial)
        elif codec.method == "none":
            trials.append(Trial(codec, 1.0, float("inf"), 0.0, 1.0, len(pieces)))
        else:
            with Coder(codec) as coder:
                trials.append(_try(coder, pieces, range(len(pieces)), seconds))
    return trials, missing


def train(pieces: Sequence[bytes]) -> bytes | None:
    """Return a dictionary for small similar files; None: there is nothing to learn."""
    import zstandard

    size = min(DICTIONARY_BYTES, sum(map(len, pieces)) // 10)
    try:
        return zstandard.train_dictionary(size, list(pieces)).as_bytes()
    except (zstandard.ZstdError, ValueError):
        return None


def _try_dictionary(pieces: Pieces, codec: Codec, seconds: float) -> Trial | str:
    """Train on one half of the pieces and try on the other, which it has not seen."""
    if pieces.total_bytes > DICTIONARY_FILES_MAX_BYTES * len(pieces):
        return "files are too large to share a dictionary"
    dictionary = train(pieces.bytes_of[::2])
    if dictionary is None:
        return "files are too few, or not alike, to share a dictionary"
    with Coder(codec, dictionary) as coder:
        return _try(coder, pieces, range(1, len(pieces), 2), seconds)


def _try(coder: Coder, pieces: Pieces, numbers: Sequence[int], seconds: float) -> Trial:
    weights = pieces.weights[list(numbers)] if numbers else pieces.weights[:0]
    chosen = [pieces.bytes_of[number] for number in numbers]
    rows = coder.try_pieces(chosen, RATIO_MIN, seconds, PIECES_LEAST)
    if not len(rows):
        return Trial(coder.codec, 1.0, float("inf"), 0.0, 1.0, 0)
    weights = weights[: len(rows)] / weights[: len(rows)].sum()
    plain, is_raw = rows["bytes"].astype(np.float64), rows["packed"] == 0
    stored = np.where(is_raw, 1.0, rows["packed"] / plain)
    return Trial(
        coder.codec,
        1 / float(weights @ stored),
        float(plain.sum() / max(int(rows["pack_ns"].sum()), 1) * 1e9),
        float(weights @ (rows["unpack_ns"] / plain) / 1e9),
        float(weights @ is_raw),
        len(rows),
    )
