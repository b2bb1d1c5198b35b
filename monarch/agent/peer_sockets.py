"""The data sockets to all peers: for requests to them, and for theirs."""

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
from monarch.background import in_thread, log_failure
from monarch.metrics import AgentCounters
from monarch.peers.mesh import Mesh
from monarch.peers.protocol import Member, Phase, ProtocolError, Standing, View
from monarch.placement import Placement
from monarch.stager import Policy, Replicas, Sources, footprints

RECONNECT_S: Final = 0.1
CONNECTING_MAX: Final = 16
CONNECTIONS_MIN: Final = 64
# Programs start at the latest when a node could not be reached for so long.
CONNECTED_S: Final = 5.0
# How long a request may wait for a File that the owner is fetching, as a part of
# cold_open.timeout: a program that waits for the File waits longer.
PARK_PART: Final = 0.5
PARK_MARGIN_S: Final = 1.0

log = logging.getLogger("monarch.agent")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The server and the receiver of this node, and where it finds each File."""

    server: native.PeerServer
    receiver: native.PeerReceiver
    sources: Sources


class PeerSockets:
    """Keeps a data socket to every joined node whose breaker is closed."""

    def __init__(self, bootstrap: Bootstrap, setup: Setup, mesh: Mesh) -> None:
        self.endpoints: Endpoints | None = None
        self._bootstrap = bootstrap
        self._setup = setup
        self._mesh = mesh
        self._early: dict[int, int] = {}
        self._standings: dict[int, Standing] = {}
        self._connecting: set[int] = set()
        self._changed = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<PeerSockets {'open' if self.endpoints else 'closed'}>"

    async def open(
        self,
        engine: native.Engine,
        replicas: Replicas,
        counters: AgentCounters,
        spec: JobSpec,
    ) -> Endpoints:
        """Compute the Placement and begin to connect."""
        needs = footprints(replicas.sizes)
        placement = await in_thread(
            Placement, spec.nodes, needs, spec.digest, spec.mode
        )
        policy = await in_thread(Policy.cluster, placement, self._bootstrap.number)
        sources = Sources(policy, counters)
        sealed = spec.integrity is Integrity.MAC
        ends = self.endpoints = self._make_endpoints(engine, sources, sealed=sealed)
        log.info("sharing nodes=%d integrity=%s", len(spec.nodes), spec.integrity)
        early, self._early = self._early, {}
        for peer, fd in early.items():
            self.adopt(peer, fd)
        self._keeping = asyncio.create_task(self._keep_connected())
        self._keeping.add_done_callback(log_failure)
        return ends

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

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close all data sockets; due before the engine is closed."""
        if self._keeping is not None:
            self._keeping.cancel()
        endpoints, self.endpoints = self.endpoints, None
        if endpoints is not None:
            loop.remove_reader(endpoints.receiver.event_fd)
            endpoints.receiver.close()
            endpoints.server.close()
        for fd in self._early.values():
            os.close(fd)
        self._early.clear()

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait until every joined node can be asked for Files, within limits.

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
        own, endpoints = self._bootstrap.number, self.endpoints
        return endpoints is None or all(
            member.number == own or endpoints.sources.usable(member.number)
            for member in self._mesh.view.joined
        )

    # -- connecting -------------------------------------------------------------

    async def _keep_connected(self) -> None:
        while self.endpoints is not None:
            endpoints = self.endpoints
            self.check_breakers()
            for member in self._mesh.view.joined:
                if len(self._connecting) >= CONNECTING_MAX:
                    break
                if self._may_connect(endpoints.sources, member):
                    self._connecting.add(member.number)
                    task = asyncio.create_task(self._connect(endpoints, member.number))
                    task.add_done_callback(log_failure)
            await asyncio.sleep(RECONNECT_S)

    def _may_connect(self, sources: Sources, member: Member) -> bool:
        number = member.number
        if number == self._bootstrap.number or number in self._connecting:
            return False
        return member.phase is not Phase.STARTING and sources.due(number)

    async def _connect(self, endpoints: Endpoints, peer: int) -> None:
        """Open a data socket within the time of an answer, as a probe of the peer."""
        try:
            async with asyncio.timeout(self._setup.config.peers.timeout):
                fd = await self._mesh.data_socket(peer)
        except (OSError, ProtocolError) as error:
            log.info("no data socket peer=%d reason=%s", peer, error or "timeout")
            endpoints.sources.failed(peer)
            return
        finally:
            self._connecting.discard(peer)
        if self.endpoints is not endpoints:
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
        """Serve a peer that has connected; it may have the Catalog before this node."""
        if self.endpoints is None:
            if (older := self._early.pop(peer, None)) is not None:
                os.close(older)
            self._early[peer] = fd
            return
        try:
            self.endpoints.server.adopt(peer, fd)
        except OSError as error:
            os.close(fd)
            log.warning("data socket not served peer=%d error=%s", peer, error)

    # -- state of peers ---------------------------------------------------------

    def update(self, view: View) -> None:
        """Disconnect nodes that have left, and let those that have joined be asked."""
        for member in view.members:
            before = self._standings.get(member.number, Standing.UNSEEN)
            self._standings[member.number] = member.standing
            if self.endpoints is None or member.standing is before:
                continue
            if member.standing is Standing.LEFT:
                self._disconnect(self.endpoints, member.number)
            elif member.standing is Standing.JOINED:
                self.endpoints.sources.appeared(member.number)
        self._changed.set()

    def _disconnect(self, endpoints: Endpoints, peer: int) -> None:
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
        if self.endpoints is not None and known and peer != self._bootstrap.number:
            self.endpoints.sources.complained(peer)

    def check_breakers(self) -> None:
        """Disconnect peers whose breaker has opened, and report late ones to others."""
        if self.endpoints is None:
            return
        for peer, reported in self.endpoints.sources.openings():
            log.warning("breaker opened peer=%s", self._bootstrap.nodes[peer])
            self.endpoints.receiver.disconnect(peer)
            # All nodes see for themselves that one has left.
            if not reported and self._standings.get(peer) is not Standing.LEFT:
                self._mesh.send_note({"late": peer})
