"""Atomic writes: a file is replaced when it is complete, or stays as it was."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, mode: int, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    If `path` is a link, its target is replaced. A special file, such as /dev/stdout, is
    written directly.

    Args:
        durable: survive a crash of the machine; this waits for the disk.

    Raises:
        OSError: the file cannot be written; `path` is unchanged.
    """
    _refuse_foreign_link(path)
    if _is_special(path):
        with path.open("wb") as special:
            yield special
        return
    target = Path(os.path.realpath(path))
    fd, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            os.fchmod(file.fileno(), mode)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _refuse_foreign_link(path: Path) -> None:
    """Refuse a link of another user, which may be a trap in a shared directory."""
    if path.is_symlink() and path.lstat().st_uid not in (os.geteuid(), 0):
        raise OSError(errno.ELOOP, "is a symbolic link of another user", str(path))


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False
