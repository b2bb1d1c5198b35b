"""The indexes that scans save for later jobs, in the user's state directory.

Each is an index file as written by `monarch index`; its name is derived from the root,
the patterns and the rights of the scan. A job that loads one has compared all
directories with it, but no files.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_hexdigest

from monarch import native
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.errors import shown
from monarch.kept_files import KeptFiles
from monarch.origins.index_file import (
    IndexSummary,
    RootIndex,
    read_index,
    read_summary,
    save_index,
)
from monarch.origins.relocation import IndexUnusableError

FILES_MAX: Final = 64
BYTES_MAX: Final = 1 << 30
_SUFFIX: Final = ".index"

log = logging.getLogger("monarch.index")


@dataclass(frozen=True, slots=True)
class SavedIndex:
    """One saved index.

    Attributes:
        used_s: when it was saved or last loaded, in seconds since the epoch.
    """

    file: Path
    bytes: int
    used_s: float
    summary: IndexSummary

    @property
    def age_s(self) -> float:
        """Return the seconds since the scan."""
        return max(0.0, time.time() - self.summary.scanned_ns / 1e9)


@dataclass(frozen=True, slots=True)
class SavedIndexes:
    """The saved indexes of one user.

    Attributes:
        folder: the directory of the files, which need not exist.
    """

    folder: Path

    def load(self, root: bytes, patterns: Patterns) -> RootIndex:
        """Return the index saved by a scan with this process's rights.

        Raises:
            IndexUnusableError: none exists that can be read.
        """
        file = self._file(root, patterns)
        index = read_index(file)
        if (index.root, index.patterns) != (root, patterns):
            raise IndexUnusableError("its name is that of another dataset")
        return index

    def note_use(self, root: bytes, patterns: Patterns) -> None:
        """Mark an index as just used, so that it is removed last."""
        try:
            self._kept.note_use(self._file(root, patterns))
        except OSError as error:
            log.debug("index in use not noted reason=%s", error.strerror)

    def save(self, index: RootIndex) -> bool:
        """Save an index for later jobs; return whether it was saved.

        An index that lacks names because of errors is not: later scans may succeed.
        """
        if index.unmanaged.get(Unmanaged.FAILED):
            return False
        file = self._file(index.root, index.patterns)
        try:
            self._kept.make_folder()
            save_index(file, index, mode=0o600, durable=False)
            self._kept.bound({one.file for one in self.listed()}.__contains__)
        except OSError as error:
            where = shown(os.fsencode(file))
            log.debug("index not saved file=%s reason=%s", where, error.strerror)
            return False
        return True

    def drop(self, root: bytes, patterns: Patterns) -> None:
        """Remove an index because of changed files, which directories do not show."""
        try:
            self._file(root, patterns).unlink(missing_ok=True)
        except OSError as error:
            log.debug("index not removed reason=%s", error.strerror)

    def listed(self) -> list[SavedIndex]:
        """Return the readable indexes of this version, most recently used first."""
        found = []
        for file, status in self._kept.by_use():
            try:
                summary = read_summary(file)
            except IndexUnusableError:
                continue
            found.append(SavedIndex(file, status.st_size, status.st_mtime, summary))
        return found

    def forget(self, root: bytes | None) -> int:
        """Remove the indexes of a root, or all of them; return their number.

        Raises:
            OSError: one cannot be removed.
        """
        if root is None:
            files = [file for file, _ in self._kept.by_use()]
        else:
            files = [one.file for one in self.listed() if one.summary.root == root]
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)

    def _file(self, root: bytes, patterns: Patterns) -> Path:
        rights = [os.geteuid(), native.rights_mark()]
        key = [os.fsdecode(root), asdict(patterns), rights]
        return self.folder / (xxh3_64_hexdigest(json.dumps(key).encode()) + _SUFFIX)

    @property
    def _kept(self) -> KeptFiles:
        return KeptFiles(self.folder, _SUFFIX, FILES_MAX, BYTES_MAX)
