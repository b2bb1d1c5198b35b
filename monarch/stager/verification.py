"""Compares retained Replicas with the current datasets, without changing anything.

A Replica is right if a current File has its name, which is derived from path, inode,
size and times, and if its bytes match the checksums stored when it was copied.
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
    """The results of a check.

    Attributes:
        right: the Files with a right Replica.
        missing: the Files without a Replica.
        wrong: the faults of the Replicas of other Files.
        foreign: the number of Replicas of no current File: their Files have changed.
    """

    right: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    wrong: dict[int, str] = field(default_factory=dict)
    foreign: int = 0


def verify(
    expected: Expected, retained: Sequence[Retained], progress: Progress
) -> Verified:
    """Read all Replicas, and compare them with the expected Files.

    Args:
        progress: called with the compared bytes, and the total.
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
        # A File has the same checksums, whichever Tier its Replica is in.
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
    """Yield the files in lists of at most `count`."""
    rest = iter(files)
    while some := list(islice(rest, count)):
        yield some


def _judge(
    file: int,
    places: Mapping[int, Retained | Frames],
    expected: Expected,
    extents: ExtentDigests,
) -> str:
    """Return the fault of the Replica of a File; "" if it has none."""
    place = places[file]
    if isinstance(place, Frames):
        return place.fault()
    path = os.path.join(place.directory, expected.names[file])
    return _fault(path, int(expected.sizes[file]), extents.of(file))


def _fault(path: str, size: int, digests: npt.NDArray[np.uint64]) -> str:
    """Return the fault of a Replica; "" if it has none."""
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
    """Return the checksum of the next Extent of a file, as computed by copies.

    The checksum of each chunk is the seed of the next one.
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
    """Return the next bytes of a file; repeat short reads."""
    pieces: list[bytes] = []
    while size and (piece := read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
