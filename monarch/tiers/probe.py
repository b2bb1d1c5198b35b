"""Probes of a Tier: write a block and read it back, or check a Replica.

Everything here may block for as long as a medium does, so it runs in its own threads.
"""

import errno
import fcntl
import mmap
import os
import signal
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
"""Errors of a failed medium, whatever the file."""
GONE_OR_FAULTS: Final = FAULTS | {errno.ENOENT}
"""The same for a directory that existed before."""
PROBE_BYTES: Final = 4096
_UNKNOWN: Final = frozenset(
    {errno.EOPNOTSUPP, errno.EINVAL, errno.EISDIR, errno.ENOSYS}
)
"""Errors of file systems without nameless files, or without O_DIRECT."""


class Finding(Enum):
    """The state of a Replica that a program could not open."""

    HELD = "it exists and has its whole size"
    LOST = "it does not exist, or is not whole"
    TIER_GONE = "the directory of its Tier does not exist"


class Probe:
    """Writes into a Tier and reads back, past the page cache if possible.

    The file has no name and stays open: writing it again needs no new block, so a
    medium that is busy with copies still answers soon.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = -1

    def __repr__(self) -> str:
        return f"<Probe of {self._directory}>"

    def run(self) -> None:
        """Try the medium once.

        Raises:
            OSError: it failed; EIO if the bytes read differ from those written.
        """
        if self._fd < 0:
            self._fd = _open_nameless(self._directory)
        # Mapped memory is aligned, as O_DIRECT requires.
        content, back = mmap.mmap(-1, PROBE_BYTES), mmap.mmap(-1, PROBE_BYTES)
        content.write(os.urandom(PROBE_BYTES))
        os.pwrite(self._fd, content, 0)
        os.preadv(self._fd, [back], 0)
        if back[:] != content[:]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def inspect(path: Path, size: int) -> Finding:
    """Return the state of a Replica.

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
    """Return the error of a step that indicates a failed medium, or ""."""
    try:
        step()
    except OSError as error:
        if error.errno in faults:
            return os.strerror(error.errno or 0)
    return ""


def _open_nameless(directory: Path) -> int:
    """Return a descriptor of a new file without a name."""
    flags = os.O_RDWR | os.O_CLOEXEC
    for more in (os.O_TMPFILE | os.O_DIRECT, os.O_TMPFILE):
        try:
            return os.open(directory, flags | more, 0o600)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
    path = directory / ".probe"
    fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.unlink(path)
    return fd


def grants_leases(directory: Path) -> bool:
    """Return whether the file system of a directory can prove that a file is unused.

    It can if it grants a write lease on a file without a name (fcntl(2), F_SETLEASE).
    """
    probe = directory / ".lease"
    flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(probe, flags, 0o400)
    except OSError:
        return False
    try:
        os.unlink(probe)
        # An open of a leased file sends its holder a signal, which kills by default.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
