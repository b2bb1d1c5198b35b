"""Tries codecs on pieces of the user's files: their compression ratio and speed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from monarch.background import begin
from monarch.codec import DICTIONARY_FILES_MAX_BYTES, RATIO_MIN, USUAL_RATES, Codec
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
"""Later pieces are not waited for: an origin may hang."""
EACH_S: Final = 2.0
"""The longest trial of a codec, in processor time: all are tried on the same pieces,
as far as this suffices."""
PIECES_LEAST: Final = 8
TRIERS_MAX: Final = 8
"""Threads that try codecs."""
TRY_MAX_S: Final = 30.0
"""After this time, on a busy node, a codec counts as one that cannot be tried."""
WOBBLE: Final = 3.0
"""A measured rate that differs from the usual one by less is not significant."""
DICTIONARY_BYTES: Final = 112 << 10
"""The default size of zstd's own trainer."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The pieces of a sample that were read, in its order.

    Attributes:
        weights: the share of the dataset that each represents.
        failed: the number of pieces that could not be read.
        read_s: the duration of the whole reading.
        files: the File of each piece, by number.
        busy_s: the sum of the durations of all reads.
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
        """The bytes of all pieces together."""
        return sum(map(len, self.bytes_of))


@dataclass(frozen=True, slots=True)
class Trial:
    """The results of a codec on a sample.

    Attributes:
        ratio: plain bytes by stored bytes, estimated for the whole dataset. Pieces
            that hardly shrink count as stored uncompressed.
        pack_bytes_per_s: plain bytes compressed per second of one thread's CPU time.
        unpack_s_per_byte: decompression time per plain byte; pieces stored
            uncompressed take none.
        raw_share: the share of bytes that are stored uncompressed.
        pieces: the number of pieces on which it was tried.
    """

    codec: Codec
    ratio: float
    pack_bytes_per_s: float
    unpack_s_per_byte: float
    raw_share: float
    pieces: int

    def candidate(self, file_bytes: float) -> Candidate:
        """Return the measured rates, for files of this mean size."""
        return Candidate(
            str(self.codec),
            self.ratio,
            self.unpack_s_per_byte * file_bytes,
            self.pack_bytes_per_s,
        )

    def steady(self, file_bytes: float) -> Candidate:
        """Return it with rates that are the same in each trial of the same files.

        The ratio always is. Rates depend on the load of the node, so the usual rates
        of the codec replace them. The measured rate of decompression is kept if it is
        far from usual, as it is for tiny files.
        """
        measured = self.candidate(file_bytes)
        if self.codec not in USUAL_RATES:
            return measured
        pack, unpack = USUAL_RATES[self.codec]
        decode_s = (1 - self.raw_share) * file_bytes / unpack
        if measured.decode_s > WOBBLE * decode_s:
            decode_s = measured.decode_s
        return replace(measured, decode_s=decode_s, pack_bytes_per_s=pack)


def read_pieces(inventory: Inventory, sample: Sample) -> Pieces:
    """Read the pieces of a sample until the time is over.

    Pieces that cannot be read are counted and skipped.
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
        # Otherwise the kernel reads more than this piece.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return os.pread(fd, length, offset)
    except OSError:
        return b""
    finally:
        os.close(fd)


def try_codecs(
    pieces: Pieces, codecs: Iterable[Codec], seconds: float = EACH_S
) -> tuple[list[Trial], dict[Codec, str]]:
    """Try codecs in parallel, at most one per processor.

    Returns:
        A Trial of each codec that could be tried, and the reasons for the others.
    """
    wanted = tuple(codecs)
    found: dict[Codec, Trial | str] = {}
    numbers = iter(wanted)

    def try_some() -> None:
        for codec in numbers:
            found[codec] = _try_codec(pieces, codec, seconds)

    processors = len(os.sched_getaffinity(0))
    threads = min(processors, TRIERS_MAX, len(wanted))
    waits = [begin(try_some) for _ in range(threads - 1)]
    try_some()
    for wait in waits:
        with suppress(TimeoutError):
            wait(TRY_MAX_S)
    tried = {codec: found.get(codec, "trying it took too long") for codec in wanted}
    trials = [one for one in tried.values() if isinstance(one, Trial)]
    missing = {codec: one for codec, one in tried.items() if isinstance(one, str)}
    return trials, missing


def _try_codec(pieces: Pieces, codec: Codec, seconds: float) -> Trial | str:
    """Try a codec; if it cannot be tried, return the reason."""
    if codec_library(codec) is None:
        return "its library is not installed on this node"
    if codec.dictionary:
        return _try_dictionary(pieces, codec, seconds)
    if codec.method == "none":
        return Trial(codec, 1.0, float("inf"), 0.0, 1.0, len(pieces))
    with Coder(codec) as coder:
        return _try(coder, pieces, range(len(pieces)), seconds)


def train(pieces: Sequence[bytes]) -> bytes | None:
    """Return a dictionary for small similar files; None if training fails."""
    import zstandard

    size = min(DICTIONARY_BYTES, sum(map(len, pieces)) // 10)
    try:
        return zstandard.train_dictionary(size, list(pieces)).as_bytes()
    except (zstandard.ZstdError, ValueError):
        return None


def _try_dictionary(pieces: Pieces, codec: Codec, seconds: float) -> Trial | str:
    """Train on one half of the pieces and try the codec on the other half."""
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
