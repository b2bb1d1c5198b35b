"""Reads by a rank itself while its reader starts.

A reader takes longer to start than a batch takes to read. Meanwhile, the rank that
started it reads the portions that it needs into buffers like those of the reader, and
passes them to it: no memory is counted twice, and no Group is read twice unless the
rank moves on while it is being read.

In the middle of an epoch a batch has Records of many Groups. Then each rank first reads
only the Records of its first batch; they are read again with their Groups.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.loader.buffers import new_memory, rounded
from monarch.loader.portions import ROW, Key, Portion, Portions
from monarch.records.errors import RecordsError
from monarch.records.index import Range
from monarch.records.sources import FileSource

Array = npt.NDArray[Any]

WHOLE_MAX: Final = 4
"""Up to this many Groups are read whole."""
SHARE_MAX: Final = 0.25
"""Records are read alone up to this share of their Groups."""
_THREADS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class EarlyPortion:
    """A portion that was read, or some of its Records.

    Attributes:
        table: table of type ROW.
        view: read-only view of the whole buffer.
        done: whether each request is read.
        sizes: bytes of each read.
        fd: descriptor of the buffer, which the receiver closes; None: the buffer is not
            for the reader.
    """

    key: Key
    table: Array
    view: memoryview
    done: Array
    sizes: list[int]
    fd: int | None


Reads = deque[partial[EarlyPortion]]


class EarlyReads:
    """Reads in threads until it is stopped.

    Failed reads are left to the reader, which reports the reason.
    """

    def __init__(self, portions: Portions, source: FileSource) -> None:
        self._portions = portions
        self._source = source
        self._done: deque[EarlyPortion] = deque()
        self._stop = threading.Event()
        self._may_read = threading.Event()
        self._event_fd = -1
        self._reading: set[int] = set()

    def __repr__(self) -> str:
        return f"<EarlyReads, {len(self._done)} done>"

    def begin(self, rows: Mapping[Key, Array], whole: Sequence[Key]) -> None:
        """Begin to read some rows of portions; later calls only resume.

        Args:
            whole: the portions to read whole, in the order of need.
        """
        self._may_read.set()
        if self._event_fd >= 0:
            return
        self._event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._event_fd)  # not before the threads end
        found = {key: self._portions.find(key) for key in {*rows, *whole}}
        before = []
        if self._are_few(rows, found):
            some = deque(
                partial(self._read_some, key, found[key], of_key)
                for key, of_key in rows.items()
            )
            before = [self._started(some) for _ in range(min(_THREADS, len(some)))]
        self._started(
            deque(partial(self._read_whole, key, found[key]) for key in whole), before
        )

    @property
    def event_fds(self) -> list[int]:
        """Descriptors that become readable after a read."""
        return [self._event_fd] if self._event_fd >= 0 else []

    @property
    def is_reading(self) -> bool:
        """Whether a read is in progress."""
        return bool(self._reading)

    def take(self) -> list[EarlyPortion]:
        """Return the portions that were read since the last call."""
        with suppress(BlockingIOError):
            for fd in self.event_fds:
                os.eventfd_read(fd)
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def rest(self) -> None:
        """Pause new reads until the rank waits again: the reader may be ready then."""
        self._may_read.clear()

    def stop(self) -> None:
        """Begin no further reads."""
        self._stop.set()
        self._may_read.set()

    def _are_few(
        self, rows: Mapping[Key, Array], portions: Mapping[Key, Portion]
    ) -> bool:
        """Return whether few Records of many portions are needed."""
        if len(rows) <= WHOLE_MAX:
            return False
        lengths = self._source.index.units["length"]
        some = sum(int(lengths[portions[key].units[rows[key]]].sum()) for key in rows)
        whole = sum(int(lengths[one.units].sum()) for one in portions.values())
        return some <= SHARE_MAX * whole

    def _started(
        self, reads: Reads, before: Sequence[threading.Thread] = ()
    ) -> threading.Thread:
        thread = threading.Thread(
            target=self._work, args=(reads, before), name="early", daemon=True
        )
        thread.start()
        return thread

    def _work(self, reads: Reads, before: Sequence[threading.Thread]) -> None:
        for thread in before:
            thread.join()
        own = threading.get_ident()
        while self._may_read.wait():
            self._reading.add(own)  # before the check: `is_reading` may follow `stop`
            try:
                if self._stop.is_set():
                    return
                self._done.append(reads.popleft()())
            except (IndexError, OSError, RecordsError):
                return
            finally:
                self._reading.discard(own)
                os.eventfd_write(self._event_fd, 1)

    def _read_whole(self, key: Key, portion: Portion) -> EarlyPortion:
        requests = portion.requests()
        layout, ranges = portion.layout(requests), requests.ranges()
        fd = new_memory(rounded(layout.bytes))
        try:
            mapped = mmap.mmap(fd, rounded(layout.bytes))
            with memoryview(mapped) as view:
                view[: layout.table.nbytes] = layout.table.tobytes()
                self._read(ranges, layout.begins.tolist(), view)
        except BaseException:
            os.close(fd)
            raise
        whole = memoryview(mapped).toreadonly()
        table = np.frombuffer(whole, ROW, len(layout.table))
        sizes = [one.length for one in ranges]
        return EarlyPortion(key, table, whole, np.ones(len(ranges), bool), sizes, fd)

    def _read_some(self, key: Key, portion: Portion, rows: Array) -> EarlyPortion:
        """Read some Records; all others belong to a request that is not done."""
        units = self._source.index.units[portion.units[rows]]
        lengths = units["length"].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        table = np.zeros(len(portion.units), ROW)
        table["request"] = 1
        table["request"][rows], table["start"][rows] = 0, starts
        table["length"][rows] = lengths
        view = memoryview(bytearray(int(lengths.sum())))
        places = zip(units["object"], units["offset"], lengths, strict=True)
        ranges = [Range(int(one), int(at), int(size)) for one, at, size in places]
        self._read(ranges, starts.tolist(), view)
        done = np.array([True, False])
        return EarlyPortion(key, table, view.toreadonly(), done, lengths.tolist(), None)

    def _read(
        self, ranges: Sequence[Range], begins: Sequence[int], into: memoryview
    ) -> None:
        for one, at in zip(ranges, begins, strict=True):
            part = into[at : at + one.length]
            self._source.read_into(one.object, one.offset, part)
