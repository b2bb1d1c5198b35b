"""The root directory of a dataset on this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from monarch import native
from monarch.catalog.links import HOPS_MAX
from monarch.errors import UsageError, shown


@dataclass(frozen=True, slots=True)
class OriginRoot:
    """A dataset root: the path from the user, and its realpath.

    Attributes:
        unstable: whether the inode numbers of files may change.
    """

    given: bytes
    path: bytes
    dev: int
    ino: int
    unstable: bool = False

    @property
    def responds(self) -> bool:
        """Whether the directory responded; if not, requests below it may hang."""
        return self.ino != 0

    def __str__(self) -> str:
        return shown(self.path)


def link_expansions(path: bytes) -> list[bytes]:
    """Return a path, and the path after the expansion of each link in it.

    With a link from ``l`` to ``m`` and one from ``m`` to ``b``, the expansions of
    ``/a/l/d`` are ``/a/l/d``, ``/a/m/d`` and ``/a/b/d``: a change of any link changes
    the target.
    """
    found = [path]
    while len(found) <= HOPS_MAX and (further := _past_link(found[-1])) is not None:
        found.append(further)
    return found


def _past_link(path: bytes) -> bytes | None:
    """Return the path with its first link expanded, None if it has no link."""
    names = [name for name in path.split(b"/") if name]
    here = b""
    for number, name in enumerate(names):
        if name == b"..":  # `here` contains no link, so its text has the parent
            here = os.path.dirname(here)
            continue
        try:
            text = os.readlink(here + b"/" + name)
        except OSError:
            here += b"/" + name
            continue
        return os.path.join(here or b"/", text, *names[number + 1 :])
    return None


def stands_above(paths: Iterable[bytes]) -> tuple[tuple[int, int], ...]:
    """Return the (dev, ino) of each directory and link that these paths pass.

    The inode number is 0 if it may change.
    """
    found: dict[tuple[int, int], None] = {}
    for path in {here for given in paths for here in _upwards(given)}:
        try:
            st = os.lstat(path)
            unstable = native.inodes_unstable(path)
        except OSError:
            continue
        found[st.st_dev, 0 if unstable else st.st_ino] = None
    return tuple(sorted(found))


def _upwards(path: bytes) -> Iterator[bytes]:
    while path.strip(b"/"):
        yield path
        path = os.path.dirname(path.rstrip(b"/"))


def open_root(given: str | bytes) -> OriginRoot:
    """Return the root of a dataset, after checking that it is a readable directory.

    Raises:
        UsageError: it is not.
    """
    path = os.path.abspath(os.fsencode(given))
    try:
        real = os.path.realpath(path, strict=True)
        found = os.stat(real)
    except FileNotFoundError:
        raise UsageError(f"dataset {shown(path)} does not exist") from None
    except OSError as error:
        raise UsageError(f"dataset {shown(path)}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"dataset {shown(path)} is not a directory")
    if not os.access(real, os.R_OK | os.X_OK, effective_ids=True):
        raise UsageError(f"dataset {shown(path)}: Permission denied")
    if real == b"/":
        raise UsageError(
            f"dataset {shown(path)}: refusing to stage /; choose a subdirectory"
        )
    unstable = native.inodes_unstable(real)
    return OriginRoot(path, real, found.st_dev, found.st_ino, unstable)
