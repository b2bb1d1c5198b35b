"""What a scan found below one root: one Listing per directory, and what it left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from monarch.catalog.layout import Records
from monarch.catalog.unmanaged import Unmanaged

ROW = np.dtype(
    [
        ("ino", np.uint64),
        ("size", np.uint64),
        ("mtime_ns", np.int64),
        ("ctime_ns", np.int64),
        ("atime_ns", np.int64),
        ("blocks", np.uint32),
        ("attr", np.uint32),
    ]
)
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
"""What many names share."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The names of one directory, sorted, without one Python object per name.

    Attributes:
        path: the directory, relative to the root; empty for the root.
        paths: the root-relative paths of the names, one after the other.
        ends: where each path ends in ``paths``.
        rows: one ROW per name.
        real: the directory that was read, another one where ``path`` is below a link.
    """

    path: bytes
    paths: bytes
    ends: npt.NDArray[np.int64]
    rows: Records
    real: bytes

    @classmethod
    def of(
        cls, path: bytes, names: list[bytes], rows: Records, real: bytes | None = None
    ) -> Listing:
        """Pack sorted paths and their rows."""
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        return cls(path, b"".join(names), ends, rows, path if real is None else real)

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
class Survey:
    """Everything that a scan found below one root.

    Attributes:
        top: the ROW of the root itself, as an array of one.
        listings: the directories that could be read, sorted by path.
        attrs: ATTR records that the rows refer to.
        links: path of a link → path below the root that it resolves to.
        scan_rights: what the scan could read by groups and capabilities, in one word.
        unmanaged: names left to the origin, by reason.
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
