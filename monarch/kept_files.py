"""Files that a user's jobs keep for later ones in a directory, within limits.

The modification time of such a file is the time of its last use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEFTOVER_S: Final = 3600.0
"""An older temporary file was left by a killed process."""


def make_directories(folder: Path) -> None:
    """Make a directory and its missing parents, for this user alone.

    Raises:
        OSError: one cannot be made.
    """
    missing = [one for one in folder.parents if not one.exists()]
    for one in (*reversed(missing), folder):
        one.mkdir(mode=0o700, exist_ok=True)


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files with a suffix in a directory.

    Attributes:
        folder: need not exist.
        files_max: the maximum number of files.
        bytes_max: their maximum total size.
    """

    folder: Path
    suffix: str
    files_max: int
    bytes_max: int

    def make_folder(self) -> None:
        """Make the directory, for this user alone.

        Raises:
            OSError: it cannot be made.
        """
        make_directories(self.folder)

    def note_use(self, file: Path) -> None:
        """Mark a file as just used: it is the last one to be removed.

        Raises:
            OSError: it does not exist, or belongs to another user.
        """
        os.utime(file)

    def by_use(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the files and their status, the last used first."""
        found = []
        try:
            files = [one for one in self.folder.iterdir() if one.suffix == self.suffix]
        except OSError:
            return
        for file in files:
            with suppress(OSError):  # removed meanwhile
                found.append((file, file.lstat()))
        yield from sorted(found, key=lambda item: -item[1].st_mtime)

    def bound(self, is_usable: Callable[[Path], bool]) -> None:
        """Remove unusable files, and the least recently used ones above the limits.

        Raises:
            OSError: a file cannot be removed.
        """
        left = total = 0
        for file, status in self.by_use():
            total += status.st_size
            is_over = left == self.files_max or total > self.bytes_max
            if is_over or not is_usable(file):
                total -= status.st_size
                file.unlink(missing_ok=True)
            else:
                left += 1
        for file in self.folder.glob(f".*{self.suffix}.*"):
            with suppress(FileNotFoundError):
                if time.time() - file.lstat().st_mtime > LEFTOVER_S:
                    file.unlink()
