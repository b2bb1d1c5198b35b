"""A directory read by a scan: its place, the results for its names, its Listing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from monarch.catalog.block import Records
from monarch.catalog.links import join
from monarch.catalog.survey import ROW, Listing

NAME_BYTES_MAX = 255
"""The longest name that readdir() returns; some FUSE servers have longer ones."""


@dataclass(slots=True)
class Batch:
    """The results for some names of one directory.

    Attributes:
        place: the number of earlier names of the directory.
        links: the names that are links.
        directories: the names that are directories, with their inodes.
    """

    place: int
    names: list[bytes]
    rows: Records
    links: list[bytes] = field(default_factory=list)
    directories: list[tuple[bytes, int]] = field(default_factory=list)


class Place(NamedTuple):
    """A directory to read.

    Attributes:
        path: its name in the dataset, to which patterns apply; empty for the root.
        real: the real path.
        dev: the device on which its names must be.
        chain: real paths of the directories with the links that led out of the root.
        top: the first of these links.
    """

    path: bytes
    real: bytes
    dev: int
    chain: tuple[bytes, ...] = ()
    top: bytes = b""

    def below(self, path: bytes) -> Place:
        """Return the place of a directory in this one."""
        real = join(self.real, os.path.basename(path))
        return self._replace(path=path, real=real)


@dataclass(slots=True)
class OpenDirectory:
    """A directory that is being read; the last task that uses it closes it.

    Attributes:
        names: the number of names read so far.
        named: whether it is not read, and only some of its names are looked up.
    """

    at: Place
    fd: int
    batches: list[Batch] = field(default_factory=list)
    users: int = 1
    failed: bool = False
    names: int = 0
    named: bool = False


def listing_of(directory: OpenDirectory) -> Listing:
    """Return the names of a directory, sorted.

    A directory that changes during the read may return a name twice.
    """
    batches = sorted(directory.batches, key=lambda batch: batch.place)
    names = [name for batch in batches for name in batch.names]
    rows = np.concatenate([np.empty(0, ROW), *(batch.rows for batch in batches)])
    order = sorted(range(len(names)), key=names.__getitem__)
    path = directory.at.path
    room = NAME_BYTES_MAX + (len(path) + 1 if path else 0)
    short = max(map(len, names), default=0) <= room
    if len(set(names)) < len(names):
        order = sorted({name: place for place, name in enumerate(names)}.values())
        order.sort(key=names.__getitem__)
    whole = short and len(order) == directory.names and not directory.named
    listed = np.empty(len(names), np.uint32)
    listed[order] = np.arange(len(order))
    chosen = [names[place] for place in order]
    return Listing.of(path, chosen, rows[order], order=listed if whole else None)
