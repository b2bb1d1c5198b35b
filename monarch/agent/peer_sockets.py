"""The data sockets to all peers: for requests to peers and from peers."""

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass
from typing import Final

from monarch import native
from monarch.agent.bootstrap import Bootstrap
from monarch.agent.job_spec import Integrity, JobSpec
from monarch.agent.setup import Setup
from monarch.agent.staging import Staging
from monarch.background import in_thread, log_failure
from monarch.metrics import AgentCounters
from monarch.peers.mesh import Mesh
from monarch.peers.protocol import Member, Phase, ProtocolError, Standing, View
from monarch.stager import Policy, Sources

# The delay before a node whose breaker has closed is connected again; new nodes are
# connected at once.
RECONNECT_S: Final = 0.1
CONNECTING_MAX: Final = 16
CONNECTIONS_MIN: Final = 64
# Programs start at the latest after a node was unreachable for so long.
CONNECTED_S: Final = 5.0
# How long a request may wait for a File that the owner is fetching, as a part of
# cold_open.timeout: a program that waits for the File waits longer.
PARK_PART: Final = 0.5
PARK_MARGIN_S: Final = 1.0

log = logging.getLogger("monarch.agent")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The server and the receiver of this node, and the sources of each File."""

    server: native.PeerServer
    receiver: native.PeerReceiver
    sources: Sources


class WaitingSockets:
    """Keeps the sockets of peers before and after this node exchanges Files.

    A peer may have the Catalog and connect before this node has it.
    """

    def __init__(self, bootstrap: Bootstrap, setup: Setup, mesh: Mesh) -> None:
        self._bootstrap = bootstrap
        self._setup = setup
        self._mesh = mesh
        self._sockets: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<WaitingSockets {len(self._sockets)}>"

    async def open(
        self, staging: Staging, counters: AgentCounters, spec: JobSpec
    ) -> "PeerSockets":
        """Compute the Placement, serve waiting peers, and begin to connect."""
        stager = staging.stager
        placement = await in_thread(
            spec.place, stager.replicas.sizes, stager.table.first_rows
        )
        policy = await in_thread(Policy.cluster, placement, self._bootstrap.number)
        # Before requests of peers: with its rows alone it would read their Files, too.
        await in_thread(stager.follow, policy)
        sources = Sources(policy, stager.table, counters)
        sealed = spec.integrity is Integrity.MAC
        opened = PeerSockets(
            self._bootstrap,
            self._setup,
            self._mesh,
            self._make_endpoints(staging.engine, sources, sealed=sealed),
        )
        log.info("sharing nodes=%d integrity=%s", len(spec.nodes), spec.integrity)
        sockets, self._sockets = self._sockets, {}
        for peer, fd in sockets.items():
            opened.adopt(peer, fd)
        # Nodes may have left since the Placement was made: no node waits for them.
        opened.update(self._mesh.view)
        opened.connect()
        return opened

    def _make_endpoints(
        self, engine: native.Engine, sources: Sources, *, sealed: bool
    ) -> Endpoints:
        config, count = self._setup.config, len(self._bootstrap.nodes)
        park_s = PARK_PART * config.cold_open.timeout
        # A node that reconnects still has its old connection for a moment.
        count_max = max(CONNECTIONS_MIN, 2 * count)
        served = native.ServerOptions(peers=count, connections=count_max, park_s=park_s)
        return Endpoints(
            native.PeerServer(engine, served),
            native.PeerReceiver(
                engine,
                native.ReceiverOptions(
                    peers=count,
                    timeout_s=park_s + PARK_MARGIN_S,
                    react_s=config.peers.timeout,
                    sealed=sealed,
                ),
            ),
            sources,
        )

    def close(self, _loop: asyncio.AbstractEventLoop) -> None:
        """Close the sockets."""
        for fd in self._sockets.values():
            os.close(fd)
        self._sockets.clear()

    async def wait_connected(self, timeout_s: float) -> None:
        """Return at once: this node sends no requests to peers."""

    def adopt(self, peer: int, fd: int) -> None:
        """Keep the newest socket of a peer."""
        if (older := self._sockets.pop(peer, None)) is not None:
            os.close(older)
        self._sockets[peer] = fd

    def update(self, view: View) -> None:
        """Do nothing: open() reads the view."""

    def report_late(self, peer: int) -> None:
        """Ignore a late peer: this node sends no requests."""

    def check_breakers(self) -> None:
        """Do nothing: this node has no breakers."""


class PeerSockets:
    """Keeps a data socket to every joined node whose breaker is closed."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        setup: Setup,
        mesh: Mesh,
        endpoints: Endpoints,
    ) -> None:
        self.endpoints = endpoints
        self._bootstrap = bootstrap
        self._setup = setup
        self._mesh = mesh
        self._standings: dict[int, Standing] = {}
        self._connecting: set[int] = set()
        self._changed = asyncio.Event()
        self._viewed = asyncio.Event()
        self._is_closed = False
        self._keeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<PeerSockets {self.endpoints.sources!r}>"

    def connect(self) -> None:
        """Begin to connect, and continue until close()."""
        self._keeping = asyncio.create_task(self._keep_connected())
        self._keeping.add_done_callback(log_failure)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close all data sockets; to be called before the engine is closed."""
        self._is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
        loop.remove_reader(self.endpoints.receiver.event_fd)
        self.endpoints.receiver.close()
        self.endpoints.server.close()

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait until every joined node accepts requests, within limits.

        Args:
            timeout_s: for the nodes to start; CONNECTED_S more to connect to them.
        """
        await self._mesh.wait_until(lambda view: view.started, timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECTED_S):
                while not self._is_connected():
                    self._changed.clear()
                    await self._changed.wait()

    def _is_connected(self) -> bool:
        own, sources = self._bootstrap.number, self.endpoints.sources
        return all(
            member.number == own or sources.usable(member.number)
            for member in self._mesh.view.joined
        )

    # -- connecting -------------------------------------------------------------

    async def _keep_connected(self) -> None:
        while True:
            self.check_breakers()
            for member in self._mesh.view.joined:
                if len(self._connecting) >= CONNECTING_MAX:
                    break
                if self._may_connect(member):
                    self._connecting.add(member.number)
                    task = asyncio.create_task(self._connect(member.number))
                    task.add_done_callback(log_failure)
            self._viewed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECONNECT_S):
                    await self._viewed.wait()

    def _may_connect(self, member: Member) -> bool:
        number = member.number
        if number == self._bootstrap.number or number in self._connecting:
            return False
        started = member.phase is not Phase.STARTING
        return started and self.endpoints.sources.due(number)

    async def _connect(self, peer: int) -> None:
        """Open a data socket within `peers.timeout`, as a probe of the peer."""
        endpoints = self.endpoints
        try:
            async with asyncio.timeout(self._setup.config.peers.timeout):
                fd = await self._mesh.data_socket(peer)
        except (OSError, ProtocolError) as error:
            log.info("no data socket peer=%d reason=%s", peer, error or "timeout")
            endpoints.sources.failed(peer)
            return
        finally:
            self._connecting.discard(peer)
        if self._is_closed:
            os.close(fd)
            return
        try:
            endpoints.receiver.connect(peer, fd)
        except OSError as error:
            os.close(fd)
            log.warning("data socket not usable peer=%d error=%s", peer, error)
            endpoints.sources.failed(peer)
            return
        endpoints.sources.connected(peer)
        self._changed.set()

    def adopt(self, peer: int, fd: int) -> None:
        """Serve a peer that has connected."""
        try:
            self.endpoints.server.adopt(peer, fd)
        except OSError as error:
            os.close(fd)
            log.warning("data socket not served peer=%d error=%s", peer, error)

    # -- state of peers ---------------------------------------------------------

    def update(self, view: View) -> None:
        """Disconnect nodes that have left, and allow requests to new nodes."""
        for member in view.members:
            before = self._standings.get(member.number, Standing.UNSEEN)
            self._standings[member.number] = member.standing
            if member.standing is before:
                continue
            if member.standing is Standing.LEFT:
                self._disconnect(member.number)
            elif member.standing is Standing.JOINED:
                self.endpoints.sources.appeared(member.number)
        self._changed.set()
        self._viewed.set()

    def _disconnect(self, peer: int) -> None:
        endpoints = self.endpoints
        log.warning("node left node=%s", self._bootstrap.nodes[peer])
        if self._mesh.own.phase is Phase.FINISHED:
            endpoints.sources.left(peer)
        else:
            endpoints.sources.gone(peer)
        endpoints.receiver.disconnect(peer)
        endpoints.server.drop(peer)

    def report_late(self, peer: int) -> None:
        """Count one late answer of a peer that another node has reported."""
        known = 0 <= peer < len(self._bootstrap.nodes)
        if known and peer != self._bootstrap.number:
            self.endpoints.sources.complained(peer)

    def check_breakers(self) -> None:
        """Disconnect peers whose breaker has opened, and report late ones to others."""
        for peer, reported in self.endpoints.sources.openings():
            log.warning("breaker opened peer=%s", self._bootstrap.nodes[peer])
            self.endpoints.receiver.disconnect(peer)
            # All nodes detect by themselves that a node has left.
            if not reported and self._standings.get(peer) is not Standing.LEFT:
                self._mesh.send_note({"late": peer})
