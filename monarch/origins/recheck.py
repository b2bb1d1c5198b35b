"""Compares Files of a saved index with their origin.

The times of directories do not reveal files that were rewritten in place.
"""

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from monarch.catalog.block import Block

Numbers = npt.NDArray[np.int64]


class Compared(NamedTuple):
    """The Files of a root that were compared, by their numbers in its block.

    Files whose origin reports an error are in neither list: they may be unchanged.
    """

    same: Numbers
    changed: Numbers


class Identity(NamedTuple):
    """The attributes in the Catalog that distinguish versions of a File."""

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


def is_same(known: Identity, found: os.stat_result) -> bool:
    """Return whether a File matches the Catalog, by the comparison of Transfers."""
    now = Identity(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return stat.S_ISREG(found.st_mode) and now == known


def compare(root: bytes, block: Block, numbers: Sequence[int]) -> Compared:
    """Compare some Files with one request for each, by its first name.

    Its other names lead to the same inode, or the times of a directory have changed.

    Args:
        root: the realpath of the root.
    """
    first = block.first_entry[np.array(numbers, np.int64)]
    fields = block.entries[first][list(Identity._fields)].tolist()
    found: dict[bool, list[int]] = {True: [], False: []}
    for number, entry, known in zip(numbers, first.tolist(), fields, strict=True):
        path = root + b"/" + block.path(entry)
        verdict = _verdict(path, Identity(*known), block.is_outer(entry))
        if verdict is not None:
            found[verdict].append(number)
    return Compared(np.array(found[True], np.int64), np.array(found[False], np.int64))


def _verdict(path: bytes, known: Identity, follow: bool) -> bool | None:
    try:
        return is_same(known, os.stat(path) if follow else os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
