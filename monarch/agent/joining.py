"""How a node joins the cluster: from the start, later, or not at all."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from monarch import native
from monarch.agent.cluster import Cluster, Found
from monarch.agent.indexing import index_datasets
from monarch.agent.integrity import (
    Integrity,
    Sealing,
    can_seal,
    inability,
    objection,
)
from monarch.agent.job_spec import Terms
from monarch.agent.launcher_pipe import Notifier
from monarch.agent.namespace import Namespace
from monarch.agent.setup import Setup
from monarch.agent.stats import ClusterStats, PeerTraffic
from monarch.background import in_thread, log_failure
from monarch.errors import MonarchError
from monarch.metrics import AgentCounters
from monarch.origins.index import Indexed
from monarch.peers.protocol import Phase
from monarch.stager import Stager


class Joining:
    """Finds the Catalog, and has the Stager join as soon as the terms are known.

    Args:
        turn: to be called when Files have arrived.

    Attributes:
        cluster: None for a node that works alone for good.
    """

    def __init__(
        self,
        setup: Setup,
        notifier: Notifier,
        cluster: Cluster | None,
        turn: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self._setup = setup
        self._notifier = notifier
        self._turn = turn
        self._late: asyncio.Task[None] | None = None
        # What is reported of the nodes stays known after this one has left them.
        self._reported: Cluster | None = None
        self._links: PeerTraffic | None = None

    def __repr__(self) -> str:
        return f"<Joining {self.cluster!r}>"

    async def open(self) -> None:
        """Begin to connect to the other nodes, if there are any."""
        cluster = self.cluster
        if cluster is None:
            return
        if self._setup.config.peers.integrity == "mac" and not can_seal():
            self.cluster = None
            self._warn_alone(f"peers.integrity is mac, but {inability()}")
            return
        try:
            await cluster.open()
        except OSError as error:
            self.cluster = None
            self._warn_alone(f"the others cannot reach it: {error.strerror}")
            return
        self._reported = cluster

    def stats(self) -> ClusterStats | None:
        """Return how the nodes of the job stand; None for a node without peers."""
        if self._reported is None:
            return None
        mesh = self._reported.mesh
        membership = self._reported.meeting.membership
        return ClusterStats(membership, mesh.view, mesh.altered, self._links)

    async def index(self) -> tuple[list[Indexed], Terms | None]:
        """Take the Catalog of the first node, or index the datasets."""
        if self.cluster is not None and self.cluster.meeting.number:
            timeout_s = self._setup.config.peers.join_timeout
            if found := await self._receive(self.cluster, timeout_s):
                return found
            self._warn_late()
        indexed = await in_thread(index_datasets, self._setup, self._notifier)
        if self.cluster is None or self.cluster.meeting.number:
            return indexed, None
        found = await self.cluster.offer(indexed)
        return found if await self._agree(self.cluster, found[1]) else (indexed, None)

    async def _receive(self, cluster: Cluster, timeout_s: float) -> Found | None:
        """Return what the first node gives; None: it is late, or cannot be used."""
        try:
            found = await cluster.receive(timeout_s)
        except MonarchError as error:
            self._warn_alone(f"the catalog of {cluster.meeting.nodes[0]}: {error}")
            await self._leave()
            return None
        return found if found and await self._agree(cluster, found[1]) else None

    async def _agree(self, cluster: Cluster, terms: Terms) -> bool:
        """Return whether this node accepts the terms; else leave, and warn."""
        wish = self._setup.config.peers.integrity
        first = cluster.meeting.nodes[0]
        why = objection(terms.integrity, first, wish, able=can_seal())
        if why:
            self._warn_alone(why)
            await self._leave()
        return not why

    def sealing(self, terms: Terms | None) -> Sealing | None:
        """Return how Extents are sealed; None: they are not.

        A node that does not know the terms yet seals what it stages if it can: else it
        could not give that to peers once it has joined.
        """
        wish = self._setup.config.peers.integrity
        if self.cluster is None or wish == "checksum" or not can_seal():
            return None
        if terms is not None and terms.integrity is not Integrity.MAC:
            return None
        return Sealing(self.cluster.seal_key(), agreed=terms is not None)

    def _warn_alone(self, why: str) -> None:
        self._notifier.warn(f"this node works alone: {why}")

    def _warn_late(self) -> None:
        if self.cluster is not None:
            first, why = self.cluster.meeting.nodes[0], self.cluster.mesh.why
            reason = f" ({why})" if why else ""
            self._notifier.warn(
                f"{first} has not joined{reason}; this node works alone until it has"
            )

    async def _leave(self) -> None:
        cluster, self.cluster = self.cluster, None
        if cluster is not None:
            cluster.links.close(asyncio.get_running_loop())
            await cluster.close()

    def watch(self, namespace: Namespace, counters: AgentCounters) -> None:
        """Exchange the marks of written Files with the other nodes from now on."""
        if self.cluster is not None:
            self.cluster.written.watch(namespace, counters)

    async def join(
        self,
        engine: native.Engine,
        stager: Stager,
        namespace: Namespace,
        counters: AgentCounters,
        terms: Terms | None,
    ) -> None:
        """Join now or, without terms, as soon as the first node gives them."""
        if self.cluster is None:
            return
        staging = _Staging(engine, stager, namespace, counters)
        if terms is None:
            late = self._join_late(self.cluster, staging)
            self._late = asyncio.create_task(late)
            self._late.add_done_callback(log_failure)
            return
        await self._join(self.cluster, staging, terms)

    async def wait_until_started(self) -> None:
        """Wait for the other nodes: programs that begin before would read twice."""
        if self.cluster is not None and self.cluster.links.ends is not None:
            await self.cluster.wait_until_started()

    async def _join(self, cluster: Cluster, staging: "_Staging", terms: Terms) -> None:
        replicas, counters = staging.stager.replicas, staging.counters
        ends = await cluster.links.open(staging.engine, replicas, counters, terms)
        staging.stager.join(ends.sources, ends.receiver)
        self._links = PeerTraffic(ends.server, ends.receiver, ends.sources)
        loop = asyncio.get_running_loop()
        loop.add_reader(ends.receiver.event_fd, self._turn)
        cluster.mesh.set_phase(Phase.RUNNING)

    async def _join_late(self, cluster: Cluster, staging: "_Staging") -> None:
        found = await self._receive(cluster, math.inf)
        if found is None:
            return
        terms = found[1]
        if terms.digest != staging.namespace.digest:
            first = cluster.meeting.nodes[0]
            self._warn_alone(f"{first} has indexed other files than this node")
            await self._leave()
            return
        await self._join(cluster, staging, terms)

    def stop(self) -> None:
        """Exchange no Files with other nodes any more."""
        if self._late is not None:
            self._late.cancel()
        if self.cluster is not None:
            self.cluster.links.close(asyncio.get_running_loop())


@dataclass(frozen=True, slots=True)
class _Staging:
    """What stages on this node, which joins later."""

    engine: native.Engine
    stager: Stager
    namespace: Namespace
    counters: AgentCounters
