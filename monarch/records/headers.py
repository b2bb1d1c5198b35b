"""Reading the headers of a file, but not what lies between them."""

from __future__ import annotations

import ctypes
import mmap
import os
from types import TracebackType
from typing import Final, Protocol, Self

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.index import RecordObject

NEAR_BYTES: Final = 4096
"""Headers that are nearer than that are read together: it costs a request less."""
WINDOW_BYTES: Final = 1 << 18
_SAMPLE: Final = 256


def has_cached_pages(fd: int, size: int) -> bool:
    """Return whether the page cache may have parts of a file, by a sample of its pages.

    The kernel says so of each page of a file that this user neither owns nor may
    write: mincore(2).
    """
    try:
        mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    except (OSError, ValueError):  # not there any more, or shorter than it was
        return True
    first = np.frombuffer(mapped, np.uint8).ctypes.data
    is_there, mincore = ctypes.c_ubyte(), ctypes.CDLL(None).mincore
    # Not the first page, of which the format was told.
    last = (size - 1) // mmap.PAGESIZE
    for number in np.linspace(1, last, _SAMPLE, dtype=int).tolist():
        page = ctypes.c_void_p(first + number * mmap.PAGESIZE)
        if mincore(page, ctypes.c_size_t(1), ctypes.byref(is_there)) or is_there.value:
            return True
    return False


class Opens(Protocol):
    """Opens what is indexed."""

    def __call__(self, path: str, *, drops_pages: bool = False) -> HeaderReader:
        """Return a reader, see there."""


class HeaderReader:
    """A file that is read at places, which mostly rise.

    Args:
        drops_pages: of headers all over the file, which would split each later read of
            many Records: they leave the page cache at the end, unless it had parts of
            the file before.

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
        # Read-ahead of the kernel would read the payloads.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        self._start, self._window = 0, b""
        self._drops_pages = drops_pages and not has_cached_pages(self._fd, self.size)

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

    def at(self, offset: int, length: int) -> bytes:
        """Return bytes of the file; fewer at its end.

        Raises:
            RecordsError: they cannot be read.
        """
        begin = offset - self._start
        if begin >= 0 and begin + length <= len(self._window):
            return self._window[begin : begin + length]
        end = self._start + len(self._window)
        size = self.window_bytes
        near = self._window and end - size <= offset < end + NEAR_BYTES
        self._start = offset
        self._window = self.fresh(offset, size if near else length)
        return self._window[:length]

    def fresh(self, offset: int, length: int) -> bytes:
        """Return bytes that are read now; several threads may ask at once.

        Raises:
            RecordsError: they cannot be read.
        """
        parts = []
        while length > 0:
            try:
                part = os.pread(self._fd, length, offset)
            except OSError as error:
                raise RecordsError(f"{self.path}: {error.strerror}") from error
            self.requests += 1
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        found = b"".join(parts)
        self.read_bytes += len(found)
        return found

    def refuse(self, reason: str) -> RecordsError:
        """Return the error about this file."""
        return RecordsError(f"{self.path}: {reason}")

    def check_unchanged(self) -> None:
        """Raise an error if the file was changed since it was opened.

        Raises:
            RecordsError: it was.
        """
        if RecordObject.of(self.path) != self.object:
            raise self.refuse("was changed while its index was made")
