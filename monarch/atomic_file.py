"""Files that are written whole or not at all."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, mode: int) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` when the block ends well.

    A link at `path` stays and its target is replaced; what is not a regular file, such
    as /dev/stdout, is written to directly.

    Raises:
        OSError: it cannot be written; what was at `path` is as before.
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
            os.fsync(file.fileno())
        os.rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _refuse_foreign_link(path: Path) -> None:
    """In a directory for all, a link may have been laid by another user as a trap."""
    if path.is_symlink() and path.lstat().st_uid not in (os.geteuid(), 0):
        raise OSError(errno.ELOOP, "is a link that another user has made", str(path))


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False
