"""The values of a stat result that the Catalog can represent.

File systems pass on whatever is on the disk or comes over the network: a time after
2262, an inode 0, a negative size. The Catalog represents a value exactly, or the name
is left to the origin.
"""

from __future__ import annotations

import os
import stat
from typing import Final

Row = tuple[int, int, int, int, int, int, int]

SIZE_MAX: Final = 1 << 46
"""A larger file does not fit into a Tier, nor its checksums into memory."""
INODES_ABSURD: Final = frozenset({0, (1 << 64) - 1})
"""Numbers of file systems without inodes: all files would have one identity."""
ASK_ORIGIN: Final = 0xFFFFFFFF
"""As a number of blocks: the Shim asks the origin for a stat of this Entry."""

_WORD_MAX: Final = (1 << 32) - 1
_TIME_MAX_NS: Final = (1 << 63) - 1
_NS: Final = 1_000_000_000


def lstat_at(name: bytes, fd: int) -> os.stat_result:
    """Return the lstat result of a name in an open directory."""
    return os.stat(name, dir_fd=fd, follow_symlinks=False)


def is_exact(found: os.stat_result) -> bool:
    """Return whether the Catalog can represent these values exactly."""
    return (
        has_identity(found)
        and 0 <= found.st_size <= SIZE_MAX
        and _is_time(found[stat.ST_MTIME], found.st_mtime_ns)
        and _is_time(found[stat.ST_CTIME], found.st_ctime_ns)
        and _is_time(found[stat.ST_ATIME], found.st_atime_ns)
        and 0 <= found.st_nlink <= _WORD_MAX
        and 0 <= found.st_blksize <= _WORD_MAX
    )


def has_identity(found: os.stat_result) -> bool:
    """Return whether the inode identifies the object."""
    return found.st_ino not in INODES_ABSURD


def shared_values(found: os.stat_result, *, readable: bool) -> tuple[int, ...]:
    """Return the values that many Entries share, in the order of ATTR."""
    return (
        found.st_mode,
        # Python gives the user and group 2**32 - 1 as -1.
        found.st_uid & _WORD_MAX,
        found.st_gid & _WORD_MAX,
        _within(found.st_nlink, 0, _WORD_MAX),
        found.st_dev,
        _within(found.st_blksize, 0, _WORD_MAX),
        int(readable),
    )


def make_row(found: os.stat_result, attr: int) -> Row:
    """Return the values in the order of ROW.

    A directory has a row whatever its values, because names below it have rows: a
    value that does not fit is clamped, and the Shim asks the origin.
    """
    blocks = found.st_blocks if is_exact(found) else ASK_ORIGIN
    return (
        found.st_ino,
        _within(found.st_size, 0, SIZE_MAX),
        _within(found.st_mtime_ns, -_TIME_MAX_NS, _TIME_MAX_NS),
        _within(found.st_ctime_ns, -_TIME_MAX_NS, _TIME_MAX_NS),
        _within(found.st_atime_ns, -_TIME_MAX_NS, _TIME_MAX_NS),
        blocks if 0 <= blocks <= ASK_ORIGIN else ASK_ORIGIN,
        attr,
    )


def _is_time(seconds: float, ns: int) -> bool:
    """Return whether a time fits, and its fraction is below one second."""
    return -_TIME_MAX_NS <= ns <= _TIME_MAX_NS and 0 <= ns - int(seconds) * _NS < _NS


def _within(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)
