"""The first portions, which a rank reads itself while its reader starts.

A reader takes longer to start than a batch to read, and until then nobody would read.
The rank that has started it reads what its first batch needs into buffers like those of
the reader, and gives them to it: no byte is read twice, no memory is counted twice.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from monarch.loader.buffers import new_memory, rounded
from monarch.loader.portions import Key, Portion, Portions
from monarch.records.index import RecordsError
from monarch.records.sources import FileSource


@dataclass(frozen=True, slots=True, eq=False)
class EarlyPortion:
    """A portion that is read.

    Attributes:
        fd: of its buffer, which the receiver closes.
        view: the whole buffer; it cannot be written.
    """

    key: Key
    fd: int
    view: memoryview
    rows: int
    requests: int


class EarlyReads:
    """Reads portions in a thread, one after the other, until it is told to stop.

    What cannot be read is left to the reader, which says why.
    """

    def __init__(self, portions: Portions, source: FileSource) -> None:
        self._portions = portions
        self._source = source
        self._done: deque[EarlyPortion] = deque()
        self._stop = threading.Event()
        self._event_fd = -1

    def __repr__(self) -> str:
        return f"<EarlyReads, {len(self._done)} done>"

    def begin(self, keys: Sequence[Key]) -> None:
        """Begin to read some portions; only the first call does."""
        if self._event_fd >= 0:
            return
        self._event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._event_fd)  # not before the thread ends
        wanted = [(key, self._portions.find(key)) for key in keys]
        threading.Thread(
            target=self._read_all, args=(wanted,), name="early", daemon=True
        ).start()

    @property
    def event_fds(self) -> list[int]:
        """What can be read when a portion is there."""
        return [self._event_fd] if self._event_fd >= 0 else []

    def take(self) -> list[EarlyPortion]:
        """Return what was read since the last call."""
        with suppress(BlockingIOError):
            for fd in self.event_fds:
                os.eventfd_read(fd)
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def stop(self) -> None:
        """Begin no further portion."""
        self._stop.set()

    def _read_all(self, wanted: Sequence[tuple[Key, Portion]]) -> None:
        for key, portion in wanted:
            if self._stop.is_set():
                return
            try:
                found = self._read(key, portion)
            except (OSError, RecordsError):
                return
            self._done.append(found)
            os.eventfd_write(self._event_fd, 1)

    def _read(self, key: Key, portion: Portion) -> EarlyPortion:
        layout, ranges = portion.layout(), portion.ranges()
        fd = new_memory(rounded(layout.bytes))
        try:
            mapped = mmap.mmap(fd, rounded(layout.bytes))
            with memoryview(mapped) as view:
                view[: layout.table.nbytes] = layout.table.tobytes()
                for number, one in enumerate(ranges):
                    at = int(layout.begins[number])
                    into = view[at : at + one.length]
                    self._source.read_into(one.object, one.offset, into)
        except BaseException:
            os.close(fd)
            raise
        whole = memoryview(mapped).toreadonly()
        return EarlyPortion(key, fd, whole, len(layout.table), len(ranges))
