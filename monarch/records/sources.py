"""Sources of Records: they read ranges of bytes of the objects of an index."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from monarch.records.errors import RecordsError
from monarch.records.index import Range, RecordIndex, RecordObject

FILES_MAX: Final = 64
"""Files of one source that are open at the same time."""
_READ_ONCE: Final = 0.95
"""Share of the bytes of a file that an epoch reads at least, without all headers."""


class Source(Protocol):
    """A store of Records, such as files or a service."""

    @property
    def index(self) -> RecordIndex:
        """The index of the Records."""

    def read(self, ranges: Sequence[Range]) -> Sequence[memoryview]:
        """Return the bytes of some ranges; thread-safe.

        Raises:
            RecordsError: they cannot be read.
        """

    def selected(self, index: RecordIndex) -> Source:
        """Return a source with another index of the same objects."""

    def close(self) -> None:
        """Close all files and connections."""


@dataclass(slots=True, eq=False)
class OpenFile:
    """A file of a source.

    Reads use its descriptor itself: Monarch knows a duplicate by its inode number,
    which some file systems change.

    Attributes:
        readers: number of reads in progress.
        is_left: it is closed after the last of these.
        left: if its bytes are in memory, how many of them are still to be read.
    """

    fd: int
    readers: int = 0
    is_left: bool = False
    left: int = 0


class FileSource:
    """Reads Records of files.

    A file that has changed since it was indexed is rejected when it is opened. Files
    whose bytes are in memory are read there, until nearly all of each was read: this is
    enough for one epoch.
    """

    def __init__(self, index: RecordIndex) -> None:
        self.index = index
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._in_memory: dict[int, OpenFile] = {}
        self._checked: set[int] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<FileSource {self.index!r}>"

    def __reduce__(self) -> tuple[type[FileSource], tuple[RecordIndex]]:
        """Return how another process makes this source; it opens the files itself."""
        return FileSource, (self.index,)

    def read(self, ranges: Sequence[Range]) -> Sequence[memoryview]:
        """Return the bytes of some ranges.

        Raises:
            RecordsError: a file cannot be read, or has changed.
        """
        return [self._read(one) for one in ranges]

    def read_into(self, number: int, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with bytes of a file.

        Raises:
            RecordsError: the file cannot be read, or has changed.
        """
        path = self.index.objects[number].path
        file = self._taken(number, len(buffer))
        try:
            done = 0
            while done < len(buffer):
                count = os.preadv(file.fd, [buffer[done:]], offset + done)
                if not count:
                    raise RecordsError(f"{path} ends before its records do")
                done += count
        except OSError as error:
            raise RecordsError(f"{path}: {error.strerror}") from error
        finally:
            with self._lock:
                file.readers -= 1
                self._close(file)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of the files that are in memory."""
        files = list(self._in_memory)
        return sum(self.index.files[number].bytes for number in files)

    def put(self, path: str, fd: int) -> None:
        """Read a file from memory; the descriptor is then the source's.

        It waits for no read, which may hang.
        """
        numbers = [n for n, one in enumerate(self.index.files) if one.path == path]
        if not numbers or numbers[0] in self._in_memory:
            os.close(fd)
            return
        number = numbers[0]
        left = int(self.index.files[number].bytes * _READ_ONCE)
        self._in_memory[number] = OpenFile(fd, left=left)

    def selected(self, index: RecordIndex) -> FileSource:
        """Return a source of the same files with another index."""
        return FileSource(index)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for file in (*self._open.values(), *self._in_memory.values()):
                file.is_left = True
                self._close(file)
            self._open.clear()
            self._in_memory.clear()

    def _read(self, one: Range) -> memoryview:
        buffer = memoryview(bytearray(one.length))
        self.read_into(one.object, one.offset, buffer)
        return buffer

    def _taken(self, number: int, size: int) -> OpenFile:
        """Return a file for a read of some bytes, which gives it back."""
        with self._lock:
            file = self._in_memory.get(number)
            if file is not None and number not in self._checked:
                os.close(self._opened(self.index.files[number]))
                self._checked.add(number)
            if file is not None:
                file.left -= size
                if file.left <= 0:
                    file.is_left = True
                    del self._in_memory[number]
            else:
                file = self._opened_once(number)
            file.readers += 1
            return file

    def _opened_once(self, number: int) -> OpenFile:
        file = self._open.pop(number, None)
        if file is None:
            file = OpenFile(self._opened(self.index.files[number]))
        self._open[number] = file
        if len(self._open) > FILES_MAX:
            _, oldest = self._open.popitem(last=False)
            oldest.is_left = True
            self._close(oldest)
        return file

    def _close(self, file: OpenFile) -> None:
        """Close a file that has left, if no read uses it."""
        if file.is_left and not file.readers and file.fd >= 0:
            os.close(file.fd)
            file.fd = -1

    def _opened(self, one: RecordObject) -> int:
        try:
            fd = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RecordsError(f"{one.path}: {error.strerror}") from error
        found = os.fstat(fd)
        if (found.st_size, found.st_mtime_ns) != (one.bytes, one.mtime_ns):
            os.close(fd)
            raise RecordsError(f"{one.path} was changed since its index was made")
        return fd
