"""What only the agents of one job know: 32 random bytes in a file."""

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import Final

from monarch.errors import MonarchError

SECRET_BYTES: Final = 32
# Between the creation of the file by another node and its bytes being there.
WRITTEN_WITHIN_S: Final = 5.0
_LOOK_S: Final = 0.05


def job_secret(directory: Path, job: str) -> bytes:
    """Return the secret of a job; the first node that asks makes it.

    It blocks for as long as another node takes to write it, so call it in a thread.

    Raises:
        MonarchError: there is none that can be trusted; the text says why.
    """
    path = directory / f"{job}.key"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        return _written_by_another(path)
    except OSError as error:
        raise MonarchError(f"{path}: {error.strerror}") from error
    try:
        return _write(fd)
    except OSError as error:
        # An empty one would keep the nodes of all jobs of this name apart.
        path.unlink(missing_ok=True)
        raise MonarchError(f"{path}: {error.strerror}") from error


def _write(fd: int) -> bytes:
    with os.fdopen(fd, "wb") as file:
        secret = os.urandom(SECRET_BYTES)
        os.fchmod(file.fileno(), 0o600)
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    return secret


def _written_by_another(path: Path) -> bytes:
    deadline_s = time.monotonic() + WRITTEN_WITHIN_S
    while True:
        try:
            secret = read_secret(path)
            with contextlib.suppress(OSError):
                os.utime(path)  # it is in use again: nobody is to remove it now
            return secret
        except _EmptyError:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(_LOOK_S)


class _EmptyError(MonarchError):
    """The file is there, but nothing is in it yet."""


def read_secret(path: Path) -> bytes:
    """Return the secret in a file that nobody else can read or has made.

    Raises:
        MonarchError: it is not such a file; the text says why.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise MonarchError(f"{path}: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise MonarchError(f"{path}: is not a regular file")
        if found.st_uid != os.geteuid():
            raise MonarchError(f"{path}: belongs to user {found.st_uid}, not to us")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise MonarchError(f"{path}: others may use it (mode {mode:o}, not 600)")
        secret = file.read(SECRET_BYTES + 1)
    if not secret:
        raise _EmptyError(f"{path}: is empty")
    if len(secret) != SECRET_BYTES:
        raise MonarchError(f"{path}: must hold {SECRET_BYTES} bytes")
    return secret


def given_secret(file: str) -> bytes:
    """Return the secret in the file that `peers.secret_file` names.

    Raises:
        MonarchError: it holds none that can be trusted; the text says why.
    """
    try:
        return read_secret(Path(file))
    except MonarchError as error:
        raise MonarchError(f"peers.secret_file: {error}") from error


def remove_secret(directory: Path, job: str) -> None:
    """Remove the secret of a job that has ended."""
    (directory / f"{job}.key").unlink(missing_ok=True)
