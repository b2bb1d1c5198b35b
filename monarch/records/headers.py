"""Reading the headers of a file without the payloads between them."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from types import TracebackType
from typing import Final, Protocol, Self

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.index import RecordObject
from monarch.records.walking import Entries, Make, walk_on

NEAR_BYTES: Final = 4096
"""Headers with a smaller distance are read together, which saves a request."""
WINDOW_BYTES: Final = 1 << 18
_SAMPLE: Final = 256
_KEPT: Final = 0.9


def cached_share(fd: int, size: int) -> float | None:
    """Return the share of a sample of pages of a file that is in the page cache.

    For a file that this user neither owns nor may write, the kernel reports every page
    as cached: mincore(2). None: the file cannot be mapped.

    Args:
        size: bytes from the start of the file to sample; the first page, which was read
            to detect the format, does not count.
    """
    try:
        mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    except (OSError, ValueError):  # removed, or truncated
        return None
    first = np.frombuffer(mapped, np.uint8).ctypes.data
    is_there, mincore = ctypes.c_ubyte(), ctypes.CDLL(None).mincore
    last = (size - 1) // mmap.PAGESIZE
    there = 0
    for number in np.linspace(1, last, _SAMPLE, dtype=int).tolist():
        page = ctypes.c_void_p(first + number * mmap.PAGESIZE)
        failed = mincore(page, ctypes.c_size_t(1), ctypes.byref(is_there))
        there += bool(failed or is_there.value)
    return there / _SAMPLE


class Read(Protocol):
    """A file that is read at offsets, such as a HeaderReader."""

    window_bytes: int

    def fresh(self, offset: int, length: int) -> bytes:
        """Read bytes from the file, and return them."""


class Cursor:
    """Reads a file at mostly increasing offsets.

    Headers that are close together are read by one request. It is not thread-safe.

    Args:
        least: bytes that are read with a header close to the previous one; each
            further one doubles them. None: a whole window.
    """

    def __init__(self, file: Read, least: int | None = None) -> None:
        self._file = file
        self._least = file.window_bytes if least is None else least
        self._size = self._least
        self._start, self._window = 0, b""

    def __repr__(self) -> str:
        return f"<Cursor at {self._start} of {self._file!r}>"

    def at(self, offset: int, length: int) -> bytes:
        """Return bytes of the file; fewer at its end.

        Raises:
            RecordsError: they cannot be read.
        """
        begin = offset - self._start
        if begin >= 0 and begin + length <= len(self._window):
            return self._window[begin : begin + length]
        end = self._start + len(self._window)
        most = self._file.window_bytes
        near = self._window and end - most <= offset < end + NEAR_BYTES
        size = max(self._size, length) if near else length
        self._size = min(2 * self._size, most) if near else self._least
        self._start = offset
        self._window = self._file.fresh(offset, size)
        return self._window[:length]


class Opens(Protocol):
    """Opens files that are indexed."""

    def __call__(self, path: str, *, drops_pages: bool = False) -> HeaderReader:
        """Return a reader of a file, see HeaderReader."""


class HeaderReader:
    """A file read at mostly increasing offsets.

    Args:
        drops_pages: drop the file's pages from the page cache at the end, unless parts
            of it were cached before: cached headers all over the file would split each
            later read of many Records.

    Raises:
        RecordsError: the file cannot be opened.
    """

    window_bytes = WINDOW_BYTES

    def __init__(self, path: str, *, drops_pages: bool = False) -> None:
        self.object = RecordObject.of(path)
        self.path = self.object.path
        self.requests = 0
        self.read_bytes = 0
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RecordsError(f"{path}: {error.strerror}") from error
        # The kernel's read-ahead would read the payloads.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        self._cursor = Cursor(self)
        self._lock = threading.Lock()
        self._drops_pages = drops_pages and cached_share(self._fd, self.size) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drops_pages:
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(self._fd)

    def __repr__(self) -> str:
        return f"<HeaderReader {self.path}, {self.requests} requests>"

    @property
    def size(self) -> int:
        """Return the size of the file, in bytes."""
        return self.object.bytes

    def keep_pages(self) -> None:
        """Expect sequential reads of the whole file, and leave it in the page cache."""
        self._drops_pages = False
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def keeps(self, size: int) -> bool:
        """Return whether the first `size` bytes have stayed in the page cache.

        The file is reopened, because some file systems drop its pages on open.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            share = cached_share(fd, size)
        finally:
            os.close(fd)
        return share is not None and share >= _KEPT

    def at(self, offset: int, length: int) -> bytes:
        """Return bytes of the file; fewer at its end.

        Raises:
            RecordsError: they cannot be read.
        """
        return self._cursor.at(offset, length)

    def entries(self, make: Make) -> Entries:
        """Return the entries of the file, each of which locates the next one.

        Raises:
            Damaged: the file has something other than an entry.
            RecordsError: it cannot be read.
        """
        found = Entries()
        walk_on(make(), self._cursor, found, self.size)
        return found

    def fresh(self, offset: int, length: int) -> bytes:
        """Read bytes from the file, and return them; thread-safe.

        Raises:
            RecordsError: they cannot be read.
        """
        parts = []
        while length > 0:
            try:
                part = os.pread(self._fd, length, offset)
            except OSError as error:
                raise RecordsError(f"{self.path}: {error.strerror}") from error
            with self._lock:
                self.requests += 1
                self.read_bytes += len(part)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def refuse(self, reason: str) -> RecordsError:
        """Return an error that names this file."""
        return RecordsError(f"{self.path}: {reason}")

    def check_unchanged(self) -> None:
        """Raise an error if the file has changed since it was opened.

        Raises:
            RecordsError: it was.
        """
        if RecordObject.of(self.path) != self.object:
            raise self.refuse("was changed while its index was made")
