"""The result of a scan of one root: Listings of directories, and unmanaged names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from posixpath import dirname

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.catalog.block import Records

PATH_BYTES_MAX = 1023
"""Longest root-relative path of an Entry; a longer one is left to the origin."""

ROW = native.DTYPES["monarch_row"]
"""Metadata of one name; ``attr`` is an index into the survey's ``attrs``."""

ATTR = np.dtype(
    [
        ("mode", np.uint32),
        ("uid", np.uint32),
        ("gid", np.uint32),
        ("nlink", np.uint32),
        ("dev", np.uint64),
        ("blksize", np.uint32),
        ("readable", np.uint32),
    ]
)
"""Attributes that many names share."""


class Unmanaged(StrEnum):
    """Why a name below a root is left to the origin."""

    EXCLUDED = "excluded"
    SPECIAL = "special"
    MOUNT = "mount"
    UNREADABLE = "unreadable"
    FAILED = "failed"
    LONG = "long"
    ABSURD = "absurd"
    LINK_OUTSIDE = "link_outside"
    LINK_DANGLING = "link_dangling"
    LINK_LOOP = "link_loop"
    LINK_UNLISTED = "link_unlisted"
    LINK_CYCLE = "link_cycle"
    LINK_LIMIT = "link_limit"
    LINK_PSEUDO = "link_pseudo"

    @property
    def text(self) -> str:
        """Return the reason as a text that follows a count."""
        return _TEXTS[self]

    @property
    def singular(self) -> str:
        """Return the reason as a text that follows the count 1."""
        text = re.sub(r"(link|loop)s(?!:)", r"\1", _TEXTS[self])
        return text.replace("that leave ", "that leaves ")

    @property
    def is_link(self) -> bool:
        """Return whether it is a reason not to follow a link."""
        return self.value.startswith("link_")


_TEXTS = {
    Unmanaged.EXCLUDED: "excluded by include, exclude or never",
    Unmanaged.SPECIAL: "not a file, directory or link",
    Unmanaged.MOUNT: "on another file system that is mounted there",
    Unmanaged.UNREADABLE: "unreadable",
    Unmanaged.FAILED: "that could not be read because of an error",
    Unmanaged.LONG: f"with a path longer than {PATH_BYTES_MAX} bytes",
    Unmanaged.ABSURD: "with an invalid size, time or inode",
    Unmanaged.LINK_OUTSIDE: "links that leave the dataset (links: inside)",
    Unmanaged.LINK_DANGLING: "dangling links",
    Unmanaged.LINK_LOOP: "link loops",
    Unmanaged.LINK_UNLISTED: "links to names that are not catalogued",
    Unmanaged.LINK_CYCLE: "links to a parent directory",
    Unmanaged.LINK_LIMIT: "directory links beyond the limits of depth or names",
    Unmanaged.LINK_PSEUDO: "links to files that the kernel generates",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """The names that the scan could not read.

    Attributes:
        names: how many.
        examples: the first of them, each with its error.
    """

    names: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The sorted names of one directory, stored without an object for each name.

    Attributes:
        path: the directory, relative to the root; empty for the root.
        paths: the root-relative paths of the names, concatenated.
        ends: the end of each path in ``paths``.
        rows: one ROW per name.
        real: the directory that was read; it differs if ``path`` is below a link.
        order: the numbers of the names in the order in which the origin lists them.
        whole: no name of the directory is missing.
    """

    path: bytes
    paths: bytes
    ends: npt.NDArray[np.int64]
    rows: Records
    real: bytes
    order: npt.NDArray[np.uint32]
    whole: bool

    @classmethod
    def of(
        cls,
        path: bytes,
        names: list[bytes],
        rows: Records,
        *,
        real: bytes | None = None,
        order: npt.NDArray[np.uint32] | None = None,
    ) -> Listing:
        """Pack sorted paths and their rows; without an order some may be missing."""
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        real = path if real is None else real
        whole = order is not None
        if order is None:
            order = np.arange(len(names), dtype=np.uint32)
        return cls(path, b"".join(names), ends, rows, real, order, whole)

    def __len__(self) -> int:
        return len(self.ends)

    def name(self, number: int) -> bytes:
        """Return the root-relative path of a name."""
        start = int(self.ends[number - 1]) if number else 0
        return self.paths[start : int(self.ends[number])]

    def names(self) -> list[bytes]:
        """Return the root-relative paths of all names."""
        ends = self.ends.tolist()
        return [self.paths[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True, slots=True)
class Outside:
    """The targets of links that leave the root, and the hops on the way.

    Attributes:
        outer: links whose targets are no names of the dataset, sorted.
        outer_rows: one ROW for each of these targets.
        hops: absolute paths of the directories and links on the way; first those of
            directories that hold a target or a link, each part sorted.
        hop_rows: one ROW for each.
        holders: the number of such directories.
    """

    outer: tuple[bytes, ...] = ()
    outer_rows: Records = field(default_factory=lambda: np.empty(0, ROW))
    hops: tuple[bytes, ...] = ()
    hop_rows: Records = field(default_factory=lambda: np.empty(0, ROW))
    holders: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of a scan of one root.

    Attributes:
        top: the ROW of the root itself, as an array of one.
        listings: the directories that could be read, sorted by path.
        attrs: ATTR records that the rows refer to.
        links: path of a link → path of the name below the root that it resolves to. A
            link in `outside.hops` has an absolute path, and a hop has one as a target.
            A target with a slash at its end is the target of the link with this path.
        outside: the targets and hops that are not below the root.
        scan_rights: a mark of the groups and capabilities with which the scan read.
        unmanaged: the numbers of names that are left to the origin, by reason.
    """

    root: bytes
    top: Records
    listings: tuple[Listing, ...]
    attrs: Records
    links: Mapping[bytes, bytes]
    scanned_ns: int
    scan_euid: int
    scan_rights: int
    unmanaged: Mapping[Unmanaged, int] = field(default_factory=dict)
    refused: Refused = Refused()
    outside: Outside = field(default_factory=Outside)

    def listed(self, paths: set[bytes]) -> set[bytes]:
        """Return the catalogued ones of some paths below the root."""
        found = paths & {b""}
        wanted: dict[bytes, set[bytes]] = {}
        for path in paths - {b""}:
            wanted.setdefault(dirname(path), set()).add(path)
        for listing in self.listings:
            here = wanted.get(listing.path)
            if here:
                found |= here.intersection(listing.names())
        return found
