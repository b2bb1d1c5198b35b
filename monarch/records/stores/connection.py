"""A connection to a store: a non-blocking socket and the conversation over it."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from monarch.records.stores.exchange import Exchange, Wanted

SEND_BYTES_MAX: Final = 1 << 18
TURNS_MAX: Final = 16
"""Receives of one connection before others have their turn."""
_CONNECTING: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK})
_WANTS: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Endpoint(NamedTuple):
    """One server of a store.

    Attributes:
        tls: context that verifies the server; None: the connection is not encrypted.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ConnectionLostError(Exception):
    """The connection has ended; the text is the reason."""


class UntrustedError(ConnectionLostError):
    """The server's certificate is not trusted: a retry would fail as well."""


Talk = Callable[[Endpoint], Exchange]
"""Begins a conversation with a server."""


class Connection:
    """One conversation over a socket.

    Args:
        address: resolved address of the endpoint, as from `socket.getaddrinfo`.

    Attributes:
        is_open: requests can be sent, now or after others.

    Raises:
        ConnectionLostError: the connection fails immediately.
    """

    def __init__(
        self, endpoint: Endpoint, address: tuple[int, tuple[str, int]], talk: Talk
    ) -> None:
        family, place = address
        self.endpoint = endpoint
        self.exchange = talk(endpoint)
        self._out = bytearray()
        self.is_open = False
        self._greeted = False
        self._is_connecting = True
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._tls: ssl.SSLSocket | None = None
        code = sock.connect_ex(place)
        if code and code not in _CONNECTING:
            sock.close()
            raise ConnectionLostError(os.strerror(code))

    def __repr__(self) -> str:
        return f"<Connection to {self.endpoint}>"

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._sock.fileno()

    @property
    def events(self) -> int:
        """Events to wait for, as in `selectors`."""
        if self._out or self._is_connecting:
            return selectors.EVENT_READ | selectors.EVENT_WRITE
        return selectors.EVENT_READ

    @property
    def can_ask(self) -> bool:
        """Whether one more request may be sent."""
        return self.is_open and self.exchange.load < self.exchange.capacity

    def ask(self, number: int, wanted: Wanted, place: memoryview | None) -> None:
        """Queue a request; `turn` sends it together with others."""
        self._out += self.exchange.request(number, wanted, place)

    def turn(self, events: int) -> None:
        """Send and receive without blocking.

        Raises:
            ConnectionLostError: the connection has ended.
            ExchangeError: the received bytes are no valid reply.
        """
        if not self._greeted and not self._begin():
            return
        if events & selectors.EVENT_WRITE or self._out:
            self._send()
        if events & selectors.EVENT_READ:
            self._receive()
        self.is_open = self.exchange.ready and not self.exchange.ended

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._sock.close()

    def _begin(self) -> bool:
        """Continue the handshakes; return whether they are complete."""
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise ConnectionLostError(os.strerror(code))
        self._is_connecting = False
        if self.endpoint.tls is not None and not self._shake_hands(self.endpoint.tls):
            return False
        self._greeted = True
        self._out += self.exchange.greeting()
        return True

    def _shake_hands(self, tls: ssl.SSLContext) -> bool:
        try:
            if self._tls is None:
                self._sock = self._tls = tls.wrap_socket(
                    self._sock,
                    server_hostname=self.endpoint.host,
                    do_handshake_on_connect=False,
                )
            self._tls.do_handshake()
        except ssl.SSLWantWriteError:
            self._is_connecting = True
            return False
        except _WANTS:
            return False
        except ssl.SSLCertVerificationError as error:
            text = f"its certificate is not trusted: {error.verify_message}"
            raise UntrustedError(text) from error
        except OSError as error:
            raise ConnectionLostError(f"TLS: {_told(error)}") from error
        return True

    def _send(self) -> None:
        while self._out:
            try:
                count = self._sock.send(self._out[:SEND_BYTES_MAX])
            except _WANTS:
                return
            except OSError as error:
                raise ConnectionLostError(_told(error)) from error
            del self._out[:count]

    def _receive(self) -> None:
        for _ in range(TURNS_MAX):
            space = self.exchange.space()
            try:
                count = self._sock.recv_into(space)
            except _WANTS:
                return
            except OSError as error:
                raise ConnectionLostError(_told(error)) from error
            if not count:
                raise ConnectionLostError("the server has closed the connection")
            self._out += self.exchange.advance(count)
            if self._out:
                self._send()
            if self.exchange.refusal:
                return
            more = self._tls is not None and self._tls.pending()
            if count < len(space) and not more:
                return


def _told(error: OSError) -> str:
    return error.strerror or type(error).__name__
