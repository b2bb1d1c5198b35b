"""The connections to the servers of a store, and the choice of one for a request."""

from __future__ import annotations

import random
import socket
from typing import Final

from monarch.records.stores.connection import (
    Connection,
    ConnectionLostError,
    Endpoint,
    Talk,
)
from monarch.records.stores.ways import Fetch, Way

PAUSE_S: Final = 0.05
AWAY_PAUSE_MAX_S: Final = 0.5
"""The longest pause before a retry of an unreachable server, and so the longest delay
until its return is detected."""
ROW: Final = 16
"""Consecutive requests on one connection: each sent packet and each choice of the best
connection costs more than a request."""
PROBE_S: Final = 0.1
"""Interval between requests for the replacement of a server of a cluster."""
DOWN_S: Final = 30.0
"""Time for which a store that has answered before may be unreachable."""
FAILURES_MAX: Final = 4
"""Failed connections until a store that has never answered is given up."""


class Pool:
    """The connections to one server.

    Attributes:
        failures: consecutive connections whose greeting has failed.
        failing_since_s: time at which the first of these failed.
        not_before_s: time before which no other connection begins.
        served: requests that it has completed.
        probed_s: time of the last request for its replacement to another server.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.failures = 0
        self.failing_since_s = 0.0
        self.not_before_s = 0.0
        self.probed_s = 0.0
        self.served = 0
        self._connections: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self._pipelines = True
        self._last: Connection | None = None
        self._left = 0
        self._beginning: dict[Connection, None] = {}
        self._addresses: list[tuple[int, tuple[str, int]]] = []

    def __repr__(self) -> str:
        return f"<Pool of {len(self)} connections to {self.endpoint}>"

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._connections)

    @property
    def beginning(self) -> int:
        """Number of connections whose greeting is not complete yet."""
        return len(self._beginning)

    def take(self) -> Connection | None:
        """Return a connection for one more request, which the caller must send on it.

        None: all are full. The least loaded connection gets several requests in a row.
        """
        last = self._last
        if last is not None and self._left and last.can_ask:
            self._left -= 1
            self._idle.pop(last, None)
            return last
        if self._idle:
            last, _ = self._idle.popitem()
        else:
            last = self.take_other(None) if self._pipelines else None
        self._last, self._left = last, ROW - 1
        return last

    def take_more(self, most: int) -> int:
        """Return how many more requests the last taken connection must get."""
        if self._last is None:
            return 0
        exchange = self._last.exchange
        count = max(0, min(most, self._left, exchange.capacity - exchange.load))
        self._left -= count
        return count

    def take_other(self, than: Connection | None) -> Connection | None:
        """Return the least loaded connection except one, on the terms of `take`."""
        free = [one for one in self._connections if one.can_ask and one is not than]
        found = min(free, key=lambda one: one.exchange.load, default=None)
        if found is not None:
            self._idle.pop(found, None)
        return found

    def note(self, connection: Connection) -> None:
        """Update the state of a connection after its load has changed."""
        if connection.is_open:
            self.failures = 0
            self._beginning.pop(connection, None)
        if connection.is_open and not connection.exchange.load:
            self._idle[connection] = None
        else:
            self._idle.pop(connection, None)

    def connect(self, talk: Talk) -> Connection:
        """Begin a connection; each call uses the next address of the server.

        Raises:
            ConnectionLostError: the host cannot be resolved, or the connection fails
                immediately.
        """
        connection = Connection(self.endpoint, self._address(), talk)
        self._connections[connection] = None
        self._beginning[connection] = None
        self._pipelines = connection.exchange.capacity > 1
        return connection

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        del self._connections[connection]
        self._idle.pop(connection, None)
        self._beginning.pop(connection, None)
        if self._last is connection:
            self._last = None

    def _address(self) -> tuple[int, tuple[str, int]]:
        host, port, _ = self.endpoint
        if not self._addresses:
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                text = f"host {host} cannot be resolved: {error.strerror}"
                raise ConnectionLostError(text) from error
            self._addresses = [(row[0], (str(row[4][0]), port)) for row in found]
        self._addresses.append(self._addresses.pop(0))
        return self._addresses[-1]


class Pools:
    """The connections to all servers of a store."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._pools: dict[Endpoint, Pool] = {}
        self._chance = random.Random()

    def __repr__(self) -> str:
        return f"<Pools {[*self._pools.values()]}>"

    def __len__(self) -> int:
        """Return the number of known servers."""
        return len(self._pools)

    def of(self, endpoint: Endpoint) -> Pool:
        """Return the connections to a server."""
        if endpoint not in self._pools:
            self._pools[endpoint] = Pool(endpoint)
        return self._pools[endpoint]

    def served(self) -> dict[str, int]:
        """Return the number of requests that each server has answered, by address."""
        return {str(one): pool.served for one, pool in self._pools.items()}

    def best_for(self, fetch: Fetch, now_s: float) -> Pool | None:
        """Return the connections to the best reachable server.

        None: the key's server is down, and another one was asked for its replacement
        within the last PROBE_S.
        """
        if fetch.endpoint is not None:
            pool = self.of(fetch.endpoint)
            if not pool.failures:
                return pool
            fetch.endpoint = None
        endpoints = self._way.endpoints(fetch.wanted.key)
        begin = fetch.attempts if self._way.has_copies else 0
        best = self.of(endpoints[begin % len(endpoints)])
        if not best.failures:
            return best
        pools = [
            self.of(endpoints[(begin + number) % len(endpoints)])
            for number in range(1, len(endpoints))
        ]
        if not self._way.has_copies:
            if now_s < best.probed_s + PROBE_S:
                return None
            best.probed_s = now_s
        return next((pool for pool in pools if not pool.failures), best)

    def other_for(self, fetch: Fetch, than: Connection) -> Connection | None:
        """Return another connection for a request, of another server if possible.

        The caller must send the request on it, see `Pool.take`.
        """
        endpoints = self._way.endpoints(fetch.wanted.key)
        others = endpoints if self._way.has_copies else ()
        for endpoint in others:
            if endpoint == than.endpoint:
                continue
            best = self.of(endpoint).take_other(than)
            if best is not None:
                return best
        return self.of(than.endpoint).take_other(than)

    def is_away(self, key: bytes) -> bool:
        """Return whether the best server of a key cannot be reached."""
        return bool(self.of(self._way.endpoints(key)[0]).failures)

    def blame(self, pool: Pool, now_s: float) -> None:
        """Note that a server cannot be reached."""
        pool.failures += 1
        if pool.failures == 1:
            pool.failing_since_s = now_s
        most_s = min(AWAY_PAUSE_MAX_S, PAUSE_S * 2**pool.failures)
        pool.not_before_s = now_s + self._chance.uniform(0, most_s)

    def to_be_tried(self, now_s: float) -> list[Pool]:
        """Return the failed servers whose pause before a new connection is over."""
        return [
            pool
            for pool in self._pools.values()
            if pool.failures and not len(pool) and pool.not_before_s <= now_s
        ]

    def are_given_up(self, now_s: float) -> bool:
        """Return whether all servers have been unreachable for too long.

        A store that has never answered is given up early: its address may be wrong.
        """
        if any(pool.served for pool in self._pools.values()):
            return all(
                pool.failures and now_s - pool.failing_since_s > DOWN_S
                for pool in self._pools.values()
            )
        return all(pool.failures >= FAILURES_MAX for pool in self._pools.values())
