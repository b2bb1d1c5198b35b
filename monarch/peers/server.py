"""The listening side: authenticates connections and serves their first message."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from monarch.peers.connection import PORTS_TRIED, Connection, Tampering
from monarch.peers.protocol import Identity, Kind, Message, ProtocolError
from monarch.peers.timeouts import ACCEPT_PAUSE_S, REFUSALS_S, REQUEST_S

BACKLOG: Final = 1024
# Unauthenticated connections; beyond it the oldest is closed for the newest.
UNAUTHENTICATED_MAX: Final = 256
CONNECTIONS_PER_NODE_MAX: Final = 8

log = logging.getLogger("monarch.peers")

Serve = Callable[[Connection, Message], Awaitable[None]]


class Refusals:
    """Counts refused connections, and logs many of them in one line."""

    def __init__(self) -> None:
        self.count = 0
        self._logged = 0
        self._reason = ""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Refusals {self.count}>"

    def add(self, reason: str) -> None:
        """Count one; it is logged now, or with others after a second."""
        self.count += 1
        self._reason = reason
        if self._timer is None:
            self._log_new()

    def close(self) -> None:
        """Log the refusals that were not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.count > self._logged:
            self._log()

    def _log_new(self) -> None:
        self._timer = None
        if self.count == self._logged:
            return
        self._log()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REFUSALS_S, self._log_new)

    def _log(self) -> None:
        new, self._logged = self.count - self._logged, self.count
        log.info("connections refused count=%d last=%s", new, self._reason)


class Server:
    """Accepts connections of the job's nodes; a function serves each kind of request.

    Args:
        listener: from listen(); the server owns it.
        serve: the function for each kind of first message; it then owns the connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        identity: Identity,
        nodes: int,
        serve: Mapping[Kind, Serve],
        tampering: Tampering,
    ) -> None:
        self._listener = listener
        self._identity = identity
        self._nodes = nodes
        self._serve = serve
        self._tampering = tampering
        self._refusals = Refusals()
        self._paused: asyncio.TimerHandle | None = None
        self._unauthenticated: dict[asyncio.Task[None], socket.socket] = {}
        self._serving: dict[asyncio.Task[None], int] = {}

    def __repr__(self) -> str:
        return f"<Server {self._identity!r} serving {len(self._serving)}>"

    @property
    def refused(self) -> int:
        """The number of refused connections."""
        return self._refusals.count

    def start(self) -> None:
        """Accept connections."""
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def close(self) -> None:
        """Stop listening and end all connections in progress."""
        if self._paused is not None:
            self._paused.cancel()
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        tasks = [*self._unauthenticated, *self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._refusals.close()

    def _accept(self) -> None:
        """Accept one connection; sock_accept() loses one if it is cancelled late."""
        try:
            peer_socket, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("accept failed error=%s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            self._paused = loop.call_later(ACCEPT_PAUSE_S, self.start)
            return
        if len(self._unauthenticated) >= UNAUTHENTICATED_MAX:
            next(iter(self._unauthenticated)).cancel()
        task = asyncio.create_task(self._serve_socket(peer_socket))
        self._unauthenticated[task] = peer_socket
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        peer_socket = self._unauthenticated.pop(task, None)
        if peer_socket is not None:  # the task may have ended before its first step
            peer_socket.close()
        self._serving.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("serving a peer failed", exc_info=task.exception())

    async def _serve_socket(self, peer_socket: socket.socket) -> None:
        try:
            peer_socket.setblocking(False)
            peer_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = await Connection.accept(peer_socket, self._identity)
        except (OSError, ProtocolError) as error:
            self._refusals.add(str(error) or "timeout")
            return
        task = asyncio.current_task()
        assert task is not None
        del self._unauthenticated[task]
        peer = self._serving[task] = connection.peer
        try:
            with self._tampering.watch(peer):
                await self._serve_request(connection)
        except (OSError, ProtocolError) as error:
            reason = str(error) or "timeout"
            log.info("connection ended peer=%d reason=%s", peer, reason)
        finally:
            connection.close()

    async def _serve_request(self, connection: Connection) -> None:
        count = sum(1 for peer in self._serving.values() if peer == connection.peer)
        if connection.peer >= self._nodes:
            raise ProtocolError("the number of the node is not one of the job")
        if count > CONNECTIONS_PER_NODE_MAX:
            raise ProtocolError("the node has too many connections")
        async with asyncio.timeout(REQUEST_S):
            request = await connection.receive()
        await self._serve[request.kind](connection, request)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address, "" for all, and a port, 0 for any.

    If the port is in use, the next ones are tried, PORTS_TRIED in all.

    Raises:
        OSError: it can listen on none of them.
    """
    numbers = range(port, port + PORTS_TRIED) if port else (0,)
    for number in numbers:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, number))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            if number == numbers[-1]:
                raise
            continue
        return listener
    raise AssertionError("unreachable")
