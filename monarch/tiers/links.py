"""Staged files and their names: jobs share inodes, freed with their last name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Final, Self

BLOCK_BYTES: Final = 512
"""The unit of st_blocks."""


@dataclass(frozen=True, slots=True)
class Inode:
    """A file of a Tier, under one of its names.

    Attributes:
        key: device and inode.
        links: the number of its names, in all jobs.
        size_bytes: the space that it takes, at most its length: it may be incomplete.
    """

    key: tuple[int, int]
    links: int
    size_bytes: int


def inodes_below(path: Path) -> Iterator[Inode]:
    """Yield the regular files below a directory, one for each name."""
    try:
        entries = list(os.scandir(path))
    except OSError:
        return  # it was removed meanwhile, or is not a directory
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from inodes_below(Path(entry.path))
            continue
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if S_ISREG(found.st_mode):
            size = min(found.st_size, found.st_blocks * BLOCK_BYTES)
            yield Inode((found.st_dev, found.st_ino), found.st_nlink, size)


@dataclass(frozen=True, slots=True)
class Held:
    """The contents of a directory, and the part that has names elsewhere, too."""

    files: int
    size_bytes: int
    shared_files: int
    shared_bytes: int

    @classmethod
    def below(cls, path: Path) -> Self:
        """Return the current contents of a directory."""
        found = list(inodes_below(path))
        shared = [one.size_bytes for one in found if one.links > 1]
        total = sum(one.size_bytes for one in found)
        return cls(len(found), total, len(shared), sum(shared))


@dataclass(slots=True)
class FreedSpace:
    """Counts the bytes of inodes that lose their last name with removed directories."""

    _inodes: dict[tuple[int, int], Inode] = field(default_factory=dict)
    _names: dict[Path, Counter[tuple[int, int]]] = field(default_factory=dict)

    def note(self, path: Path) -> None:
        """Record the contents of a directory before its removal."""
        names = self._names[path] = Counter()
        for one in inodes_below(path):
            names[one.key] += 1
            self._inodes.setdefault(one.key, one)

    def sums(self, removed: Iterable[Path]) -> tuple[int, int]:
        """Return the freed bytes, and the bytes kept by other names."""
        gone = sum((self._names.get(path, Counter()) for path in removed), Counter())
        freed = kept = 0
        for key, count in gone.items():
            one = self._inodes[key]
            if count >= one.links:
                freed += one.size_bytes
            else:
                kept += one.size_bytes
        return freed, kept
