"""Finding the headers of shards, by the cheaper of two ways for their origin.

*Whole*: the shard is read in large requests. This is the cheapest way if its bytes then
stay in memory, where its Records are read next: in the tiers of `monarch run`, or in
the page cache of a single node; or in memory that a loader gives, as far as it goes.
*By headers*: only these are read, from many places of the shard at once, see `walking`.
Both are measured on the first shard.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

from monarch.cluster import RUN_VARIABLE
from monarch.records.headers import NEAR_BYTES, Cursor, HeaderReader
from monarch.records.shard_memory import NO_SHARDS, Shard
from monarch.records.walking import (
    Damaged,
    Entries,
    Make,
    Parts,
    walk_in_parts,
    walk_on,
)
from monarch.records.workers import Workers
from monarch.tiers.memory import read_memory, tightest

THREADS: Final = 32
"""Headers of all shards that are read at the same time."""
WINDOW_BYTES: Final = 4 << 20
AHEAD: Final = 2
"""Windows of a whole shard that are read at the same time."""
WHOLE_AT_ONCE: Final = 4
WHOLE_S: Final = 0.2
"""A waiting program's longest wait for a shard that is read whole."""
SMALL_BYTES: Final = 1 << 20
"""Shards up to this size are read whole without a measurement."""
_PROBED: Final = 5
_TIME_MIN_S: Final = 1e-6
_PAGE: Final = 4096
_SEARCHED_MIN, _SEARCHED_MAX = 16 << 10, 1 << 20
_ENTRIES_MIN: Final = 64
"""Minimum entries of a part of a shard: finding the first one has a cost."""
_FREE_SHARE: Final = 0.5
"""Share of the free memory that the page cache may use for shards."""
_NODES: Final = ("SLURM_STEP_NUM_NODES", "GROUP_WORLD_SIZE")
_LOCAL: Final = (
    ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
)


@dataclass(frozen=True, slots=True)
class Probe:
    """Measurements of a shard.

    Attributes:
        distance: mean distance of its headers, in bytes.
        latency_s: latency of the read of a header.
        bytes_per_s: rate of large reads.
        header_bytes: bytes that the read of a header transfers.
        stays: bytes stay in memory until they are read again.
    """

    distance: float
    latency_s: float
    bytes_per_s: float
    header_bytes: int
    stays: bool

    @property
    def reads_whole(self) -> bool:
        """Whether reading shards whole is the cheaper way to their headers."""
        if self.stays:
            return True
        header_s = max(self.latency_s / THREADS, self.header_bytes / self.bytes_per_s)
        return self.distance / self.bytes_per_s < header_s


def is_alone(environ: Mapping[str, str]) -> bool:
    """Return whether this node is the only one of the job, by its environment."""
    if any(environ.get(name, "1") != "1" for name in _NODES):
        return False
    found = [(environ.get(size), environ.get(local)) for size, local in _LOCAL]
    return all(size == local or None in (size, local) for size, local in found)


class Shards:
    """Opens shards whose headers are read.

    Args:
        count: number of shards.
        are_read: their Records are read next, by this node alone.
        are_awaited: a program waits for their index: they are read whole to stay in
            memory only if that takes at most WHOLE_S.
        stopped: ends all reads when it is set.

    Attributes:
        memory: keeps shards that would not stay in memory otherwise.
    """

    def __init__(
        self,
        count: int,
        *,
        are_read: bool,
        are_awaited: bool = False,
        stopped: threading.Event | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._count = count
        self.stopped = stopped or threading.Event()
        self._are_awaited = are_awaited
        self._is_staged = RUN_VARIABLE in environ
        self._are_read = are_read
        self.memory = NO_SHARDS
        self._probe: Probe | None = None
        self._lock = threading.Lock()
        self._whole = threading.Semaphore(WHOLE_AT_ONCE)
        self._pool = Workers(THREADS, "headers")

    def __repr__(self) -> str:
        return f"<Shards, {self._count}: {self._probe}>"

    def opens(self, path: str, *, drops_pages: bool = False) -> ShardReader:
        """Return a reader of a shard, see HeaderReader."""
        return ShardReader(self, path, drops_pages=drops_pages)

    def close(self) -> None:
        """End the threads; callers wait for the work that they submitted."""
        self._pool.shutdown(wait=False)

    def entries(self, file: ShardReader, make: Make) -> Entries:
        """Return the entries of a shard.

        Raises:
            Damaged: the shard has something other than an entry.
            RecordsError: it cannot be read.
        """
        if file.size <= SMALL_BYTES:
            file.keep_pages()
            found = self._walked_into(file, make)
            return self._walked_whole(file, make) if found is None else found
        with self._lock:
            probe = self._probe = self._probe or self._measured(file, make)
        if not probe.stays and (found := self._walked_into(file, make)) is not None:
            return found
        if probe.reads_whole:
            file.keep_pages()
            return self._walked_whole(file, make)
        return self._walked_by_headers(probe, file, make)

    def _walked_by_headers(
        self, probe: Probe, file: ShardReader, make: Make
    ) -> Entries:
        distance = probe.distance
        searched = min(max(int(2 * distance), _SEARCHED_MIN), _SEARCHED_MAX)
        most = int(file.size / (_ENTRIES_MIN * max(distance, _PAGE)))
        count = max(1, min(THREADS, most))
        parts = Parts(file.cursor, file.size, count, searched, self._pool)
        return walk_in_parts(make, parts)

    def _walked_whole(self, file: ShardReader, make: Make) -> Entries:
        found = Entries()
        with self._whole, closing(Windows(file, self._pool)) as windows:
            walk_on(make(), windows, found, file.size)
            if file.is_copied:
                windows.read_to(found.end)
        return found

    def _walked_into(self, file: ShardReader, make: Make) -> Entries | None:
        """Read a shard whole, into memory; None: it has no room there."""
        shard = self.memory.reserve(file.path, file.size)
        if shard is None:
            return None
        file.copy_to(shard)
        try:
            return self._walked_whole(file, make)
        except BaseException:
            self.memory.free(file.path)
            raise

    def _measured(self, file: ShardReader, make: Make) -> Probe:
        """Measure a shard: the distance of its headers, and two kinds of reads."""
        cursor, found = file.cursor(), Entries()
        cursor.at(0, file.window_bytes)
        with suppress(Damaged):  # the read of the whole shard reports it
            walk_on(make(), cursor, found, file.size, file.window_bytes)
        keeps = file.keeps(file.window_bytes)
        stays = self._are_read and (self._is_staged or (keeps and self._has_room(file)))
        step = (file.size - file.window_bytes) // (_PROBED + 1)
        places = [file.window_bytes + step * n for n in range(1, _PROBED + 1)]
        latency_s = statistics.median(_seconds(file, at, 1) for at in places)
        size = min(WINDOW_BYTES, file.size // 4)
        took_s = _seconds(file, file.size // 2, size)
        rate = size / max(took_s - latency_s, _TIME_MIN_S)
        if self._are_awaited and file.size / rate > WHOLE_S:
            stays = False
        distance = found.end / max(1, len(found))
        return Probe(distance, latency_s, rate, _PAGE if keeps else 1, stays)

    def _has_room(self, file: ShardReader) -> bool:
        """Return whether all shards fit the page cache."""
        free = tightest(read_memory()).free_bytes
        return self._count * file.size <= _FREE_SHARE * free


class ShardReader(HeaderReader):
    """A shard whose entries are found by the cheaper way."""

    def __init__(self, shards: Shards, path: str, *, drops_pages: bool) -> None:
        super().__init__(path, drops_pages=drops_pages)
        self._shards = shards
        self._copy: Shard | None = None

    def fresh(self, offset: int, length: int) -> bytes:
        """Read bytes from the file, and return them; thread-safe.

        Raises:
            RecordsError: they cannot be read, or the loader is closed.
        """
        if self._shards.stopped.is_set():
            raise self.refuse("is not indexed to its end: the loader is closed")
        found = super().fresh(offset, length)
        if self._copy is not None:
            self._write(found, offset)
        return found

    @property
    def is_copied(self) -> bool:
        """Whether the bytes that are read are copied."""
        return self._copy is not None

    def copy_to(self, shard: Shard) -> None:
        """Copy all bytes that are read from now on to their places in memory."""
        self._copy = shard

    def _write(self, found: bytes, offset: int) -> None:
        assert self._copy is not None
        try:
            self._copy.write(found, offset)
        except OSError as error:
            raise self.refuse(f"no memory for its bytes: {error}") from error

    def cursor(self) -> Cursor:
        """Return a cursor for one thread."""
        return Cursor(self, 2 * NEAR_BYTES)

    def entries(self, make: Make) -> Entries:
        """Return the entries of the shard."""
        return self._shards.entries(self, make)


class Windows:
    """Reads a file from start to end by large requests, some of them ahead.

    Args:
        pool: executor of the reads.
    """

    def __init__(self, file: ShardReader, pool: Executor) -> None:
        self._file = file
        self._pool = pool
        self._start, self._window = 0, b""
        self._next = 0
        self._ahead: deque[Future[bytes]] = deque()

    def __repr__(self) -> str:
        return f"<Windows at {self._start} of {self._file!r}>"

    def at(self, offset: int, length: int) -> bytes:
        """Return bytes at an offset that never decreases; fewer at the end.

        Raises:
            RecordsError: they cannot be read.
        """
        end = min(offset + length, self._file.size)
        while self._start + len(self._window) < end:
            kept = self._window[max(0, offset - self._start) :]
            read = self._taken()
            if not read:
                break
            self._start += len(self._window) - len(kept)
            self._window = kept + read
        begin = offset - self._start
        return self._window[begin : begin + length]

    def read_to(self, end: int) -> None:
        """Read all bytes before an offset that have not been read.

        Raises:
            RecordsError: they cannot be read.
        """
        end = min(end, self._file.size)
        while self._start + len(self._window) < end and (read := self._taken()):
            self._start, self._window = self._start + len(self._window), read

    def close(self) -> None:
        """Wait for the reads in flight."""
        for read in self._ahead:
            read.cancel()
        wait(self._ahead)

    def _taken(self) -> bytes:
        """Return the next window, while later ones are read ahead."""
        while len(self._ahead) < AHEAD + 1 and self._next < self._file.size:
            read = self._pool.submit(self._file.fresh, self._next, WINDOW_BYTES)
            self._ahead.append(read)
            self._next += WINDOW_BYTES
        return self._ahead.popleft().result() if self._ahead else b""


def _seconds(file: HeaderReader, offset: int, length: int) -> float:
    began_s = time.monotonic()
    file.fresh(offset, length)
    return time.monotonic() - began_s
