"""Reads of requests from a store by a single thread, see `stores.fetching`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monarch.loader.figures import STORE_FIGURES
from monarch.loader.reading import End, ReadCounts
from monarch.records.index import Range
from monarch.records.sources import Source
from monarch.records.stores.source import StoreSource, fetcher_of
from monarch.records.stores.ways import Fetch
from monarch.records.stores.window import Window


class StoreReads:
    """Reads of a store, in the order of submission.

    Args:
        window: limit of the requests in flight.
        ended: called by the thread with completed requests.
    """

    def __init__(
        self,
        source: Source,
        window: Window,
        ended: Callable[[Sequence[End]], None],
    ) -> None:
        assert isinstance(source, StoreSource)
        self._source = source
        self._report = ended
        self._counts = ReadCounts()
        self._fetcher = fetcher_of(source.way(), window, self._ended)

    def __repr__(self) -> str:
        return f"<StoreReads by {self._fetcher!r}>"

    @property
    def counts(self) -> ReadCounts:
        """Return the counters of the reads."""
        fetched = self._fetcher.counts
        self._counts.retries = fetched.retries
        self._counts.hedges = self._fetcher.hedges
        self._counts.most_at_once = fetched.most_in_flight
        return self._counts

    @property
    def is_full(self) -> bool:
        """Whether more requests wait than the window has in flight."""
        return self._fetcher.waiting > self._fetcher.at_once

    def start(
        self, owner: Any, ranges: Sequence[Range], places: Sequence[memoryview | None]
    ) -> None:
        """Queue the requests of one owner."""
        wanted = self._source.wanted(ranges)
        self._fetcher.start(
            [
                Fetch(one, place, owner, number)
                for number, (one, place) in enumerate(zip(wanted, places, strict=True))
            ]
        )

    def count(self, size: int) -> None:
        """Count a request that was read in another way."""
        self._counts.add(size)

    def hedge(self) -> None:
        """Do nothing: the thread detects late replies itself."""

    def figures(self) -> dict[str, Any]:
        """Return the figures of the store."""
        counts = self._fetcher.counts
        found = (
            self._fetcher.delays.of_share(0.5),
            self._fetcher.delays.of_share(0.99),
            self._fetcher.at_once,
            counts.late,
            counts.reconnects,
            self._fetcher.servers,
        )
        return dict(zip(STORE_FIGURES, found, strict=True))

    def _ended(self, fetches: list[Fetch]) -> None:
        for one in fetches:
            if one.place is not None:
                if one.error is None:
                    self._counts.add(len(one.place))
                one.place.release()
            elif one.found is not None:
                self._counts.add(len(one.found))
        self._report(fetches)
