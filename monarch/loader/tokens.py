"""Tokens: a limit on concurrent requests of a loader, over all nodes of a job.

Rank 0 has the tokens. Each thread of a reader requests one before it reads and returns
it afterwards, or when its connection ends (the staggered readers of LMDBIO, TOPC 2019,
without an order that a dead reader could break). A thread that gets no reply for some
seconds reads without a token: a limit must not become a hang.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

_ASK: Final = b"?"
_GRANT: Final = b"!"
_SECRET_BYTES: Final = 16
_PATIENCE_S: Final = 5.0

GiveBack = Callable[[], None]


class TokenServer:
    """Grants tokens from a thread of the process that made it.

    Args:
        tokens: number of tokens.
        host: the address at which other nodes reach this one.

    Raises:
        OSError: the address cannot be used.
    """

    def __init__(self, tokens: int, host: str) -> None:
        self._free = tokens
        self._waiting: deque[socket.socket] = deque()
        self._holders: set[socket.socket] = set()
        self._known: set[socket.socket] = set()
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._is_closed = False
        self._listener = socket.create_server((host, 0))
        port = self._listener.getsockname()[1]
        self.address = [host, port, self._secret.hex()]
        threading.Thread(target=self._run, name="tokens", daemon=True).start()

    def __repr__(self) -> str:
        return f"<TokenServer, {self._free} free>"

    def close(self) -> None:
        """Stop the server; readers then read without tokens."""
        self._is_closed = True

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._is_closed:
                for key, _ in ready.select(1.0):
                    self._serve(key.fileobj, ready)
                self._grant()
            for key in list(ready.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _serve(self, sock: Any, ready: selectors.BaseSelector) -> None:
        if sock is not self._listener:
            if not self._hear(sock):
                ready.unregister(sock)
                self._forget(sock)
            return
        with contextlib.suppress(OSError):
            ready.register(self._listener.accept()[0], selectors.EVENT_READ)

    def _hear(self, sock: socket.socket) -> bool:
        """Carry out the request of a reader's thread; return False if it has ended."""
        with contextlib.suppress(OSError):
            if sock not in self._known:
                self._known.add(sock)
                sock.settimeout(1.0)
                return sock.recv(_SECRET_BYTES, socket.MSG_WAITALL) == self._secret
            said = sock.recv(1)
            if said and sock in self._holders:
                self._holders.remove(sock)
                self._free += 1
            elif said:
                self._waiting.append(sock)
            return bool(said)
        return False

    def _forget(self, sock: socket.socket) -> None:
        self._free += sock in self._holders
        self._holders.discard(sock)
        self._known.discard(sock)
        with contextlib.suppress(ValueError):
            self._waiting.remove(sock)
        sock.close()

    def _grant(self) -> None:
        while self._free > 0 and self._waiting:
            sock = self._waiting.popleft()
            with contextlib.suppress(OSError):
                sock.send(_GRANT)
            self._holders.add(sock)
            self._free -= 1


class _Taker:
    """Takes tokens for the threads of a reader, each by its own connection."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        self._address = host, port
        self._secret = bytes.fromhex(secret)
        self._own = threading.local()

    def __call__(self) -> GiveBack:
        """Wait for a token; return a function that releases it."""
        try:
            sock = self._connected()
            sock.sendall(_ASK)
            if sock.recv(1) != _GRANT:
                raise ConnectionResetError("the process that holds the tokens ended")
        except OSError as error:
            self._lost(error)
            return _nothing
        return lambda: self._give_back(sock)

    def _connected(self) -> socket.socket:
        if getattr(self._own, "lost", False):
            raise ConnectionResetError
        sock: socket.socket | None = getattr(self._own, "socket", None)
        if sock is None:
            sock = socket.create_connection(self._address, _PATIENCE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(self._secret)
            self._own.socket = sock
        return sock

    def _give_back(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(_ASK)

    def _lost(self, error: OSError) -> None:
        if not getattr(self._own, "lost", False) and str(error):
            text = f"monarch: loader: readers_max is no longer enforced: {error}"
            print(text, file=sys.stderr, flush=True)
        self._own.lost = True
        if (sock := getattr(self._own, "socket", None)) is not None:
            sock.close()


def token_taker(settings: Mapping[str, Any]) -> Callable[[], GiveBack]:
    """Return a function that waits for a token, by the settings of a reader."""
    if settings["token_server"]:
        return _Taker(*settings["token_server"])
    if settings["readers_max"] is None:
        return lambda: _nothing
    tokens = threading.BoundedSemaphore(settings["readers_max"])

    def take() -> GiveBack:
        tokens.acquire()
        return tokens.release

    return take


def _nothing() -> None:
    """Release nothing."""
