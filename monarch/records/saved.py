"""Record indexes saved for later jobs, in the user's state directory."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_hexdigest

from monarch.config.request import state_directory
from monarch.errors import shown
from monarch.kept_files import KeptFiles, make_directories
from monarch.records.errors import RecordsError
from monarch.records.index import RecordIndex, RecordObject

FILES_MAX: Final = 4096
BYTES_MAX: Final = 8 << 30
THREADS: Final = 16
"""Objects that are examined at the same time."""
_SUFFIX: Final = ".records"
LOCKS: Final = 64
"""Number of lock files: paths whose names have the same hash share one."""
TURN_MAX_S: Final = 60.0
_LOOK_S: Final = 0.02

log = logging.getLogger("monarch.records")


@dataclass(frozen=True, slots=True)
class SavedRecordIndexes:
    """The saved Record indexes of one user."""

    kept: KeptFiles

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> SavedRecordIndexes:
        """Return the indexes of the user of this environment."""
        folder = state_directory(environ) / "records"
        return cls(KeptFiles(folder, _SUFFIX, FILES_MAX, BYTES_MAX))

    def load(self, name: str) -> RecordIndex | None:
        """Return the saved index of a path if its objects have not changed.

        None: they have, or the index is missing or unreadable.
        """
        file = self._file(name)
        try:
            index = RecordIndex.load(file)
            if not is_unchanged(index):
                return None
            self.kept.note_use(file)
        except (OSError, RecordsError) as reason:
            log.debug("record index not used file=%s reason=%s", file, reason)
            return None
        return index

    def save(self, name: str, index: RecordIndex) -> None:
        """Save an index; if that fails, the next job makes it again."""
        file = self._file(name)
        try:
            self.kept.make_folder()
            index.save(file)
        except OSError as error:
            where = shown(os.fsencode(file))
            log.debug("record index not saved file=%s reason=%s", where, error.strerror)

    def bound(self) -> None:
        """Remove unusable indexes, and the least recently used beyond the limits."""
        try:
            self.kept.bound(_is_usable)
        except OSError as error:
            log.debug("record indexes not bounded reason=%s", error.strerror)

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Let only one process at a time make the index of a path.

        After TURN_MAX_S, or if files cannot be locked, the process goes on without the
        lock: the index is then made more than once.
        """
        folder = self.kept.folder.with_name("record-turns")
        file = folder / f"{int(self._file(name).stem, 16) % LOCKS}"
        try:
            make_directories(folder)
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.debug("no turn file=%s reason=%s", file, error.strerror)
            yield
            return
        try:
            _lock(fd, time.monotonic() + TURN_MAX_S)
            yield
        finally:
            os.close(fd)

    def _file(self, name: str) -> Path:
        return self.kept.folder / (xxh3_64_hexdigest(os.fsencode(name)) + _SUFFIX)


def _lock(fd: int, deadline: float) -> None:
    """Lock a file; give up on an error or at the deadline."""
    with suppress(OSError):
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOOK_S)
            else:
                return


def is_unchanged(index: RecordIndex) -> bool:
    """Return whether the objects of an index are unchanged since it was made.

    Raises:
        RecordsError: one of them cannot be examined.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        now = pool.map(RecordObject.of, [one.path for one in index.files])
        return all(one == other for one, other in zip(index.files, now, strict=True))


def _is_usable(file: Path) -> bool:
    try:
        RecordIndex.load(file)
    except (OSError, RecordsError):
        return False
    return True
