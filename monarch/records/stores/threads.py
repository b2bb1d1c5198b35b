"""Threads that fetch from a store by the blocking calls of a library."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Sequence
from typing import Final

from monarch.records.errors import RecordsError
from monarch.records.stores.exchange import Fault
from monarch.records.stores.fetching import ATTEMPTS_MAX, PAUSE_MAX_S
from monarch.records.stores.library import LibraryWay, told_by
from monarch.records.stores.pool import PAUSE_S
from monarch.records.stores.ways import Ended, Fetch, FetchCounts
from monarch.records.stores.window import Delays, Window

THREADS_MAX: Final = 64


class ThreadFetcher:
    """Fetches Records like Fetcher, with a thread for each request in flight.

    Args:
        window: limit of the requests in flight.
        ended: called with completed requests, by any of the threads.
    """

    hedges = 0
    servers: Final[dict[str, int]] = {}

    def __init__(self, way: LibraryWay, window: Window, ended: Ended) -> None:
        self.counts = FetchCounts()
        self.delays = Delays()
        self.at_once = min(window.limit, THREADS_MAX)
        self._way = way
        self._ended = ended
        self._chance = random.Random()
        self._lock = threading.Lock()
        self._flying = 0
        self._ends = False
        self._given: queue.SimpleQueue[Fetch | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name="fetch", daemon=True)
            for _ in range(self.at_once)
        ]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        return f"<ThreadFetcher of {self._way.name}, {self._flying} in flight>"

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a thread."""
        return self._given.qsize()

    def start(self, fetches: Sequence[Fetch]) -> None:
        """Queue Records to fetch, in this order, behind earlier ones."""
        for fetch in fetches:
            self._given.put(fetch)

    def close(self) -> None:
        """End the threads; waiting requests are dropped."""
        self._ends = True
        for _ in self._threads:
            self._given.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (fetch := self._given.get()) is not None and not self._ends:
            with self._lock:
                self._flying += 1
                most = max(self.counts.most_in_flight, self._flying)
                self.counts.most_in_flight = most
            try:
                self._fetch(fetch)
            except RecordsError as error:
                fetch.error = error
            with self._lock:
                self._flying -= 1
            self._ended([fetch])

    def _fetch(self, fetch: Fetch) -> None:
        """Read the requested range, with retries after temporary failures.

        Raises:
            RecordsError: it cannot be read.
        """
        while True:
            fetch.attempts += 1
            began_s = time.monotonic()
            try:
                found = self._way.read(fetch.wanted)
            except RecordsError:
                raise
            except FileNotFoundError as error:
                raise self._error(fetch, Fault.MISSING.value, Fault.MISSING) from error
            except PermissionError as error:
                raise self._error(fetch, told_by(str(error)), Fault.DENIED) from error
            except Exception as error:  # libraries raise any exception
                if fetch.attempts >= ATTEMPTS_MAX:
                    told = f"{told_by(str(error))} ({ATTEMPTS_MAX} attempts)"
                    raise self._error(fetch, told, Fault.FAILED) from error
                self._pause(fetch.attempts)
                continue
            self._place(fetch, found, time.monotonic() - began_s)
            return

    def _pause(self, attempts: int) -> None:
        with self._lock:
            self.counts.retries += 1
        most_s = min(PAUSE_MAX_S, PAUSE_S * 2**attempts)
        time.sleep(self._chance.uniform(0, most_s))

    def _place(self, fetch: Fetch, found: bytes, took_s: float) -> None:
        wanted = fetch.wanted.length
        if 0 <= wanted != len(found):
            text = f"it has {len(found)} bytes, {wanted} were expected"
            raise self._error(fetch, text, Fault.CHANGED)
        if fetch.place is None:
            fetch.found = bytearray(found)
        else:
            fetch.place[:] = found
        with self._lock:
            self.counts.requests += 1
            self.counts.bytes += len(found)
            self.delays.note([took_s])

    def _error(self, fetch: Fetch, text: str, fault: Fault) -> RecordsError:
        key = fetch.wanted.key.decode(errors="backslashreplace")
        told = f"{self._way.name}: {key}: {' '.join(text.split())}"
        advice = self._way.advice(fault)
        return RecordsError(f"{told}; {advice}" if advice else told)
