"""The connections by which Files are asked of peers, and given to them."""

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass
from typing import Final

from monarch import native
from monarch.agent.bootstrap import Meeting
from monarch.agent.integrity import Integrity
from monarch.agent.job_spec import Terms
from monarch.agent.setup import Setup
from monarch.background import in_thread, log_failure
from monarch.metrics import AgentCounters
from monarch.peers.mesh import Mesh
from monarch.peers.protocol import Member, Phase, ProtocolError, Standing, View
from monarch.placement import Placement
from monarch.stager import Policy, Replicas, Sources, footprints

LOOK_S: Final = 0.1
CONNECTING_MAX: Final = 16
CONNECTIONS_MIN: Final = 64
# Programs start although a node cannot be reached for so long.
CONNECTED_S: Final = 5.0
# What an owner may take to fetch a File; a program that waits for it waits longer.
PARK_PART: Final = 0.5
PARK_MARGIN_S: Final = 1.0

log = logging.getLogger("monarch.agent")


@dataclass(frozen=True, slots=True)
class Ends:
    """Our two ends of the data plane: by which we answer, and by which we ask."""

    server: native.PeerServer
    receiver: native.PeerReceiver
    sources: Sources


class Links:
    """Keeps a data link to every node that is there and not to be left alone."""

    def __init__(self, meeting: Meeting, setup: Setup, mesh: Mesh) -> None:
        self.ends: Ends | None = None
        self._meeting = meeting
        self._setup = setup
        self._mesh = mesh
        self._early: dict[int, int] = {}
        self._standings: dict[int, Standing] = {}
        self._connecting: set[int] = set()
        self._stirred = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Links {'open' if self.ends else 'closed'}>"

    async def open(
        self,
        engine: native.Engine,
        replicas: Replicas,
        counters: AgentCounters,
        terms: Terms,
    ) -> Ends:
        """Compute the Placement and begin to connect."""
        needs = footprints(replicas.sizes)
        placement = await in_thread(
            Placement, terms.nodes, needs, terms.digest, terms.mode
        )
        policy = await in_thread(Policy.cluster, placement, self._meeting.number)
        sources = Sources(policy, counters)
        sealed = terms.integrity is Integrity.MAC
        ends = self.ends = self._make_ends(engine, sources, sealed=sealed)
        log.info("sharing nodes=%d integrity=%s", len(terms.nodes), terms.integrity)
        early, self._early = self._early, {}
        for peer, fd in early.items():
            self.adopt(peer, fd)
        self._keeping = asyncio.create_task(self._keep_connected())
        self._keeping.add_done_callback(log_failure)
        return ends

    def _make_ends(
        self, engine: native.Engine, sources: Sources, *, sealed: bool
    ) -> Ends:
        config, count = self._setup.config, len(self._meeting.nodes)
        park_s = PARK_PART * config.cold_open.timeout
        # A node that comes again still has its old connection for a moment.
        most = max(CONNECTIONS_MIN, 2 * count)
        served = native.ServerOptions(peers=count, connections=most, park_s=park_s)
        return Ends(
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
        """Ask and answer no more; due before the engine is closed."""
        if self._keeping is not None:
            self._keeping.cancel()
        ends, self.ends = self.ends, None
        if ends is not None:
            loop.remove_reader(ends.receiver.event_fd)
            ends.receiver.close()
            ends.server.close()
        for fd in self._early.values():
            os.close(fd)
        self._early.clear()

    async def settle(self, patience_s: float) -> None:
        """Wait until every node that is there can be asked, but not for long."""
        await self._mesh.until(lambda view: view.started, patience_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECTED_S):
                while not self._is_settled():
                    self._stirred.clear()
                    await self._stirred.wait()

    def _is_settled(self) -> bool:
        own, ends = self._meeting.number, self.ends
        return ends is None or all(
            member.number == own or ends.sources.usable(member.number)
            for member in self._mesh.view.joined
        )

    # -- connecting -------------------------------------------------------------

    async def _keep_connected(self) -> None:
        while self.ends is not None:
            self.attend()
            for member in self._mesh.view.joined:
                if len(self._connecting) >= CONNECTING_MAX:
                    break
                if self._may_connect(self.ends.sources, member):
                    self._connecting.add(member.number)
                    task = asyncio.create_task(self._connect(self.ends, member.number))
                    task.add_done_callback(log_failure)
            await asyncio.sleep(LOOK_S)

    def _may_connect(self, sources: Sources, member: Member) -> bool:
        number = member.number
        if number == self._meeting.number or number in self._connecting:
            return False
        return member.phase is not Phase.STARTING and sources.due(number)

    async def _connect(self, ends: Ends, peer: int) -> None:
        """Connect for data; that it takes no longer than an answer may is the trial."""
        try:
            async with asyncio.timeout(self._setup.config.peers.timeout):
                fd = await self._mesh.data_socket(peer)
        except (OSError, ProtocolError) as error:
            log.info("no data link peer=%d why=%s", peer, error or "late")
            ends.sources.failed(peer)
            return
        finally:
            self._connecting.discard(peer)
        if self.ends is not ends:
            os.close(fd)
            return
        try:
            ends.receiver.connect(peer, fd)
        except OSError as error:
            os.close(fd)
            log.warning("data link refused peer=%d error=%s", peer, error)
            ends.sources.failed(peer)
            return
        ends.sources.connected(peer)
        self._stirred.set()

    def adopt(self, peer: int, fd: int) -> None:
        """Answer a peer that has connected; it may have its Catalog before us."""
        if self.ends is None:
            if (older := self._early.pop(peer, None)) is not None:
                os.close(older)
            self._early[peer] = fd
            return
        try:
            self.ends.server.adopt(peer, fd)
        except OSError as error:
            os.close(fd)
            log.warning("data link not taken peer=%d error=%s", peer, error)

    # -- what becomes of peers --------------------------------------------------

    def look(self, view: View) -> None:
        """Ask and answer those no more that have left; others are worth a trial."""
        for member in view.members:
            before = self._standings.get(member.number, Standing.UNSEEN)
            self._standings[member.number] = member.standing
            if self.ends is None or member.standing is before:
                continue
            if member.standing is Standing.LEFT:
                self._leave(self.ends, member.number)
            elif member.standing is Standing.JOINED:
                self.ends.sources.appeared(member.number)
        self._stirred.set()

    def _leave(self, ends: Ends, peer: int) -> None:
        log.warning("node left node=%s", self._meeting.nodes[peer])
        if self._mesh.own.phase is Phase.FINISHED:
            ends.sources.left(peer)
        else:
            ends.sources.gone(peer)
        ends.receiver.disconnect(peer)
        ends.server.drop(peer)

    def complain(self, about: int) -> None:
        """Another node has found a peer late: it counts as if we had once."""
        known = 0 <= about < len(self._meeting.nodes)
        if self.ends is not None and known and about != self._meeting.number:
            self.ends.sources.complained(about)

    def attend(self) -> None:
        """Ask those no more who erred or were late too often, and warn the others."""
        if self.ends is None:
            return
        for peer, known in self.ends.sources.openings():
            log.warning("breaker opened peer=%s", self._meeting.nodes[peer])
            self.ends.receiver.disconnect(peer)
            # That a node has left everybody sees without being told.
            if not known and self._standings.get(peer) is not Standing.LEFT:
                self._mesh.note({"late": peer})
