"""The requests in flight, their connections and their twins.

A late request gets a twin on another connection; the first payload to arrive counts
(Dean and Barroso, "The Tail at Scale", 2013). A twin has no place of its own, as both
may be received at the same time: its payload is copied if it wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from monarch.records.stores.connection import Connection
from monarch.records.stores.ways import Fetch

HEDGE_FACTOR: Final = 3.0
"""A request that takes this multiple of the median gets a twin."""
HEDGE_MIN_S: Final = 0.02
HEDGED_SHARE: Final = 0.02
"""Maximum share of the requests that get a twin."""


@dataclass(slots=True, eq=False)
class Flight:
    """One request in flight.

    Attributes:
        sent_s: time at which it was sent.
        size: its bytes, as far as they are known.
        is_twin: its payload has no place.
        other: the number of its twin, or of the request whose twin it is; 0: none.
    """

    fetch: Fetch
    connection: Connection
    sent_s: float
    is_twin: bool = False
    other: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        """Set the size to that of the requested range."""
        self.size = max(0, self.fetch.wanted.length)


class Flights:
    """The requests in flight, by their numbers."""

    def __init__(self) -> None:
        self.bytes = 0
        self.twins = 0
        self._flights: dict[int, Flight] = {}

    def __len__(self) -> int:
        """Return the number of requests, including twins."""
        return len(self._flights)

    def __repr__(self) -> str:
        return f"<Flights {len(self)}, {self.bytes} bytes>"

    def begin(self, number: int, flight: Flight) -> None:
        """Note a request that is being sent."""
        self._flights[number] = flight
        self.bytes += flight.size

    def add_twin(
        self, number: int, of: int, connection: Connection, now_s: float
    ) -> None:
        """Note the twin of a request that is being sent on another connection."""
        first = self._flights[of]
        first.other = number
        self.twins += 1
        self.begin(number, Flight(first.fetch, connection, now_s, True, of))

    def succeed(self, number: int, found: bytearray | None) -> Flight | None:
        """Remove a completed request and abandon its twin.

        Returns:
            None: its twin was faster, or it was given up. A twin's payload that does
            not fit stays in `found`.
        """
        flight = self._take(number)
        if flight is None:
            return None
        fetch = flight.fetch
        fetch.found = found
        if not flight.other and not flight.is_twin:
            return flight
        other = self._take(flight.other)
        if other is not None:
            # Before the copy: its payload may be arriving in the same place.
            other.connection.exchange.abandon(flight.other)
        place = fetch.place if flight.is_twin else None
        if place is not None and found is not None and len(found) == len(place):
            place[:] = found
            fetch.found = None
        return flight

    def fail(self, number: int) -> Fetch | None:
        """Remove a failed request.

        Returns:
            None: its twin is still in flight, or it was given up.
        """
        flight = self._take(number)
        if flight is None:
            return None
        other = self._flights.get(flight.other)
        if other is not None:
            other.other = 0
            return None
        return flight.fetch

    def late(self, now_s: float, limit_s: float) -> list[tuple[int, Flight]]:
        """Return the requests that are in flight for longer than a limit."""
        return [
            (number, flight)
            for number, flight in self._flights.items()
            if now_s - flight.sent_s > limit_s
        ]

    def to_be_hedged(
        self, now_s: float, median_s: float, requests: int
    ) -> list[tuple[int, Flight]]:
        """Return late requests that get a twin now.

        Args:
            requests: completed requests so far.
        """
        limit_s = max(HEDGE_MIN_S, HEDGE_FACTOR * median_s)
        most = max(0, int(HEDGED_SHARE * requests) - self.twins)
        late = self.late(now_s, limit_s) if most else []
        alone = [one for one in late if not one[1].other and not one[1].is_twin]
        return alone[:most]

    def clear(self) -> list[Fetch]:
        """Remove all requests, and return their fetches, each once."""
        # A twin whose request has failed is the only one of its fetch.
        flights = self._flights.values()
        found = [one.fetch for one in flights if not (one.is_twin and one.other)]
        self._flights.clear()
        self.bytes = 0
        return found

    def _take(self, number: int) -> Flight | None:
        flight = self._flights.pop(number, None)
        if flight is not None:
            self.bytes -= flight.size
        return flight
