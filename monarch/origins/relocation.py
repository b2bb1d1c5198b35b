"""Adapts an index to another machine or mount: device numbers, names outside the root.

Each node numbers the devices of shared file systems in its own way, and the directories
and links on the way to them may be on its own file system.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.catalog.block import Block, Records
from monarch.errors import MonarchError, shown
from monarch.origins.root import OriginRoot

BATCH_NAMES = 256

Numbers = npt.NDArray[np.int64]


class IndexUnusableError(MonarchError):
    """An index file is damaged or stale; the text contains the reason."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The names of an index outside its root, on this machine.

    Attributes:
        hops: the Entries of directories and links that links pass.
        found: their metadata here.
        devices: device numbers of the index → those of this machine.
    """

    hops: Numbers
    found: Records
    devices: Mapping[int, int]


def find_outside(block: Block, root: OriginRoot, threads: int = 16) -> Outside:
    """Look up the names of an index outside its root.

    Raises:
        IndexUnusableError: a name is missing here, or is another object.
    """
    hops = np.arange(block.hop_start, len(block.entries))
    outer = np.arange(block.name_count, block.hop_start)
    kinds = block.modes() & 0o170000
    outer = outer[kinds[outer] == stat.S_IFDIR]
    places = np.concatenate([outer, hops])
    found = _look(block, root, places, threads)
    _check(block, places, found, same_inodes=len(outer))
    devices = {int(block.header["root_dev"]): root.dev}
    for before, now, place in zip(
        block.attrs["dev"][block.entries["attr"][places]].tolist(),
        found["dev"].tolist(),
        places.tolist(),
        strict=True,
    ):
        if devices.setdefault(before, now) != now:
            raise IndexUnusableError(
                f"{shown(block.path(place))} is on another file system"
            )
    return Outside(hops, found[len(outer) :], devices)


def _look(block: Block, root: OriginRoot, places: Numbers, threads: int) -> Records:
    fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)

    def look(start: int) -> Records:
        part = places[start : start + BATCH_NAMES].tolist()
        return native.find_names(fd, [*map(block.lookup_path, part)], rights=False)

    try:
        with ThreadPoolExecutor(threads, thread_name_prefix="fresh") as pool:
            parts = list(pool.map(look, range(0, len(places), BATCH_NAMES)))
    finally:
        os.close(fd)
    return np.concatenate([native.find_names(-1, [], rights=False), *parts])


def _check(block: Block, places: Numbers, found: Records, same_inodes: int) -> None:
    """Raise IndexUnusableError if a place is missing, or is another object.

    Args:
        same_inodes: the number of first places whose inodes must be the same.
    """
    missing = np.flatnonzero(found["status"])
    if len(missing):
        path = shown(block.path(int(places[missing[0]])))
        reason = os.strerror(-int(found["status"][missing[0]]))
        raise IndexUnusableError(f"links lead to {path}: {reason}")
    other = found["mode"] & 0o170000 != block.modes()[places] & 0o170000
    inodes = block.entries["ino"][places] != found["ino"]
    other[:same_inodes] |= inodes[:same_inodes]
    if other.any():
        path = shown(block.path(int(places[np.argmax(other)])))
        raise IndexUnusableError(f"links lead to {path}, which differs on this node")


def relocate(block: Block, root: OriginRoot, threads: int = 16) -> None:
    """Set device numbers and the inodes of hops in an index to those of this machine.

    Raises:
        IndexUnusableError: links lead to names that do not exist, or differ here.
    """
    here = find_outside(block, root, threads)
    rows, _ = native.make_rows(here.found, 0)
    entries = block.entries
    moved = any(before != now for before, now in here.devices.items())
    if not moved and (entries["ino"][here.hops] == rows["ino"]).all():
        return
    for name in ("ino", "mtime_ns", "ctime_ns", "atime_ns", "size"):
        entries[name][here.hops] = rows[name]
    block.move_to_devices(here.devices)
