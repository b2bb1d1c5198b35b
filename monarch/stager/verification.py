"""Compares what was retained with the datasets as they are, without changing anything.

A Replica is right if a File of now has its name, which stands for path, inode, size and
times, and if its bytes have the checksums that were noted when it was copied.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Final

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from monarch.native import CONSTANTS
from monarch.stager.adoption import ExtentDigests, match
from monarch.stager.packed_verification import Expected, Frames, frames_of
from monarch.tiers.retained import Retained

THREADS: Final = 8
BATCH: Final = 4096

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Verified:
    """What a check has found.

    Attributes:
        right: the Files of which a Replica is right.
        missing: those without a Replica.
        wrong: what is wrong with the Replicas of others.
        foreign: how many Replicas are of no File of now: those have changed.
    """

    right: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    wrong: dict[int, str] = field(default_factory=dict)
    foreign: int = 0


def verify(
    expected: Expected, retained: Sequence[Retained], progress: Progress
) -> Verified:
    """Read all Replicas, and compare them with what they should be.

    Args:
        progress: called with the bytes that were compared, and all of them.
    """
    extents = ExtentDigests(
        np.zeros(int(expected.first[-1]), np.uint64), expected.first
    )
    found, places = Verified(), dict[int, Retained | Frames]()
    names = list(enumerate(expected.names))
    for one in retained:
        if one.manifest is None:
            continue
        if one.manifest.packs is not None:
            frames, foreign = frames_of(one.directory, one.manifest.packs, expected)
            places |= frames
            found.foreign += foreign
        # A File has one checksum, whichever Tier its Replica is in.
        files, others = match(one.manifest, names, expected.sizes, extents)
        places |= dict.fromkeys(files, one)
        found.foreign += len(others)
    total, done = int(expected.sizes[list(places)].sum()), 0
    judge = partial(_judge, places=places, expected=expected, extents=extents)
    with ThreadPoolExecutor(THREADS) as pool:
        batches = (pool.map(judge, some) for some in _batched(places, BATCH))
        for file, fault in zip(places, chain.from_iterable(batches), strict=True):
            if fault:
                found.wrong[file] = fault
            else:
                found.right.append(file)
            done += int(expected.sizes[file])
            progress(done, total)
    found.missing = [file for file, _ in names if file not in places]
    return found


def _batched(files: Iterable[int], count: int) -> Iterator[list[int]]:
    """Yield the files in lists of so many."""
    rest = iter(files)
    while some := list(islice(rest, count)):
        yield some


def _judge(
    file: int,
    places: Mapping[int, Retained | Frames],
    expected: Expected,
    extents: ExtentDigests,
) -> str:
    """Return what is wrong with the Replica of a File."""
    place = places[file]
    if isinstance(place, Frames):
        return place.fault()
    path = os.path.join(place.directory, expected.names[file])
    return _fault(path, int(expected.sizes[file]), extents.of(file))


def _fault(path: str, size: int, digests: npt.NDArray[np.uint64]) -> str:
    """Return what is wrong with a Replica; "" if nothing is."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        gone = error.errno == errno.ENOENT
        return "its copy is missing" if gone else f"its copy: {error.strerror}"
    with open(fd, "rb", buffering=0) as file:
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode) or held.st_size != size:
            return "its copy has another size"
        try:
            right = all(_extent_digest(file.read) == one for one in digests.tolist())
        except OSError as error:
            return f"its copy: {error.strerror}"
    return "" if right else "its copy has another checksum"


def _extent_digest(read: Callable[[int], bytes | None]) -> int:
    """Return the checksum of the next Extent of a file, as copies compute it.

    That of each chunk is the seed of the next one.
    """
    chunk, chain = CONSTANTS["CHUNK_BYTES"], 0
    for _ in range(CONSTANTS["EXTENT_BYTES"] // chunk):
        piece = _piece(read, chunk)
        if piece:
            chain = xxh3_64_intdigest(piece, seed=chain)
        if len(piece) < chunk:
            break
    return chain


def _piece(read: Callable[[int], bytes | None], size: int) -> bytes:
    """Return the next bytes of a file; a read may return less than is there."""
    pieces: list[bytes] = []
    while size and (piece := read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
