"""Private directories and their locks, which no other user can prepare in advance."""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

from monarch.errors import MonarchError

PRIVATE = 0o700
LOCK_S = 1.0
LOOK_S = 0.02
TRIES = 100


class Unsafe(MonarchError):
    """A directory that must be private is not; it is refused, not repaired."""


def open_private(path: Path, *, create: bool = True) -> int:
    """Return a descriptor of a private directory of this user that is not a link.

    The parent must exist; the caller closes the descriptor.
    """
    for _ in range(TRIES):
        if create:
            _create(path)
        with suppress(FileNotFoundError):
            return _open(path)
        if not create:
            break  # else another process has removed it meanwhile, as it was empty
    raise Unsafe(f"{path}: {os.strerror(errno.ENOENT)}")


def _create(path: Path) -> None:
    try:
        os.mkdir(path, PRIVATE)
    except FileExistsError:
        pass
    except OSError as error:
        raise MonarchError(f"{path}: {error.strerror}") from error


def _open(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise Unsafe(f"{path} is a link, or not a directory; remove it") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unsafe(f"{path}: {error.strerror}") from error
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != PRIVATE:
        os.close(fd)
        raise Unsafe(
            f"{path} is not private: owner {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):04o}; remove it or `chmod 700` it"
        )
    return fd


def make_private(path: Path) -> None:
    """Make a private directory, or check an existing one."""
    os.close(open_private(path))


def is_private(path: Path) -> bool:
    """Return whether a directory exists, is no link, and is private to this user."""
    try:
        os.close(open_private(path, create=False))
    except MonarchError:
        return False
    return True


def why_no_directory(path: Path) -> str:
    """Return why `path` is not a directory, as text; "" if it is one."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be reached: {error.strerror}"
    return "" if stat.S_ISDIR(found.st_mode) else "is not a directory"


def take_lock(
    directory: Path, name: str = "lock", *, create: bool = True
) -> int | None:
    """Return a descriptor with the lock of a directory; None if it is taken.

    The kernel releases the lock when its process ends, in whatever way.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    while True:
        fd = os.open(directory / name, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        if _still_named(fd, directory / name):
            return fd
        os.close(fd)  # the directory was removed as a leftover meanwhile: retry


def lock_directory(path: Path, name: str = "lock") -> int | None:
    """Make a private directory and take its lock; None if another process holds it.

    An agent that removes leftovers may hold the lock for a moment, or may have removed
    the directory before it was locked.
    """
    deadline_s = time.monotonic() + LOCK_S
    while True:
        try:
            make_private(path)
            lock = take_lock(path, name)
        except FileNotFoundError:
            lock = None
        if lock is not None or time.monotonic() >= deadline_s:
            return lock
        time.sleep(LOOK_S)


def is_locked(directory: Path, name: str = "lock") -> bool:
    """Return whether a running process holds the lock of a directory."""
    try:
        fd = take_lock(directory, name, create=False)
    except OSError:
        return False
    if fd is None:
        return True
    os.close(fd)
    return False


def remove_tree(path: Path) -> bool:
    """Remove a directory atomically for other processes; return False if it stays.

    It is renamed first, so that its name never leads to a half-removed directory.
    """
    doomed = path.with_name(f"dead-{secrets.token_hex(6)}")
    try:
        os.rename(path, doomed)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return not doomed.exists()


def _still_named(fd: int, path: Path) -> bool:
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
