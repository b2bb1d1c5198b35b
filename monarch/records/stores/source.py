"""Records of a store as a source: blocking fetches, and access to the store."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.index import UNIT, Range, RecordIndex
from monarch.records.keys import UNKNOWN_LENGTH, KeyIndex
from monarch.records.stores.address import StoreAddress, is_of_library
from monarch.records.stores.exchange import Wanted
from monarch.records.stores.fetching import Fetcher
from monarch.records.stores.library import LibraryWay
from monarch.records.stores.threads import ThreadFetcher
from monarch.records.stores.ways import Ended, Fetch, Fetching, Way
from monarch.records.stores.window import Window

_AT_ONCE: Final = 64
_BYTES_MAX: Final = 256 << 20


class Waiter:
    """Fetches from a store and waits for the payloads; thread-safe."""

    def __init__(self, way: Way | LibraryWay) -> None:
        window = Window(_AT_ONCE, _AT_ONCE, _BYTES_MAX)
        self._fetcher = fetcher_of(way, window, self._deliver)

    def __repr__(self) -> str:
        return f"<Waiter for {self._fetcher!r}>"

    def fetch(self, wanted: Sequence[Wanted]) -> list[bytearray]:
        """Return the payloads of some requests, in their order.

        Raises:
            RecordsError: one of them failed for good.
        """
        over: queue.SimpleQueue[Fetch] = queue.SimpleQueue()
        self._fetcher.start(
            [Fetch(one, None, over, number) for number, one in enumerate(wanted)]
        )
        found = [bytearray()] * len(wanted)
        errors: list[RecordsError] = []
        for _ in wanted:
            one = over.get()
            if one.error is not None:
                errors.append(one.error)
            found[one.number] = one.found or bytearray()
        if errors:
            raise errors[0]
        return found

    def close(self) -> None:
        """End all connections."""
        self._fetcher.close()

    def _deliver(self, ended: list[Fetch]) -> None:
        for one in ended:
            one.owner.put(one)


class StoreSource:
    """Reads Records of a store.

    Secrets are not part of it: readers find them in the environment.
    """

    def __init__(self, index: RecordIndex) -> None:
        assert index.keys is not None
        self.index = index
        self.keys: KeyIndex = index.keys
        self._waiter: Waiter | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<StoreSource {self.index!r}>"

    def __reduce__(self) -> tuple[type[StoreSource], tuple[RecordIndex]]:
        """Return how another process makes this source; it connects itself."""
        return StoreSource, (self.index,)

    def way(self) -> Way | LibraryWay:
        """Return access to the store, with the current secrets.

        Raises:
            RecordsError: the secrets cannot be read.
        """
        return way_of(self.keys.store, self.keys.details)

    def read(self, ranges: Sequence[Range]) -> Sequence[memoryview]:
        """Return the bytes of some ranges.

        Raises:
            RecordsError: one cannot be read, or has changed.
        """
        with self._lock:
            if self._waiter is None:
                self._waiter = Waiter(self.way())
        found = self._waiter.fetch(self.wanted(ranges))
        return [memoryview(one) for one in found]

    def wanted(self, ranges: Sequence[Range]) -> list[Wanted]:
        """Return the requests for some ranges."""
        rows = self.keys.rows([one.object for one in ranges])
        return [
            Wanted(key, offset, length, offset == 0 and length == size, identity)
            if length != UNKNOWN_LENGTH
            else Wanted(key, offset, -1, offset == 0, identity)
            for (_, offset, length), (key, size, identity) in zip(
                ranges, rows, strict=True
            )
        ]

    def selected(self, index: RecordIndex) -> StoreSource:
        """Return a source of the same store with another index."""
        return StoreSource(index)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            if self._waiter is not None:
                self._waiter.close()
                self._waiter = None


def fetcher_of(way: Way | LibraryWay, window: Window, ended: Ended) -> Fetching:
    """Return a fetcher of a store, with its own threads.

    Args:
        window: limit of the requests in flight.
        ended: called with completed requests, by any thread.
    """
    if isinstance(way, LibraryWay):
        return ThreadFetcher(way, window, ended)
    return Fetcher(way, window, ended)


def way_of(
    store: str, details: Mapping[str, object], environ: Mapping[str, str] = os.environ
) -> Way | LibraryWay:
    """Return access to a store.

    Args:
        store: address of the store.
        details: details of its index.

    Raises:
        RecordsError: the address cannot be used, or its secrets cannot be read.
    """
    if is_of_library(store):
        return LibraryWay(store)
    address = StoreAddress.parse(store)
    # Imported on demand: readers start faster without the other kinds.
    if address.kind == "redis":
        from monarch.records.stores.redis import RedisWay

        slots = details.get("slots", [])
        assert isinstance(slots, list)
        return RedisWay(address, slots, environ)
    if address.kind in ("s3", "http"):
        from monarch.records.stores.s3 import HttpWay

        return HttpWay(address, details, environ)
    from monarch.records.stores.cassandra import CqlWay

    return CqlWay(address, details, environ)


def index_of(keys: KeyIndex) -> RecordIndex:
    """Return the Record index of a store in which each object is a Record."""
    units = np.empty(len(keys), UNIT)
    units["offset"] = 0
    units["length"] = keys.lengths
    units["object"] = np.arange(len(keys))
    kind = keys.store.partition(":")[0]
    return RecordIndex(kind, keys, units)
