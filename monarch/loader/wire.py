"""The messages between a rank and the reader of its node.

Messages are packets of JSON on a Unix packet socket; a buffer is sent as a descriptor
with its message. The socket has an abstract name, which vanishes with the reader.

Messages of a rank:
    hello  VERSION, rank, offers: the first message. `offers`: wait briefly for `go`.
    need   serial, spans, again: spans [epoch, low, high, start] of positions; the first
           span is the rank's own position. `again`: it has given up all portions.
    shard  path: with a descriptor of memory that has all bytes of a file
    stats  request the figures of the reader
    offer  key, sizes: with a descriptor of a portion that this rank has read itself
    read   sizes: sizes of other reads of this rank
    go     the last portion was offered

Messages of the reader:
    ready  reply to `hello`
    buffer number, capacity: with a descriptor
    gone   numbers of buffers that will not be used again
    part   key, serial, buffer, rows, requests, done: some requests of a portion are
           done. `serial` is that of the last `need`. After a rank gave up a portion and
           needs it again, earlier messages are void: its buffer has another use.
    failed key, serial, text: a portion cannot be read
    yield  give up all portions at the next wait: another rank is behind
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

VERSION: Final = 2
PACKET_MAX: Final = 1 << 17
SPLIT: Final = 2000
"""Maximum numbers of requests in one message."""
_SEND_BUFFER: Final = 1 << 20
_CREDENTIALS: Final = 12

Message = list[Any]


class LoaderError(MonarchError):
    """A loader cannot return the next batch; the text has the reason and a remedy."""


class Channel:
    """A connection that never blocks: messages are queued while the peer is slow."""

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
        """Send queued messages, as far as possible without blocking.

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
        """Return the next message and its descriptors; None: no message yet.

        Raises:
            ConnectionError: the other side has ended, or the message is invalid.
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
        """Wait for a message, or for a readable descriptor.

        Returns:
            False after a time-out.
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
    """Return the abstract address of the reader with a key."""
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
    """Connect to a reader; None: no reader is running.

    Raises:
        LoaderError: another user has taken the address, or the reader does not answer.
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
