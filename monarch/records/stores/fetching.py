"""One thread that fetches from a store: many requests in flight over few connections.

Requests are sent in the order in which they were submitted. After a temporary failure a
request is retried on another connection after a random pause, so that clients that
failed together do not retry together (Brooker, "Exponential Backoff And Jitter", AWS,
2015).
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_128_digest

from monarch.records.errors import RecordsError
from monarch.records.stores.connection import (
    Connection,
    ConnectionLostError,
    UntrustedError,
)
from monarch.records.stores.connections import Connections
from monarch.records.stores.exchange import ExchangeError, Failure, Fault
from monarch.records.stores.flights import Flight, Flights
from monarch.records.stores.pool import AWAY_PAUSE_MAX_S, DOWN_S, PAUSE_S
from monarch.records.stores.ways import Ended, Fetch, FetchCounts, Way
from monarch.records.stores.window import Delays, Window

ATTEMPTS_MAX: Final = 6
PAUSE_MAX_S: Final = 5.0
CONNECT_S: Final = 5.0
PASSED_BY_MAX: Final = 256
"""Maximum requests of unreachable servers that later requests may overtake."""
RETRIED_SHARE: Final = 0.1
RETRIED_MIN: Final = 256
"""When more requests than this number plus the share above have failed, all pauses are
drawn up to the longest one."""
HANDED_AT_ONCE: Final = 32
"""Completed requests that are handed over together, if many complete at once."""
NAP_SHARE: Final = 1 / 50
NAP_MAX_S: Final = 0.002
"""The thread sleeps for this share of a round trip while replies arrive: a wake-up
costs as much as some replies."""
NAP_MIN_S: Final = 0.0002
_LOOK_S: Final = 0.05
_HELD_S: Final = 0.001
"""Wait of requests that the pace holds back."""
_PATIENT: Final = frozenset({Fault.BUSY, Fault.AWAY})
_FINAL: Final = frozenset({Fault.MISSING, Fault.CHANGED, Fault.DENIED, Fault.REFUSED})

log = logging.getLogger("monarch.records")


class Fetcher:
    """Fetches Records of one store.

    Args:
        way: access to the store.
        window: limit of the requests in flight.
        ended: called by the thread with completed requests.
    """

    def __init__(self, way: Way, window: Window, ended: Ended) -> None:
        self.counts = FetchCounts()
        self.delays = Delays()
        self._window = window
        self._way = way
        self._ended = ended
        self._over: list[Fetch] = []
        self._given: deque[Fetch] = deque()
        self._waiting: deque[Fetch] = deque()
        self._later: list[tuple[float, int, Fetch]] = []
        self._flights = Flights()
        self._connections = Connections(way)
        self._asked: dict[Connection, None] = {}
        self._chance = random.Random()
        self._serial = 0
        self._failures = 0
        self._is_held = False
        self._looked_s = 0.0
        self._ends = False
        self._broken: RecordsError | None = None
        self._thread = threading.Thread(target=self._run, name="fetch", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Fetcher of {self._way.name}, {len(self._flights)} in flight>"

    @property
    def servers(self) -> dict[str, int]:
        """Number of requests that each server has answered, by its address."""
        return self._connections.pools.served()

    @property
    def hedges(self) -> int:
        """Number of late requests that were also sent elsewhere."""
        return self._flights.twins

    @property
    def at_once(self) -> int:
        """Maximum requests in flight now."""
        return self._window.size

    @property
    def waiting(self) -> int:
        """Number of requests that wait to be sent."""
        return len(self._given) + len(self._waiting)

    def start(self, fetches: Sequence[Fetch]) -> None:
        """Queue Records to fetch, in this order, behind earlier ones."""
        self._given.extend(fetches)
        if self._broken is None:
            self._connections.ring()
        else:
            self._end_broken()

    def close(self) -> None:
        """End all connections; requests in flight are dropped."""
        self._ends = True
        self._connections.ring()
        self._thread.join()
        self._connections.close_bell()

    # -- the thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ends:
                self._turn()
        except Exception as error:
            # Any exception must be reported to the callers that wait for requests.
            log.exception("fetching has failed store=%s", self._way.name)
            self._broken = RecordsError(f"{self._way.name}: fetching failed: {error!r}")
            self._end_broken()
        finally:
            self._connections.close()

    def _end_broken(self) -> None:
        """Fail all requests after an error of the thread itself."""
        assert self._broken is not None
        self._waiting.extend(self._flights.clear())
        self._end_all(self._broken)
        self._hand_over()

    def _turn(self) -> None:
        now_s = time.monotonic()
        self._take_given()
        self._take_later(now_s)
        self._send(now_s)
        self._nap()
        found = self._connections.wait(self._patience_s(now_s))
        for connection, events in found:
            self._serve(connection, events)
        now_s = time.monotonic()
        if now_s >= self._looked_s + _LOOK_S:
            self._looked_s = now_s
            self._give_up_late(now_s)
            self._hedge(now_s)
            self._connections.look_for_servers(now_s)
        if self._connections.given_up:
            told, self._connections.given_up = self._connections.given_up, ""
            self._end_all(self._told(told, Fault.FAILED))
        if self._over and (not found or len(self._over) >= HANDED_AT_ONCE):
            self._hand_over()

    def _nap(self) -> None:
        """Sleep while replies arrive, unless requests are paced."""
        nap_s = min(NAP_MAX_S, NAP_SHARE * self._window.round_trip_s)
        if nap_s >= NAP_MIN_S and self._flights and not self._window.is_paced:
            time.sleep(nap_s)

    def _hand_over(self) -> None:
        over, self._over = self._over, []
        self._ended(over)

    def _take_given(self) -> None:
        while self._given:
            self._waiting.append(self._given.popleft())

    def _take_later(self, now_s: float) -> None:
        """Requeue requests whose pause is over, before all others."""
        while self._later and self._later[0][0] <= now_s:
            self._waiting.appendleft(heapq.heappop(self._later)[2])

    def _patience_s(self, now_s: float) -> float:
        """Return how long to wait if no reply arrives."""
        if self._over:
            return 0.0
        if self._is_held:
            return _HELD_S
        if self._later:
            return max(0.0, min(_LOOK_S, self._later[0][0] - now_s))
        is_busy = self._flights or self._waiting or self._connections.are_beginning
        return _LOOK_S if is_busy else 1.0

    # -- requests -----------------------------------------------------------------

    def _send(self, now_s: float) -> None:
        """Send the requests that the window and the connections allow, in order."""
        passed_by: list[Fetch] = []
        left = paced = self._window.pace(now_s)
        while self._waiting and left > 0 and len(passed_by) < PASSED_BY_MAX:
            fetch = self._waiting[0]
            if not self._has_room(fetch):
                break
            connection = self._connections.best_for(fetch, now_s)
            if connection is None and len(self._connections.pools) <= 1:
                break
            self._waiting.popleft()
            if connection is None:
                passed_by.append(fetch)
                continue
            self._ask(fetch, connection, now_s)
            left -= 1 + self._ask_more(connection, left - 1, now_s)
        self._window.sent(paced - left)
        self._is_held = bool(self._waiting) and left <= 0
        self._waiting.extendleft(reversed(passed_by))
        counts = self.counts
        counts.most_in_flight = max(counts.most_in_flight, len(self._flights))
        asked, self._asked = self._asked, {}
        for connection in asked:
            self._serve(connection, 0)

    def _has_room(self, fetch: Fetch) -> bool:
        flights = self._flights
        return self._window.allows(len(flights), flights.bytes, fetch.wanted.length)

    def _ask(self, fetch: Fetch, connection: Connection, now_s: float) -> None:
        self._serial += 1
        fetch.began_s = fetch.began_s or now_s
        fetch.attempts += 1
        self._flights.begin(self._serial, Flight(fetch, connection, now_s))
        connection.ask(self._serial, fetch.wanted, fetch.place)
        self._asked[connection] = None

    def _ask_more(self, connection: Connection, most: int, now_s: float) -> int:
        """Send the next requests on the same connection; return how many.

        Only with one server: otherwise the next requests may belong to other servers.
        """
        waiting, pools = self._waiting, self._connections.pools
        if len(pools) > 1:
            return 0
        count = pools.of(connection.endpoint).take_more(min(most, len(waiting)))
        for asked in range(count):
            if waiting[0].endpoint is not None or not self._has_room(waiting[0]):
                return asked
            self._ask(waiting.popleft(), connection, now_s)
        return count

    def _end(self, fetch: Fetch, error: RecordsError | None) -> None:
        fetch.error = error
        self._over.append(fetch)

    def _succeed(self, fetch: Fetch) -> None:
        """Complete a request if its payload matches the index."""
        wanted, found = fetch.wanted, fetch.found
        payload = found or b"" if fetch.place is None else fetch.place
        is_other = fetch.place is not None and found is not None
        if self._way.checks and wanted.identity and wanted.whole:
            is_other |= xxh3_128_digest(payload) != wanted.identity
        if is_other:
            self._end(fetch, self._error(fetch, Fault.CHANGED.value, Fault.CHANGED))
            return
        self.counts.requests += 1
        self.counts.bytes += len(payload)
        self._over.append(fetch)

    # -- replies ------------------------------------------------------------------

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            connection.turn(events)
        except UntrustedError as error:
            self._refuse(connection, str(error), Fault.REFUSED)
            return
        except (ConnectionLostError, ExchangeError) as error:
            self._take_replies(connection)
            self._lose(connection, str(error))
            return
        self._take_replies(connection)
        exchange = connection.exchange
        if exchange.refusal:
            self._refuse(connection, exchange.refusal, exchange.refused)
        elif exchange.ended and not exchange.pending():
            self._drop(connection)
        else:
            self._connections.note(connection)

    def _take_replies(self, connection: Connection) -> None:
        exchange, now_s = connection.exchange, time.monotonic()
        if exchange.done:
            self._take_done(connection, now_s)
        for failure in exchange.failed:
            fetch = self._flights.fail(failure.number)
            if fetch is not None:
                self._fail(fetch, failure, now_s)
        exchange.failed.clear()

    def _take_done(self, connection: Connection, now_s: float) -> None:
        exchange, delays_s = connection.exchange, []
        for number in exchange.done:
            flight = self._flights.succeed(number, exchange.loose.pop(number, None))
            if flight is not None:
                delays_s.append(now_s - flight.sent_s)
                self._succeed(flight.fetch)
        exchange.done.clear()
        if delays_s:
            self.delays.note(delays_s)
            is_full = bool(self._waiting or self._given)
            self._window.replied(now_s, min(delays_s), len(delays_s), is_full=is_full)
            self._connections.pools.of(connection.endpoint).served += len(delays_s)

    def _fail(self, fetch: Fetch, failure: Failure, now_s: float) -> None:
        """Fail a request for good, or retry it."""
        fault = failure.fault
        if fault in _FINAL:
            self._end(fetch, self._error(fetch, failure.text, fault))
            return
        if fault in _PATIENT:
            self._window.lost(now_s)
            self._wait(fetch, failure.text, now_s)
            return
        moved = None
        if fault in (Fault.MOVED, Fault.ASKED):
            is_away = self._connections.pools.is_away(fetch.wanted.key)
            moved = self._way.moved(failure, is_away=is_away)
        if moved is not None and self._connections.pools.of(moved).failures:
            # The store has not detected yet that this server is down.
            self._wait(fetch, failure.text, now_s)
            return
        fetch.endpoint = moved
        fetch.wanted = fetch.wanted._replace(asking=fault is Fault.ASKED)
        self._again(fetch, failure.text, now_s, at_once=moved is not None)

    def _wait(self, fetch: Fetch, text: str, now_s: float) -> None:
        """Retry until the store can answer, for DOWN_S at most."""
        if now_s - fetch.began_s > DOWN_S:
            told = f"{text} (for {DOWN_S:.0f} s)"
            self._end(fetch, self._error(fetch, told, Fault.FAILED))
            return
        fetch.endpoint = None
        fetch.wanted = fetch.wanted._replace(asking=False)
        fetch.attempts -= 1
        self._pause(fetch, now_s, AWAY_PAUSE_MAX_S)

    def _again(
        self, fetch: Fetch, text: str, now_s: float, *, at_once: bool = False
    ) -> None:
        """Retry after a random pause; give up after ATTEMPTS_MAX attempts."""
        if fetch.attempts >= ATTEMPTS_MAX:
            told = f"{text} ({ATTEMPTS_MAX} attempts)"
            self._end(fetch, self._error(fetch, told, Fault.FAILED))
            return
        most_s = min(PAUSE_MAX_S, PAUSE_S * 2**fetch.attempts)
        self._failures += not at_once
        if self._failures > RETRIED_MIN + RETRIED_SHARE * self.counts.requests:
            most_s = PAUSE_MAX_S
        self._pause(fetch, now_s, 0.0 if at_once else most_s)

    def _pause(self, fetch: Fetch, now_s: float, most_s: float) -> None:
        self.counts.retries += 1
        pause_s = self._chance.uniform(0, most_s)
        self._serial += 1
        heapq.heappush(self._later, (now_s + pause_s, self._serial, fetch))

    def _error(self, fetch: Fetch, text: str, fault: Fault) -> RecordsError:
        key = fetch.wanted.key.decode(errors="backslashreplace")
        return self._told(f"{key}: {text}", fault)

    def _give_up_late(self, now_s: float) -> None:
        """Retry late requests, and give up connections that are never greeted."""
        limit_s = self.delays.deadline_s or CONNECT_S
        late = self._flights.late(now_s, limit_s)
        for number, flight in late:
            flight.connection.exchange.abandon(number)
            self.counts.late += 1
            fetch = self._flights.fail(number)
            if fetch is not None:
                self._again(fetch, f"no reply after {limit_s:.1f} s", now_s)
        if late:
            self._window.lost(now_s)
        for connection in self._connections.silent_since(now_s - CONNECT_S):
            self._lose(connection, f"no answer after {CONNECT_S:.0f} s")

    def _hedge(self, now_s: float) -> None:
        """Also send requests elsewhere that take much longer than others."""
        if not self.delays.deadline_s:
            return  # too few replies to determine lateness
        median_s = self.delays.of_share(0.5) or 0.0
        hedged = self._flights.to_be_hedged(now_s, median_s, self.counts.requests)
        for number, flight in hedged:
            connections = self._connections
            connection = connections.pools.other_for(flight.fetch, flight.connection)
            if connection is None:
                continue
            self._serial += 1
            self._flights.add_twin(self._serial, number, connection, now_s)
            connection.ask(self._serial, flight.fetch.wanted, None)
            self._asked[connection] = None

    # -- connections --------------------------------------------------------------

    def _drop(self, connection: Connection) -> bool:
        """Close a connection; return whether its greeting was complete."""
        self._asked.pop(connection, None)
        return self._connections.drop(connection)

    def _lose(self, connection: Connection, text: str) -> None:
        """Close a failed connection, and retry its requests."""
        now_s = time.monotonic()
        numbers = connection.exchange.pending()
        was_open = self._drop(connection)
        self.counts.reconnects += was_open
        if numbers:
            self._window.lost(now_s)
        for number in numbers:
            fetch = self._flights.fail(number)
            if fetch is not None:
                self._again(fetch, f"{connection.endpoint}: {text}", now_s)
        if not was_open:
            self._connections.blame(connection, text, now_s)

    def _refuse(self, connection: Connection, text: str, fault: Fault) -> None:
        """Fail all requests: the store rejects this client."""
        self._lose(connection, text)
        self._end_all(self._told(f"{connection.endpoint}: {text}", fault))

    def _end_all(self, error: RecordsError) -> None:
        """Fail all requests that are not in flight, with the same error."""
        self._take_given()
        waiting = [*self._waiting, *(one[2] for one in self._later)]
        self._waiting.clear()
        self._later.clear()
        for fetch in waiting:
            self._end(fetch, error)

    def _told(self, text: str, fault: Fault) -> RecordsError:
        advice = self._way.advice(fault)
        told = f"{self._way.name}: {text}"
        return RecordsError(f"{told}; {advice}" if advice else told)
