"""What a rank and the reader of its node say to each other.

Messages are packets of JSON on a Unix socket of packets; a buffer comes as a descriptor
beside its message. The socket has an abstract name, which vanishes with the reader.

A rank says:
    hello  VERSION, rank, offers: first. `offers`: wait for `go`, a moment
    need   serial, spans, again: spans [epoch, low, high, start] of positions, the first
           of which says where the rank is. `again`: it has given up all portions.
    stats  the reader answers with its figures
    offer  key, sizes: with a descriptor of a portion that this rank has read meanwhile
    read   sizes: of other reads of this rank
    go     the last portion was offered

The reader says:
    ready  to `hello`
    buffer number, capacity: with a descriptor
    gone   numbers of buffers that will not be used again
    part   key, serial, buffer, rows, requests, done: some requests of a portion are
           done. `serial` is of the last `need`: what was said before a rank gave a
           portion up and needed it again is void, as its buffer has another use.
    failed key, serial, text: a portion cannot be read
    yield  give up all portions as soon as you wait: another rank is behind you
    stats  figures
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from monarch.errors import MonarchError

VERSION: Final = 1
PACKET_MAX: Final = 1 << 17
SPLIT: Final = 2000
"""How many numbers of requests go into one message."""
_SEND_BUFFER: Final = 1 << 20
_CREDENTIALS: Final = 12

Message = list[Any]


class LoaderError(MonarchError):
    """A loader cannot give the next batch; the text says why and what to do."""


class Channel:
    """A connection, which never blocks: messages wait here while the other is slow."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.socket = sock
        self._waiting: deque[tuple[bytes, tuple[int, ...]]] = deque()

    def __repr__(self) -> str:
        return f"<Channel {self.socket.fileno()}, {len(self._waiting)} waiting>"

    @property
    def has_waiting(self) -> bool:
        """Return whether messages wait to be sent."""
        return bool(self._waiting)

    def send(self, *message: Any, fds: Sequence[int] = ()) -> None:
        """Send a message, now or by `flush`; descriptors are duplicated.

        Raises:
            OSError: the other side has ended.
        """
        kept = tuple(os.dup(fd) for fd in fds)
        self._waiting.append((json.dumps(message).encode(), kept))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the other takes it.

        Raises:
            OSError: the other side has ended.
        """
        while self._waiting:
            packet, fds = self._waiting[0]
            try:
                socket.send_fds(self.socket, [packet], fds)
            except BlockingIOError:
                return
            self._waiting.popleft()
            for fd in fds:
                os.close(fd)

    def receive(self) -> tuple[Message, list[int]] | None:
        """Return the next message and its descriptors; None: there is none now.

        Raises:
            ConnectionError: the other side has ended, or the message is not valid.
        """
        try:
            packet, fds, flags, _ = socket.recv_fds(self.socket, PACKET_MAX, 1)
        except BlockingIOError:
            return None
        for fd in fds:
            os.set_inheritable(fd, False)
        if not packet or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            for fd in fds:
                os.close(fd)
            raise ConnectionResetError("the other side closed the connection")
        try:
            message = json.loads(packet)
        except ValueError as error:
            raise ConnectionError("a message is damaged") from error
        return message, fds

    def wait(self, limit_s: float, fds: Sequence[int] = ()) -> bool:
        """Wait for a message, or that a descriptor can be read.

        Returns:
            Whether there may be one.
        """
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        events = select.POLLIN | (select.POLLOUT if self._waiting else 0)
        poll.register(self.socket, events)
        return bool(poll.poll(max(0.0, limit_s) * 1000))

    def close(self) -> None:
        """Close the connection."""
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()
        self.socket.close()


def address(key: str) -> str:
    """Return the abstract address of the reader that a key names."""
    return f"\0monarch-loader-{os.geteuid()}-{key}"


def listen(key: str) -> socket.socket | None:
    """Return the socket of a new reader, or None if a reader exists already."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.bind(address(key))
    except OSError:
        sock.close()
        return None
    sock.listen(1024)
    return sock


def connect(key: str, limit_s: float) -> Channel | None:
    """Connect to a reader; None: there is none.

    Raises:
        LoaderError: another user has taken the address, or the reader is stopped.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(limit_s)
    try:
        sock.connect(address(key))
    except TimeoutError as error:
        sock.close()
        raise LoaderError("the reader of this node does not answer") from error
    except OSError:
        sock.close()
        return None
    if peer_user(sock) != os.geteuid():
        sock.close()
        raise LoaderError("another user holds the address of this loader's reader")
    return Channel(sock)


def peer_user(sock: socket.socket) -> int:
    """Return the user of the other side (unix(7), SO_PEERCRED)."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS)
    return int.from_bytes(found[4:8], "little")
