"""Whether a Tier still works: a small file written and read back, a Replica looked at.

Everything here may block for as long as a medium does: it runs in threads of its own.
"""

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Container
from enum import Enum
from pathlib import Path
from typing import Final

FAULTS: Final = frozenset(
    {
        *(errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EROFS),
        *(errno.ENOTCONN, errno.ETIMEDOUT, errno.EUCLEAN, errno.EREMOTEIO),
        *(errno.ESHUTDOWN, errno.EHOSTDOWN, errno.ECONNABORTED, errno.ENOMEDIUM),
    }
)
"""What a medium says that has failed, whatever the file."""
GONE_OR_FAULTS: Final = FAULTS | {errno.ENOENT}
"""The same of a directory that was there before."""
PROBE_BYTES: Final = 4096


class Finding(Enum):
    """What was found of a Replica that a program could not open."""

    HELD = "it is there, in its whole size"
    LOST = "it is not there, or not whole"
    TIER_GONE = "its Tier's directory is not there"


def probe_tier(directory: Path) -> None:
    """Write a small file into a Tier and read it back from the medium.

    Raises:
        OSError: what failed; of an answer that is not what was written, EIO.
    """
    path = directory / ".alive"
    # Aligned, as reading around the page cache demands it.
    content = mmap.mmap(-1, PROBE_BYTES)
    content.write(os.urandom(PROBE_BYTES))
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
    try:
        if _read_back(path) != content[:]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    finally:
        os.unlink(path)


def inspect(path: Path, size: int) -> Finding:
    """Look for a Replica.

    Raises:
        OSError: the medium has failed.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in FAULTS:
            raise
        return Finding.LOST if path.parent.is_dir() else Finding.TIER_GONE
    try:
        os.pread(fd, 1, 0)
        return Finding.HELD if os.fstat(fd).st_size == size else Finding.LOST
    finally:
        os.close(fd)


def fault_of(
    step: Callable[[], object], faults: Container[int | None] = GONE_OR_FAULTS
) -> str:
    """Return what a step on a Tier says about the medium; "" if that works."""
    try:
        step()
    except OSError as error:
        if error.errno in faults:
            return os.strerror(error.errno or 0)
    return ""


def _read_back(path: Path) -> bytes:
    into = mmap.mmap(-1, PROBE_BYTES)
    fd = -1
    with contextlib.suppress(OSError):  # older tmpfs knows no O_DIRECT
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    if fd < 0:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.preadv(fd, [into], 0)
        return into[:]
    finally:
        os.close(fd)
