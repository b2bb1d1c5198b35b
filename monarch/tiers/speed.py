"""The speed of a medium, measured by writing and reading a few files.

It is that of the median read: a read during which another program has the processor
does not count.
"""

from __future__ import annotations

import errno
import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TypeVar

BYTES: Final = 32 << 20
BLOCK_BYTES: Final = 4 << 20
FILES: Final = 128
FILE_BYTES: Final = 4096
SECONDS: Final = 0.5
"""No further file or block is read after this time."""
_TIME_MIN_S: Final = 1e-6
_NO_DIRECT: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})

T = TypeVar("T")


class Speed(NamedTuple):
    """The speed of a medium for one reader."""

    files_per_s: float
    bytes_per_s: float


def measure_speed(directory: Path, room_bytes: int) -> Speed:
    """Write files into a directory and read them, past the page cache if possible.

    They are removed afterwards.

    Args:
        room_bytes: the most space that they may take.

    Raises:
        OSError: the directory cannot be written, or is full.
    """
    files = min(FILES, room_bytes // 4 // FILE_BYTES)
    if not files:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    room_bytes -= files * FILE_BYTES
    size = min(BYTES, room_bytes // FILE_BYTES * FILE_BYTES)
    with TemporaryDirectory(prefix=".monarch-speed-", dir=directory) as folder:
        opens = _files(Path(folder), files)
        return Speed(opens, _bytes(Path(folder) / "large", size))


def _files(folder: Path, files: int) -> float:
    """Return how many small files are opened, read and closed in a second."""
    block = os.urandom(FILE_BYTES)
    paths = [os.fspath(folder / str(number)) for number in range(files)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return 1 / _median_s(_read_file, paths)


def _read_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, FILE_BYTES)
    os.close(fd)


def _median_s(read: Callable[[T], object], places: Iterable[T]) -> float:
    """Read places for SECONDS at most; return the time of the median read."""
    end, times = time.monotonic() + SECONDS, []
    for place in places:
        began = time.monotonic()
        read(place)
        times.append(time.monotonic() - began)
        if began + times[-1] > end:
            break
    return max(statistics.median(times), _TIME_MIN_S)


def _bytes(path: Path, size: int) -> float:
    """Return the bytes read per second of a file of this size, in whole pages."""
    with mmap.mmap(-1, min(BLOCK_BYTES, size)) as block:
        block[:] = os.urandom(len(block))
        with open(path, "wb") as file:
            for _ in range(size // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        fd = _open_directly(path)
        try:
            places = range(0, size // len(block) * len(block), len(block))
            read = partial(_read_block, fd, block)
            return len(block) / _median_s(read, places)
        finally:
            os.close(fd)


def _read_block(fd: int, block: mmap.mmap, offset: int) -> None:
    if os.preadv(fd, [block], offset) != len(block):
        raise OSError(errno.EIO, "it gave fewer bytes than were written")


def _open_directly(path: Path) -> int:
    """Open a file past the page cache if possible; tmpfs may not support it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno not in _NO_DIRECT:
            raise
    return os.open(path, os.O_RDONLY)
