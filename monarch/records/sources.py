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
class InMemory:
    """The bytes of a file in memory.

    Attributes:
        fd: descriptor of a file without a name.
        left: bytes that are still to be read.
        is_checked: the file itself was found unchanged.
    """

    fd: int
    bytes: int
    left: int
    is_checked: bool = False


class FileSource:
    """Reads Records of files.

    A file that has changed since it was indexed is rejected when it is opened. Files
    whose bytes are in memory are read there, until as much of them as all Records have
    was read: this is enough for one epoch.
    """

    def __init__(self, index: RecordIndex) -> None:
        self.index = index
        self._open: OrderedDict[int, int] = OrderedDict()
        self._in_memory: dict[int, InMemory] = {}
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
        fd = self._descriptor(number, len(buffer))
        try:
            done = 0
            while done < len(buffer):
                count = os.preadv(fd, [buffer[done:]], offset + done)
                if not count:
                    raise RecordsError(f"{path} ends before its records do")
                done += count
        except OSError as error:
            raise RecordsError(f"{path}: {error.strerror}") from error
        finally:
            os.close(fd)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of the files that are in memory."""
        return sum(one.bytes for one in list(self._in_memory.values()))

    def put(self, path: str, fd: int) -> None:
        """Read a file from memory; the descriptor is then the source's."""
        numbers = [n for n, one in enumerate(self.index.files) if one.path == path]
        with self._lock:
            if not numbers or numbers[0] in self._in_memory:
                os.close(fd)
                return
            units = self.index.units
            left = int(units["length"][units["object"] == numbers[0]].sum())
            memory = InMemory(fd, os.fstat(fd).st_size, left)
            self._in_memory[numbers[0]] = memory

    def selected(self, index: RecordIndex) -> FileSource:
        """Return a source of the same files with another index."""
        return FileSource(index)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for fd in self._open.values():
                os.close(fd)
            self._open.clear()
            for number in list(self._in_memory):
                self._free(number)

    def _read(self, one: Range) -> memoryview:
        buffer = memoryview(bytearray(one.length))
        self.read_into(one.object, one.offset, buffer)
        return buffer

    def _descriptor(self, number: int, size: int) -> int:
        """Return a file descriptor for a read of some bytes; the caller closes it."""
        with self._lock:
            memory = self._in_memory.get(number)
            if memory is not None:
                if not memory.is_checked:
                    os.close(self._opened(self.index.files[number]))
                    memory.is_checked = True
                found = os.dup(memory.fd)
                memory.left -= size
                if memory.left <= 0:
                    self._free(number)
                return found
            fd = self._open.pop(number, None)
            if fd is None:
                fd = self._opened(self.index.files[number])
            self._open[number] = fd
            if len(self._open) > FILES_MAX:
                os.close(self._open.popitem(last=False)[1])
            return os.dup(fd)

    def _free(self, number: int) -> None:
        os.close(self._in_memory.pop(number).fd)

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
