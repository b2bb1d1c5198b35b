"""The root directory of a dataset as it is on this machine."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from monarch.errors import UsageError
from monarch.model import shown


@dataclass(frozen=True, slots=True)
class OriginRoot:
    """A dataset root that exists: as the user wrote it, and where it really is."""

    given: bytes
    path: bytes
    dev: int
    ino: int

    def __str__(self) -> str:
        return shown(self.path)


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
    return OriginRoot(path, real, found.st_dev, found.st_ino)
