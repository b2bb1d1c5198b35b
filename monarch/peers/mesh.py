"""This node among the nodes of the job: membership, Catalog, sockets and reports.

Nodes join the first node of the list, the hub, which sends each of them the state of
all. If it is lost, the next in order becomes the hub, until an earlier one returns. A
node that reaches no hub works alone and keeps trying.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from monarch.peers.addresses import AddressBook, PeerSettings
from monarch.peers.catalog_broadcast import CatalogBroadcast
from monarch.peers.client import HubCallbacks, HubClient, request_socket
from monarch.peers.connection import Connection, Tampering
from monarch.peers.hub import Hub
from monarch.peers.membership import HUBS_MAX, FillLimits, Membership
from monarch.peers.protocol import (
    BODY_BYTES_MAX,
    NOTE_BYTES_MAX,
    Kind,
    MarkLog,
    Member,
    Message,
    Need,
    Phase,
    ProtocolError,
    ReaderTokens,
    Standing,
    View,
)
from monarch.peers.server import Server, listen
from monarch.peers.session import Session, Timing
from monarch.peers.timeouts import CLOSE_S, LOST_HUB_S, POLL_S, hub_pauses_s

log = logging.getLogger("monarch.peers")


@dataclass(frozen=True, slots=True)
class MeshCallbacks:
    """The functions that are called on arrivals, in the thread of the event loop.

    Args:
        view_changed: called with the new view.
        socket_received: a node has connected for data; the callee owns the descriptor.
        note_received: called with the number of a node and its note to all.
        marks_received: called with new marks of other nodes.
    """

    view_changed: Callable[[View], None]
    socket_received: Callable[[int, int], None]
    note_received: Callable[[int, dict[str, Any]], None]
    marks_received: Callable[[list[int]], None]


class Mesh:
    """All connections of this node's agent to those of other nodes.

    Attributes:
        last_error: the last error that prevented this node from joining the hub.
        catalog: sends the Catalog to other nodes, or fetches it.
    """

    def __init__(self, settings: PeerSettings, callbacks: MeshCallbacks) -> None:
        self.last_error = ""
        self._settings = settings
        self._callbacks = callbacks
        self._number = settings.identity.number
        self._timing = Timing.of(settings.nodes)
        self._membership = Membership(
            settings.nodes,
            settings.member(),
            callbacks.view_changed,
            _reader_tokens(settings, self._timing),
        )
        self._marks = MarkLog(callbacks.marks_received, self._wake)
        self._hub = Hub(self._membership, self._timing, self._receive_note, self._marks)
        self._addresses = AddressBook(settings, self._membership)
        self._tampering = Tampering()
        self.catalog = CatalogBroadcast(
            self._addresses, self._membership, self._timing, self._tampering
        )
        self._resources = contextlib.AsyncExitStack()
        self._session: Session | None = None
        self._reasons: dict[int, str] = {}
        self._report_acknowledged = False

    def __repr__(self) -> str:
        return f"<Mesh {self._settings.identity!r} {self._membership!r}>"

    @property
    def view(self) -> View:
        """The state of all nodes, as known here."""
        return self._membership.view

    @property
    def own(self) -> Member:
        """This node as seen by others."""
        return self._membership.own

    @property
    def is_hub(self) -> bool:
        """Return whether other nodes join this one, and send their reports to it."""
        return self._hub.active

    @property
    def fill(self) -> FillLimits:
        """The limits of background copies that nodes set for each other."""
        return self._membership.fill

    @property
    def hub(self) -> int | None:
        """Return the number of the hub; None if this node has not joined any."""
        if self._session is not None:
            return self._session.connection.peer
        return self._number if self._hub.active else None

    @property
    def tampered(self) -> int:
        """The number of connections that were tampered with on the network."""
        return self._tampering.count

    @property
    def node_reports(self) -> Mapping[int, bytes]:
        """Return the reports that have arrived here, by node."""
        return self._hub.node_reports

    async def open(self) -> None:
        """Listen, and start to join the other nodes.

        Raises:
            OSError: it cannot listen on that address, or publish it if it must.
        """
        settings = self._settings
        listener = listen(settings.host, settings.port)
        port = int(listener.getsockname()[1])
        self._membership.set_port(port)
        server = Server(
            listener,
            settings.identity,
            settings.nodes,
            {
                Kind.JOIN: self._hub.serve,
                Kind.FETCH: self.catalog.serve,
                Kind.SOCKET: self._hand_over,
            },
            self._tampering,
        )
        server.start()
        if self._number < HUBS_MAX:
            self._hub.activate()
        try:
            await self._addresses.publish(port)
        except OSError:
            # Otherwise a node that joined this one would wait for its Catalog.
            self._hub.deactivate(gone=False)
            await server.close()
            raise
        self._resources.push_async_callback(self._addresses.withdraw)
        self._resources.push_async_callback(server.close)
        joining = asyncio.create_task(self._stay_joined())
        self._resources.push_async_callback(_cancelled, joining)

    async def close(self) -> None:
        """Leave the job in order, within CLOSE_S, and close all connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._hub.close()
                await self._leave()
        await self._resources.aclose()

    # -- membership ---------------------------------------------------------------

    async def wait_until(self, test: Callable[[View], bool], timeout_s: float) -> bool:
        """Wait until the view passes a test; return whether it did in time."""
        return await self._membership.wait_until(test, timeout_s)

    def set_phase(self, phase: Phase) -> None:
        """Set the phase of this node, and send it to all others."""
        self._hub.send_changes(self._membership.set_phase(phase))
        if self._session is not None:
            self._session.wake()

    @property
    def readers_max(self) -> int | None:
        """The number of Transfers of this node that may read the Origin; None: all."""
        readers = self._membership.readers
        return readers.follow(time.monotonic()) if readers is not None else None

    def report_readers(self, need: Need, reading: int) -> None:
        """Report wanted and current readers of the Origin to the hub."""
        readers = self._membership.readers
        if readers is None:
            return
        if readers.report(need, reading) and self._session is not None:
            self._session.wake()
        self._hub.deal_tokens()

    async def _stay_joined(self) -> None:
        pauses_s = hub_pauses_s(self._settings.nodes)
        candidates = range(min(self._number, HUBS_MAX))
        while True:
            for candidate in candidates:
                if await self._join(candidate):
                    pauses_s = hub_pauses_s(self._settings.nodes)
                    break
            else:
                if self._number < HUBS_MAX:
                    self._hub.activate()
                await asyncio.sleep(next(pauses_s))

    async def _join(self, hub: int) -> bool:
        """Join a node and stay; return False if it did not accept this node."""
        callbacks = HubCallbacks(self._joined, self._receive_note, self._acknowledged)
        client = None
        try:
            lost = self._membership.member(hub).standing is Standing.LEFT
            async with asyncio.timeout(LOST_HUB_S if lost else None):
                connection = await self._addresses.connect(hub)
            parts = (self._membership, self._timing, callbacks, self._marks)
            client = HubClient(connection, *parts)
            with self._tampering.watch(hub):
                await client.run()
        except (OSError, ProtocolError) as error:
            self._note_failure(hub, str(error) or "no answer in time")
        finally:
            self._session = None
            self._membership.notify()
        return client is not None and client.joined

    def _note_failure(self, hub: int, reason: str) -> None:
        """Log why this node has not joined, once for all equal failures in a row."""
        self.last_error = f"node {hub}: {reason}"
        if self._reasons.get(hub) != reason:
            log.info("not joined hub=%d reason=%s", hub, reason)
        self._reasons[hub] = reason

    def _joined(self, session: Session) -> None:
        self._session = session
        self._membership.notify()
        self._hub.deactivate(gone=False)

    async def _leave(self) -> None:
        if self._session is not None:
            self._session.leave(gone=True)
            await self.wait_until(lambda _: self._session is None, CLOSE_S)

    # -- notes and marks ----------------------------------------------------------

    def send_note(self, content: Mapping[str, Any]) -> None:
        """Send a note to all nodes; a slow node may miss it.

        Raises:
            ValueError: it is too long.
        """
        note = json.dumps(content).encode()
        if len(note) > NOTE_BYTES_MAX:
            raise ValueError(f"a note of {len(note)} bytes")
        self._hub.forward_note(self._number, note)
        if self._session is not None:
            self._session.send_note(self._number, note)

    def _receive_note(self, number: int, note: bytes) -> None:
        try:
            content = json.loads(note)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict):
            self._callbacks.note_received(number, content)

    def open_marks(self, catalog: int) -> list[int]:
        """Exchange marks of this Catalog from now on; return its known marks."""
        return self._marks.open(catalog)

    def mark(self, numbers: Iterable[int]) -> None:
        """Send marks to all nodes, until each has acknowledged them."""
        self._marks.add_own(numbers)

    async def wait_for_acknowledgement(self, timeout_s: float) -> bool:
        """Wait until all directly connected nodes have all marks; False on time-out."""
        deadline_s = time.monotonic() + timeout_s
        while not self._marks_acknowledged():
            if time.monotonic() >= deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _marks_acknowledged(self) -> bool:
        session = self._session
        return self._hub.marks_acknowledged and (
            session is None or session.marks_acknowledged
        )

    def _wake(self) -> None:
        """Let all sessions send new marks now."""
        self._hub.wake()
        if self._session is not None:
            self._session.wake()

    # -- data and reports ---------------------------------------------------------

    async def data_socket(self, number: int) -> int:
        """Return a descriptor connected to the data plane of a node.

        Raises:
            OSError, ProtocolError: the node cannot be reached.
        """
        connection = await self._addresses.connect(number)
        with self._tampering.watch(number):
            return await request_socket(connection, self._timing.timeout_s)

    async def _hand_over(self, connection: Connection, _request: Message) -> None:
        await connection.send(Kind.SOCKET_READY)
        self._callbacks.socket_received(connection.peer, connection.detach())

    async def send_report(self, report: bytes, timeout_s: float) -> bool:
        """Send this node's part of the report to the hub; return whether it arrived.

        It returns early if this node becomes the hub of others.

        Raises:
            ValueError: it is too long.
        """
        if len(report) > BODY_BYTES_MAX:
            raise ValueError(f"a report of {len(report)} bytes")
        receiver: Session | None = None

        def is_done(_: View) -> bool:
            nonlocal receiver
            if self._session is not None and self._session is not receiver:
                receiver = self._session
                receiver.send(Kind.REPORT, report)
            return self._report_acknowledged or self._hub.has_sessions

        self._report_acknowledged = False
        await self.wait_until(is_done, timeout_s)
        return self._report_acknowledged

    def _acknowledged(self) -> None:
        self._report_acknowledged = True
        self._membership.notify()

    def end_job(self) -> None:
        """As the hub of a job that has ended, let no more agents join."""
        self._hub.end_job()

    async def wait_for_reports(self, timeout_s: float) -> bool:
        """Wait for the reports of all joined nodes; return whether all have arrived."""
        return await self.wait_until(self._all_reported, timeout_s)

    def _all_reported(self, view: View) -> bool:
        return all(
            member.number in self.node_reports or member.number == self._number
            for member in view.joined
        )


def _reader_tokens(settings: PeerSettings, timing: Timing) -> ReaderTokens | None:
    total, nodes = settings.readers_max, settings.nodes
    if not total:
        return None
    return ReaderTokens(total, nodes, settings.identity.number, timing.timeout_s)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
