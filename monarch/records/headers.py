"""Reading the headers of a file, but not what lies between them."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Final, Self

from monarch.records.index import RecordObject, RecordsError

NEAR_BYTES: Final = 4096
"""Headers that are nearer than that are read together: it costs a request less."""
WINDOW_BYTES: Final = 1 << 18
MANY: Final = 64
SLOW_S: Final = 100e-6
"""Of a read that no page cache has answered."""


class HeaderReader:
    """A file that is read at places, which mostly rise.

    Raises:
        RecordsError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.object = RecordObject.of(path)
        self.path = self.object.path
        self.requests = 0
        self.read_bytes = 0
        self._wait_s = 0.0
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RecordsError(f"{path}: {error.strerror}") from error
        # Read-ahead of the kernel would read the payloads.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        self._start, self._window = 0, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.requests >= MANY and self._wait_s > SLOW_S * self.requests:
            # The pages of the headers would split each later read of a Group in as
            # many reads as it has Records. Fast reads tell of a file that the cache
            # had before: it stays there.
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
        near = self._window and end - WINDOW_BYTES <= offset < end + NEAR_BYTES
        self._start = offset
        self._window = self.fresh(offset, WINDOW_BYTES if near else length)
        return self._window[:length]

    def fresh(self, offset: int, length: int) -> bytes:
        """Return bytes that are read now; several threads may ask at once.

        Raises:
            RecordsError: they cannot be read.
        """
        parts = []
        while length > 0:
            began = time.monotonic()
            try:
                part = os.pread(self._fd, length, offset)
            except OSError as error:
                raise RecordsError(f"{self.path}: {error.strerror}") from error
            self._wait_s += time.monotonic() - began
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
