"""All connections of a store: waiting for them, and choosing one for a request."""

from __future__ import annotations

import logging
import os
import selectors
from typing import Final

from monarch.records.stores.connection import Connection, ConnectionLostError
from monarch.records.stores.pool import Pool, Pools
from monarch.records.stores.ways import Fetch, Way

BEGINNING_MAX: Final = 16
"""Connections to one server that may begin at the same time."""

log = logging.getLogger("monarch.records")


class Connections:
    """The connections of a store, for one thread.

    Attributes:
        pools: the connections by server.
        given_up: why no server of the store is retried any more; "": some are.
    """

    def __init__(self, way: Way) -> None:
        self.pools = Pools(way)
        self.given_up = ""
        self._way = way
        self._beginning: dict[Connection, float] = {}
        self._watched: dict[Connection, int] = {}
        self._select = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._select.register(self._woken, selectors.EVENT_READ)

    def __repr__(self) -> str:
        return f"<Connections, {len(self._watched)}>"

    @property
    def are_beginning(self) -> bool:
        """Whether the greeting of some connections is not complete yet."""
        return bool(self._beginning)

    def ring(self) -> None:
        """Wake the thread; called by other threads."""
        try:
            os.write(self._wake, b"x")
        except BlockingIOError:  # it is woken already
            return

    def wait(self, patience_s: float) -> list[tuple[Connection, int]]:
        """Wait; return the ready connections with their events."""
        found: list[tuple[Connection, int]] = []
        for key, events in self._select.select(patience_s):
            if key.fd == self._woken:
                os.read(self._woken, 4096)
            else:
                found.append((key.data, events))
        return found

    def close(self) -> None:
        """End all connections."""
        for connection in self._watched:
            connection.close()
        self._select.close()

    def close_bell(self) -> None:
        """Close the pipe of `ring`, which must not be called any more."""
        os.close(self._woken)
        os.close(self._wake)

    def best_for(self, fetch: Fetch, now_s: float) -> Connection | None:
        """Return a connection for one more request, which the caller must send on it.

        None: the request has to wait.
        """
        pool = self.pools.best_for(fetch, now_s)
        if pool is None:
            return None
        best = pool.take()
        is_idle = best is not None and not best.exchange.load
        if (
            not is_idle
            and len(pool) < self._way.connections_max
            and pool.beginning < max(BEGINNING_MAX, len(pool) // 2)
            and pool.not_before_s <= now_s
        ):
            self._connect(pool, now_s)
        return best

    def note(self, connection: Connection) -> None:
        """Update the state of a connection that has sent or received bytes."""
        if connection.is_open:
            self._beginning.pop(connection, None)
        self.pools.of(connection.endpoint).note(connection)
        events = connection.events
        if self._watched[connection] != events:
            self._watched[connection] = events
            self._select.modify(connection, events, connection)

    def drop(self, connection: Connection) -> bool:
        """Close a connection; return whether its greeting was complete."""
        self._select.unregister(connection)
        self.pools.of(connection.endpoint).remove(connection)
        was_open = self._beginning.pop(connection, None) is None
        del self._watched[connection]
        connection.close()
        return was_open

    def blame(self, connection: Connection, text: str, now_s: float) -> None:
        """Note that the greeting of a connection has failed."""
        self._blame(self.pools.of(connection.endpoint), text, now_s)

    def look_for_servers(self, now_s: float) -> None:
        """Reconnect to failed servers, which get no requests until this succeeds."""
        for pool in self.pools.to_be_tried(now_s):
            self._connect(pool, now_s)

    def silent_since(self, begun_s: float) -> list[Connection]:
        """Return the connections begun before a time that are not greeted yet."""
        return [one for one, at_s in self._beginning.items() if at_s < begun_s]

    def _connect(self, pool: Pool, now_s: float) -> None:
        try:
            connection = pool.connect(self._way.begin(pool.endpoint))
        except ConnectionLostError as error:
            self._blame(pool, str(error), now_s)
            return
        self._beginning[connection] = now_s
        self._watched[connection] = connection.events
        self._select.register(connection, connection.events, connection)

    def _blame(self, pool: Pool, text: str, now_s: float) -> None:
        log.info("store connection failed endpoint=%s error=%s", pool.endpoint, text)
        self.pools.blame(pool, now_s)
        if self.pools.are_given_up(now_s):
            self.given_up = f"{pool.endpoint}: {text}"
