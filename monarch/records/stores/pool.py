"""The connections to one server of a store, and which of them has the least to do."""

from __future__ import annotations

import socket

from monarch.records.stores.connection import (
    Connection,
    ConnectionLostError,
    Endpoint,
    Talk,
)


class Pool:
    """The connections to one server.

    Attributes:
        failures: connections in a row that have not been greeted.
        failing_since_s: when the first of these failed.
        not_before_s: until then no other connection begins.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.failures = 0
        self.failing_since_s = 0.0
        self.not_before_s = 0.0
        self._connections: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self._addresses: list[tuple[int, tuple[str, int]]] = []

    def __repr__(self) -> str:
        return f"<Pool of {len(self)} connections to {self.endpoint}>"

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._connections)

    @property
    def beginning(self) -> int:
        """How many connections have not been greeted yet."""
        if len(self._connections) == len(self._idle):
            return 0
        return sum(not one.exchange.ready for one in self._connections)

    def best(self) -> Connection | None:
        """Return the connection with the least to do; None: all are full."""
        if self._idle:
            return next(reversed(self._idle))
        free = [one for one in self._connections if one.can_ask]
        return min(free, key=lambda one: one.exchange.load, default=None)

    def note(self, connection: Connection) -> None:
        """Note that a connection has more or less to do than before."""
        if connection.is_open:
            self.failures = 0
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
        return connection

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        del self._connections[connection]
        self._idle.pop(connection, None)

    def _address(self) -> tuple[int, tuple[str, int]]:
        host, port, _ = self.endpoint
        if not self._addresses:
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                text = f"the name {host} is not known: {error.strerror}"
                raise ConnectionLostError(text) from error
            self._addresses = [(row[0], (str(row[4][0]), port)) for row in found]
        self._addresses.append(self._addresses.pop(0))
        return self._addresses[-1]
