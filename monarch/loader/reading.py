"""Reads of requests by threads, with retries and hedging.

Tokens limit the reads of a process at the same time. Files are read directly into the
buffer. Other sources return their bytes, so that the later one of two reads of the same
request is harmless.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from monarch.loader.figures import STORE_FIGURES
from monarch.records.errors import RecordsError
from monarch.records.index import Range
from monarch.records.sources import FileSource, Source

ATTEMPTS: Final = 4
_PAUSE_S: Final = 0.05
_HEDGE_FACTOR: Final = 3.0
_HEDGE_MIN_S: Final = 0.02
_SEEN: Final = 200
_SEEN_MIN: Final = 20


class End(Protocol):
    """A completed request.

    Attributes:
        owner: the whole that it is a part of.
        number: number of the part.
        error: why it could not be read; None: it was read.
        found: the bytes, if no destination was given.
    """

    owner: Any
    number: int
    error: RecordsError | None
    found: bytearray | None


class Reads(Protocol):
    """Reads requests in the order of submission.

    Attributes:
        counts: counters of the reads.
        is_full: more requests would only wait.
    """

    @property
    def counts(self) -> ReadCounts:
        """Counters of the reads."""

    @property
    def is_full(self) -> bool:
        """Whether more requests would only wait."""

    def start(
        self, owner: Any, ranges: Sequence[Range], places: Sequence[memoryview | None]
    ) -> None:
        """Queue the requests of one owner.

        Args:
            places: destination of the bytes of each; None: its `found`.
        """

    def count(self, size: int) -> None:
        """Count a request that was read in another way."""

    def hedge(self) -> None:
        """Hedge late requests; called periodically."""

    def figures(self) -> dict[str, Any]:
        """Return the figures of a store, by names of `loader.figures`."""


@dataclass(slots=True, eq=False)
class Read:
    """One request, which one or more threads read.

    Attributes:
        into: destination of its bytes.
        owner, number, error, found: see End.
        began_s: time at which its last attempt began; 0: none yet.
    """

    range: Range
    into: memoryview
    owner: Any
    number: int
    error: RecordsError | None = None
    found: bytearray | None = None
    began_s: float = 0.0
    attempts: int = 0
    hedges: int = 0
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class ReadCounts:
    """Counters of the threads.

    Attributes:
        sizes: number of requests by the largest power of two that their size reaches.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    hedges: int = 0
    at_once: int = 0
    most_at_once: int = 0
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, size: int) -> None:
        """Count a completed request."""
        self.requests += 1
        self.bytes += size
        power = max(0, size.bit_length() - 1)
        self.sizes[power] = self.sizes.get(power, 0) + 1


class Readers:
    """Threads that read requests in the order of submission.

    Args:
        take: waits for a token, and returns a function that releases it.
        ended: called with completed requests, by any thread.
    """

    is_full = False

    def __init__(
        self,
        source: Source,
        threads: int,
        take: Callable[[], Callable[[], None]],
        ended: Callable[[Sequence[End]], None],
    ) -> None:
        self._counts = ReadCounts()
        self._ended = ended
        self._source = source
        self._take = take
        self._queue: queue.SimpleQueue[Read | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._reading: dict[int, Read] = {}
        self._took_s: deque[float] = deque(maxlen=_SEEN)
        self._replicas = int(getattr(source, "replicas", 1))
        self._threads = [
            threading.Thread(target=self._work, name="read", daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        return f"<Readers of {self._source!r}, {len(self._threads)} threads>"

    @property
    def counts(self) -> ReadCounts:
        """Return the counters of the reads."""
        return self._counts

    def start(
        self, owner: Any, ranges: Sequence[Range], places: Sequence[memoryview | None]
    ) -> None:
        """Queue the requests of one owner, each with a place."""
        for number, (one, place) in enumerate(zip(ranges, places, strict=True)):
            assert place is not None
            self._queue.put(Read(one, place, owner, number))

    def count(self, size: int) -> None:
        """Count a request that a library has read."""
        with self._lock:
            self._counts.add(size)

    def figures(self) -> dict[str, Any]:
        """Return the figures of a store, which are all None."""
        return dict.fromkeys(STORE_FIGURES)

    def hedge(self) -> None:
        """Also read late requests from another replica; called periodically."""
        if self._replicas < 2:
            return
        with self._lock:
            limit_s = self._hedge_after_s()
            if limit_s is None:
                return
            now = time.monotonic()
            late = [
                read
                for read in self._reading.values()
                if read.hedges + 1 < self._replicas and now - read.began_s > limit_s
            ]
            for read in late:
                read.hedges += 1
                self._counts.hedges += 1
        for read in late:
            # Not by the queue, in which other requests wait: this one is late.
            threading.Thread(
                target=self._attempt, args=(read, read.hedges), daemon=True
            ).start()

    def _hedge_after_s(self) -> float | None:
        if len(self._took_s) < _SEEN_MIN:
            return None
        median = sorted(self._took_s)[len(self._took_s) // 2]
        return max(_HEDGE_MIN_S, _HEDGE_FACTOR * median)

    def _work(self) -> None:
        while (read := self._queue.get()) is not None:
            give_back = self._take()
            with self._lock:
                self._counts.at_once += 1
                most = max(self._counts.most_at_once, self._counts.at_once)
                self._counts.most_at_once = most
                self._reading[id(read)] = read
            try:
                self._attempt(read, 0)
            finally:
                with self._lock:
                    self._counts.at_once -= 1
                    self._reading.pop(id(read), None)
                give_back()

    def _attempt(self, read: Read, replica: int) -> None:
        """Read a request until it succeeds, or has failed too often."""
        while not read.ended:
            read.attempts += 1
            read.began_s = time.monotonic()
            try:
                self._read(read, replica)
            except RecordsError as error:
                self._end(read, error)
            except (OSError, EOFError) as error:
                if read.attempts >= ATTEMPTS:
                    text = str(error) or type(error).__name__
                    self._end(read, RecordsError(f"{text} ({ATTEMPTS} attempts)"))
                    return
                with self._lock:
                    self._counts.retries += 1
                time.sleep(_PAUSE_S * read.attempts)
                replica = (replica + 1) % self._replicas

    def _read(self, read: Read, replica: int) -> None:
        one = read.range
        if isinstance(self._source, FileSource):
            self._source.read_into(one.object, one.offset, read.into)
            self._end(read, None)
            return
        if self._replicas > 1:
            (found,) = self._source.read([one], replica)  # type: ignore[call-arg]
        else:
            (found,) = self._source.read([one])
        with read.lock:
            if read.ended:
                return
            read.into[:] = found
        self._end(read, None)

    def _end(self, read: Read, error: RecordsError | None) -> None:
        with read.lock:
            if read.ended:
                return
            read.ended = True
        with self._lock:
            self._took_s.append(time.monotonic() - read.began_s)
            if error is None:
                self._counts.add(read.range.length)
        read.into.release()
        read.error = error
        self._ended([read])
