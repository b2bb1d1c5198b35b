"""The connections to the servers of a store, and which of them is asked next."""

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
"""The longest pause before a server that is away is tried again: so late, at most, is
its return noticed."""
ROW: Final = 16
"""So many requests in a row go to one connection: each sent packet and each look for
the best connection costs more than a request does."""
PROBE_S: Final = 0.1
"""Between two questions who has replaced a server of a cluster."""
DOWN_S: Final = 30.0
"""A store that has answered before may be away for so long."""
FAILURES_MAX: Final = 4
"""Of one that has never answered, so many connections may fail."""


class Pool:
    """The connections to one server.

    Attributes:
        failures: connections in a row that have not been greeted.
        failing_since_s: when the first of these failed.
        not_before_s: until then no other connection begins.
        served: requests that it has answered well.
        probed_s: when another server was last asked for the replacement of this one.
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
        """Return how many connections there are."""
        return len(self._connections)

    @property
    def beginning(self) -> int:
        """How many connections have not been greeted yet."""
        return len(self._beginning)

    def take(self) -> Connection | None:
        """Return a connection that takes one more request, and must get it.

        None: all are full. The one with the least to do gets some in a row.
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
        """Return how many more requests the connection that was taken last must get."""
        if self._last is None:
            return 0
        exchange = self._last.exchange
        count = max(0, min(most, self._left, exchange.capacity - exchange.load))
        self._left -= count
        return count

    def take_other(self, than: Connection | None) -> Connection | None:
        """Return the connection with the least to do beside one, as `take` does."""
        free = [one for one in self._connections if one.can_ask and one is not than]
        found = min(free, key=lambda one: one.exchange.load, default=None)
        if found is not None:
            self._idle.pop(found, None)
        return found

    def note(self, connection: Connection) -> None:
        """Note that a connection has more or less to do than before."""
        if connection.is_open:
            self.failures = 0
            self._beginning.pop(connection, None)
        if connection.is_open and not connection.exchange.load:
            self._idle[connection] = None
        else:
            self._idle.pop(connection, None)

    def connect(self, talk: Talk) -> Connection:
        """Begin a connection, to each address of the server in turn.

        Raises:
            ConnectionLostError: the name is not known, or the server refuses at once.
        """
        connection = Connection(self.endpoint, self._address(), talk)
        self._connections[connection] = None
        self._beginning[connection] = None
        self._pipelines = connection.exchange.capacity > 1
        return connection

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
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
        """Return how many servers are known."""
        return len(self._pools)

    def of(self, endpoint: Endpoint) -> Pool:
        """Return the connections to a server."""
        if endpoint not in self._pools:
            self._pools[endpoint] = Pool(endpoint)
        return self._pools[endpoint]

    def served(self) -> dict[str, int]:
        """Return how many requests each server has answered, by its address."""
        return {str(one): pool.served for one, pool in self._pools.items()}

    def best_for(self, fetch: Fetch, now_s: float) -> Pool | None:
        """Return the connections to the best server that can be reached.

        None: it is away, and others were asked for its replacement a moment ago.
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
        """Return a connection that may answer sooner, of another server if one can.

        It must get the request, see `Pool.take`.
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
        """Return the servers that failed and may be connected to again."""
        return [
            pool
            for pool in self._pools.values()
            if pool.failures and not len(pool) and pool.not_before_s <= now_s
        ]

    def are_given_up(self, now_s: float) -> bool:
        """Return whether no server can be reached for too long.

        A store that has never answered is soon given up: its address is wrong, perhaps.
        """
        if any(pool.served for pool in self._pools.values()):
            return all(
                pool.failures and now_s - pool.failing_since_s > DOWN_S
                for pool in self._pools.values()
            )
        return all(pool.failures >= FAILURES_MAX for pool in self._pools.values())
