"""The root directory of a dataset as it is on this machine."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from monarch import native
from monarch.catalog.unmanaged import shown
from monarch.errors import UsageError


@dataclass(frozen=True, slots=True)
class OriginRoot:
    """A dataset root: as the user wrote it, and where it really is.

    Attributes:
        unstable: files there may get other inode numbers where they are.
    """

    given: bytes
    path: bytes
    dev: int
    ino: int
    unstable: bool = False

    @property
    def answers(self) -> bool:
        """Return whether the directory could be asked about: all else may hang."""
        return self.ino != 0

    def __str__(self) -> str:
        return shown(self.path)


STAGES_MAX = 40
"""Links in one path that the kernel follows (path_resolution(7))."""


def stages(path: bytes) -> list[bytes]:
    """Return a path and what it reads after each link in it, the way the kernel goes.

    ``/a/l/d`` with ``l`` leading to ``m`` and ``m`` to ``b`` has the stages ``/a/l/d``,
    ``/a/m/d`` and ``/a/b/d``: a change of any of these links changes what it names.
    """
    found = [path]
    while len(found) <= STAGES_MAX and (further := _past_link(found[-1])) is not None:
        found.append(further)
    return found


def _past_link(path: bytes) -> bytes | None:
    """Return the path with its first link replaced by what that says, if it has one."""
    names = [name for name in path.split(b"/") if name]
    here = b""
    for number, name in enumerate(names):
        if name == b"..":  # `here` holds no link: its text alone tells the parent
            here = os.path.dirname(here)
            continue
        try:
            text = os.readlink(here + b"/" + name)
        except OSError:
            here += b"/" + name
            continue
        return os.path.join(here or b"/", text, *names[number + 1 :])
    return None


def open_root(given: str | bytes) -> OriginRoot:
    """Prove that a dataset root is a directory that can be read.

    Raises:
        UsageError: one line saying what is wrong with the path.
    """
    path = os.path.abspath(os.fsencode(given))
    try:
        real = os.path.realpath(path, strict=True)
        found = os.stat(real)
    except FileNotFoundError:
        raise UsageError(f"dataset {shown(path)}: there is no such directory") from None
    except OSError as error:
        raise UsageError(f"dataset {shown(path)}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"dataset {shown(path)}: is not a directory")
    if not os.access(real, os.R_OK | os.X_OK, effective_ids=True):
        raise UsageError(f"dataset {shown(path)}: you may not read this directory")
    if real == b"/":
        raise UsageError(
            f"dataset {shown(path)}: is the root of the file system; name less"
        )
    unstable = native.inodes_unstable(real)
    return OriginRoot(path, real, found.st_dev, found.st_ino, unstable)
