"""Reads files that may appear and vanish meanwhile."""

import os
from contextlib import suppress
from pathlib import Path

from monarch.tiers.tier import PAGE_BYTES


def files_below(folder: Path, suffix: str = "") -> dict[Path, os.stat_result]:
    """The files of a tree whose names end so, as far as they are still there."""
    found = {}
    for parent, _, names in os.walk(folder):
        for path in [Path(parent, name) for name in names if name.endswith(suffix)]:
            with suppress(FileNotFoundError):
                found[path] = path.lstat()
    return found


def disk_bytes(folder: Path, suffix: str = "") -> int:
    """The result of `du` on such files."""
    return sum(one.st_blocks * 512 for one in files_below(folder, suffix).values())


def data_bytes(folder: Path) -> int:
    """The disk space of the bytes of files, in whole pages.

    `du` counts, too, the blocks in which a file system keeps the extents of a file.
    """
    return sum(
        min(one.st_blocks * 512, -(-one.st_size // PAGE_BYTES) * PAGE_BYTES)
        for one in files_below(folder).values()
    )


def descriptors(pid: int) -> dict[Path, str]:
    """The targets of the descriptors of a process."""
    found = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found[path] = os.readlink(path)
    return found
