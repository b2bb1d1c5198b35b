"""An authenticated connection between two agents; its socket can be handed over."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, Self

from monarch.background import in_thread
from monarch.peers.protocol import (
    NONCE_BYTES,
    AlteredError,
    Conversation,
    Identity,
    Kind,
    Message,
    ProtocolError,
    Role,
)
from monarch.peers.timeouts import CONNECT_S, DRAIN_S, HANDSHAKE_S, SEND_S

RECEIVE_BYTES: Final = 256 << 10
# If its port is in use, an agent listens on one of the next ones; clients try these.
PORTS_TRIED: Final = 8

Address = tuple[str, int]

log = logging.getLogger("monarch.peers")


class Tampering:
    """Counts the connections on which frames were altered on the network.

    Each such connection is closed at once. Nodes reconnect after a while, which limits
    the number of lines in the log.
    """

    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"<Tampering {self.count}>"

    @contextlib.contextmanager
    def watch(self, peer: int) -> Iterator[None]:
        """Count and log an altered frame of a node."""
        try:
            yield
        except AlteredError as error:
            self.count += 1
            log.warning(
                "connection ended: tampered with on the network peer=%d reason=%s "
                "count=%d",
                *(peer, error, self.count),
            )
            raise


class Connection:
    """Messages over a socket; no byte after the last message is read from it.

    Every method raises OSError (including TimeoutError) or ProtocolError if the
    connection has failed; the caller must close it then.
    """

    def __init__(self, peer_socket: socket.socket, conversation: Conversation) -> None:
        self._socket = peer_socket
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Connection {self._conversation!r}>"

    @property
    def peer(self) -> int:
        """Return the number of the node at the other end."""
        assert self._conversation.peer is not None
        return self._conversation.peer

    @property
    def peer_host(self) -> str:
        """Return the address of the other end."""
        return str(self._socket.getpeername()[0])

    @classmethod
    async def connect(
        cls, address: Address, identity: Identity, peer: int, host: str = ""
    ) -> Self:
        """Connect to the agent of a node; both sides authenticate each other.

        Args:
            host: this node's address to connect from; "" means any.
        """
        nonce = os.urandom(NONCE_BYTES)
        conversation = Conversation(Role.CLIENT, identity, nonce, peer)
        connection = cls(await _connected(address, host), conversation)
        await connection._authenticate()
        return connection

    @classmethod
    async def accept(cls, peer_socket: socket.socket, identity: Identity) -> Self:
        """Authenticate the other end of an accepted socket, or close the socket."""
        conversation = Conversation(Role.SERVER, identity, os.urandom(NONCE_BYTES))
        connection = cls(peer_socket, conversation)
        await connection._authenticate()
        return connection

    async def _authenticate(self) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                while not self._conversation.authenticated:
                    await self._flush()
                    await self._read()
                await self._flush()
        except ProtocolError:
            self._send_refusal()
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def _send_refusal(self) -> None:
        """Send the reason if the socket accepts it without waiting."""
        with contextlib.suppress(OSError):
            self._socket.send(self._conversation.outgoing())

    async def receive(self) -> Message:
        """Return the next message."""
        while True:
            if messages := await self._read():
                return messages[0]

    async def _read(self) -> list[Message]:
        wanted = min(self._conversation.wants, RECEIVE_BYTES)
        if not wanted:
            raise ProtocolError("the conversation has ended")
        piece = await self._loop.sock_recv(self._socket, wanted)
        if not piece:
            raise ConnectionResetError("the other side has closed the connection")
        return self._conversation.receive(piece)

    async def send(
        self, kind: Kind, fields: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> None:
        """Send a message within SEND_S."""
        self._conversation.send(kind, fields or {}, body)
        async with asyncio.timeout(SEND_S):
            await self._flush()

    async def _flush(self) -> None:
        if pending := self._conversation.outgoing():
            await self._loop.sock_sendall(self._socket, pending)

    def detach(self) -> int:
        """Return the descriptor; the caller owns it from now on."""
        if self._conversation.rest:
            raise ProtocolError("bytes came before the socket was handed over")
        return self._socket.detach()

    async def drain(self) -> None:
        """Wait for the other side to close, so that it receives the last messages."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(DRAIN_S):
                while await self._loop.sock_recv(self._socket, RECEIVE_BYTES):
                    continue

    def close(self) -> None:
        """Close the socket, even while a task waits for it."""
        self._socket.close()


async def _connected(address: Address, host: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_S):
        family, kind, protocol, _, place = (await _resolved(address))[0]
        peer_socket = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            peer_socket.setblocking(False)
            peer_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if host:
                peer_socket.bind((host, 0))
            await loop.sock_connect(peer_socket, place)
        except BaseException:
            peer_socket.close()
            raise
    return peer_socket


async def _resolved(address: Address) -> list[Any]:
    host, port = address
    try:
        return list(
            socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        )
    except socket.gaierror:
        # In a daemon thread: a hanging name server must not delay the agent's exit.
        lookup = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        return await in_thread(lookup)
