"""The listening side: lets in who knows the secret, and asks what they want."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from monarch.peers.catalog_broadcast import Offer, Shipment
from monarch.peers.connection import Link, Tampering
from monarch.peers.protocol import Identity, Kind, Message, ProtocolError
from monarch.peers.session import Pace

BACKLOG: Final = 1024
# Connections that have proved nothing yet; the oldest gives way to the newest.
STRANGERS_MAX: Final = 256
LINKS_PER_NODE_MAX: Final = 8
WISH_S: Final = 3.0
ACCEPT_PAUSE_S: Final = 0.1
PORTS_TRIED: Final = 8

log = logging.getLogger("monarch.peers")

REFUSALS_S: Final = 1.0
"""Anybody can connect, over and over: one line in the log for all within this time."""

Serve = Callable[[Link, Message], Awaitable[None]]


class Refusals:
    """Counts connections that were refused, and tells of many in one line."""

    def __init__(self) -> None:
        self.count = 0
        self._told = 0
        self._why = ""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Refusals {self.count}>"

    def note(self, why: str) -> None:
        """Count one; its line comes now, or with those of the next second."""
        self.count += 1
        self._why = why
        if self._timer is None:
            self._tell()

    def close(self) -> None:
        """Tell of those that no line has told of yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.count > self._told:
            self._log()

    def _tell(self) -> None:
        self._timer = None
        if self.count == self._told:
            return
        self._log()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REFUSALS_S, self._tell)

    def _log(self) -> None:
        new, self._told = self.count - self._told, self.count
        log.info("connections refused count=%d last=%s", new, self._why)


class Server:
    """Accepts connections of the job's nodes; each wish is served by a function.

    Args:
        serve: what is done for each first message; it owns the link from then on.
    """

    def __init__(
        self,
        identity: Identity,
        nodes: int,
        serve: Mapping[Kind, Serve],
        tampering: Tampering,
    ) -> None:
        self._refusals = Refusals()
        self._tampering = tampering
        self._identity = identity
        self._nodes = nodes
        self._serve = serve
        self._socket: socket.socket | None = None
        self._paused: asyncio.TimerHandle | None = None
        self._strangers: dict[asyncio.Task[None], socket.socket] = {}
        self._serving: dict[asyncio.Task[None], int] = {}

    def __repr__(self) -> str:
        return f"<Server {self._identity!r} serving {len(self._serving)}>"

    @property
    def refused(self) -> int:
        """How many connections were refused."""
        return self._refusals.count

    def open(self, host: str, port: int) -> int:
        """Listen on an address, "" for all; return the port.

        A port that is taken gives way to the next ones, where clients look too.

        Raises:
            OSError: none of them can be had.
        """
        self._socket = _listening(host, port)
        self._listen()
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Listen no more and end what is being served."""
        if self._paused is not None:
            self._paused.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        tasks = [*self._strangers, *self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._refusals.close()

    def _listen(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Take one connection; sock_accept() loses it where it is cancelled late."""
        assert self._socket is not None
        try:
            stranger, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("accept failed error=%s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            self._paused = loop.call_later(ACCEPT_PAUSE_S, self._listen)
            return
        if len(self._strangers) >= STRANGERS_MAX:
            next(iter(self._strangers)).cancel()
        task = asyncio.create_task(self._meet(stranger))
        self._strangers[task] = stranger
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        stranger = self._strangers.pop(task, None)
        if stranger is not None:  # it may have ended before its first step
            stranger.close()
        self._serving.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("serving a peer failed", exc_info=task.exception())

    async def _meet(self, stranger: socket.socket) -> None:
        try:
            stranger.setblocking(False)
            stranger.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = await Link.accept(stranger, self._identity)
        except (OSError, ProtocolError) as error:
            self._refusals.note(str(error) or "late")
            return
        task = asyncio.current_task()
        assert task is not None
        del self._strangers[task]
        self._serving[task] = link.peer
        try:
            with self._tampering.watch(link.peer):
                await self._grant(link)
        except (OSError, ProtocolError) as error:
            log.info("connection ended peer=%d why=%s", link.peer, error or "late")
        finally:
            link.close()

    async def _grant(self, link: Link) -> None:
        links = sum(1 for peer in self._serving.values() if peer == link.peer)
        if link.peer >= self._nodes or links > LINKS_PER_NODE_MAX:
            raise ProtocolError("not one of the job's nodes, or too often")
        async with asyncio.timeout(WISH_S):
            wish = await link.receive()
        await self._serve[wish.kind](link, wish)


async def serve_shipment(
    shipment: Shipment, link: Link, wish: Message, pace: Pace
) -> None:
    """Send the chunks from the first that is wanted, as they come here."""
    first = int(wish.fields["first"])
    offer = await _patiently(shipment, 0, link, pace)
    await link.send(Kind.OFFER, offer.fields())
    for number in range(first, offer.chunks):
        await _patiently(shipment, number + 1, link, pace)
        chunk = shipment.chunk(number)
        await link.send(Kind.CHUNK, {"packed": int(chunk.packed)}, chunk.body)
    # Who has all of it closes; a connection must not go with bytes still on their way.
    await link.drain()


async def _patiently(shipment: Shipment, count: int, link: Link, pace: Pace) -> Offer:
    """Wait for chunks, telling the other side that we live."""
    while True:
        try:
            async with asyncio.timeout(pace.beat_s):
                return await shipment.wait_for(count)
        except TimeoutError:
            await link.send(Kind.LATER)


def _listening(host: str, port: int) -> socket.socket:
    tries = range(port, port + PORTS_TRIED) if port else (0,)
    for number in tries:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, number))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            if number == tries[-1]:
                raise
            continue
        return listener
    raise AssertionError("unreachable")
