"""How a node joins the cluster: from the start, later, or not at all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from monarch.agent.control import Notifier
from monarch.agent.job_spec import (
    Integrity,
    JobSpec,
    Sealing,
    can_seal,
    integrity_conflict,
    no_seals_reason,
)
from monarch.agent.namespace import Indexing, Namespace, index_datasets
from monarch.agent.setup import Setup
from monarch.agent.staging import Staging
from monarch.agent.stats import ClusterStats, PeerTraffic
from monarch.background import in_thread, log_failure
from monarch.errors import MonarchError
from monarch.metrics import AgentCounters
from monarch.origins.dataset import Indexed
from monarch.peers.protocol import FILL_FREE, Phase

if TYPE_CHECKING:
    from monarch.agent.cluster import Cluster, Found


class Joining:
    """Finds the Catalog, and lets the Stager join once the job spec is available.

    Args:
        turn: to be called when Files have arrived.

    Attributes:
        cluster: None for a node that works alone permanently.
        indexings: the datasets that this node has begun to index.
    """

    def __init__(
        self,
        setup: Setup,
        notifier: Notifier,
        cluster: Cluster | None,
        turn: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.indexings: list[Indexing] = []
        self._setup = setup
        self._notifier = notifier
        self._turn = turn
        self._late: asyncio.Task[None] | None = None
        # Kept for the report after this node has left the others.
        self._reported: Cluster | None = None
        self._links: PeerTraffic | None = None

    def __repr__(self) -> str:
        return f"<Joining {self.cluster!r}>"

    async def open(self) -> None:
        """Begin to connect to the other nodes, if any."""
        cluster = self.cluster
        if cluster is None:
            return
        if self._setup.config.peers.integrity == "mac" and not can_seal():
            self.cluster = None
            self._warn_alone(f"peers.integrity is mac, but {no_seals_reason()}")
            return
        try:
            await cluster.open()
        except OSError as error:
            self.cluster = None
            self._warn_alone(f"no other node can reach it: {error.strerror}")
            return
        self._reported = cluster

    def exchange_fill_limits(self, asked: int) -> int:
        """Send the other nodes their limit of background copies.

        Returns:
            The limit of this node.
        """
        if self.cluster is None:
            return FILL_FREE
        self.cluster.mesh.fill.own = asked
        return self.cluster.mesh.fill.least

    @property
    def is_first(self) -> bool:
        """Whether this node does the work that one node does for all."""
        return self.cluster is None or self.cluster.bootstrap.number == 0

    @property
    def announces(self) -> bool:
        """Whether this node prints messages that are the same on all nodes."""
        return self.cluster is None or self.cluster.bootstrap.announces

    def stats(self) -> ClusterStats | None:
        """Return the states of the nodes; None for a node without peers."""
        if self._reported is None:
            return None
        mesh = self._reported.mesh
        membership = self._reported.bootstrap.node_list
        return ClusterStats(membership, mesh.view, mesh.tampered, self._links)

    async def index(
        self, counters: AgentCounters, *, whole: bool
    ) -> tuple[list[Indexed], JobSpec | None]:
        """Return the Catalog of the first node, or index the datasets.

        Args:
            counters: to count the reads for the choice of codecs for all nodes.
            whole: whether no dataset may have an empty index.
        """
        if self.cluster is not None and self.cluster.bootstrap.number:
            timeout_s = self._setup.config.peers.join_timeout
            if found := await self._receive(self.cluster, timeout_s):
                return found
            self._warn_late()
        parts = (self._setup, self._notifier, not whole, self.indexings)
        indexed = await in_thread(index_datasets, *parts)
        if self.cluster is None or self.cluster.bootstrap.number:
            return indexed, None
        found = await self.cluster.offer(indexed, counters)
        return found if await self._agree(self.cluster, found[1]) else (indexed, None)

    async def _receive(self, cluster: Cluster, timeout_s: float) -> Found | None:
        """Return the Catalog of the first node; None: it is late, or cannot be used."""
        try:
            found = await cluster.receive(timeout_s)
        except MonarchError as error:
            self._warn_alone(f"the catalog of {cluster.bootstrap.nodes[0]}: {error}")
            await self._leave()
            return None
        return found if found and await self._agree(cluster, found[1]) else None

    async def _agree(self, cluster: Cluster, spec: JobSpec) -> bool:
        """Return whether this node accepts the job spec; else leave, and warn."""
        wish = self._setup.config.peers.integrity
        first = cluster.bootstrap.nodes[0]
        reason = integrity_conflict(spec.integrity, first, wish, can=can_seal())
        if reason:
            self._warn_alone(reason)
            await self._leave()
        return not reason

    def sealing(self, spec: JobSpec | None) -> Sealing | None:
        """Return how Extents are sealed; None: they are not.

        A node without a spec yet seals staged Extents if it can: else it could not
        serve them to peers once it has joined.
        """
        wish = self._setup.config.peers.integrity
        if self.cluster is None or wish == "checksum" or not can_seal():
            return None
        if spec is not None and spec.integrity is not Integrity.MAC:
            return None
        return Sealing(self.cluster.seal_key(), agreed=spec is not None)

    def _warn_alone(self, reason: str) -> None:
        self._notifier.warn(f"this node works alone: {reason}")

    def _warn_late(self) -> None:
        if self.cluster is not None:
            first, error = self.cluster.bootstrap.nodes[0], self.cluster.mesh.last_error
            reason = f" ({error})" if error else ""
            self._notifier.warn(
                f"{first} has not joined{reason}; this node works alone until it joins"
            )

    async def _leave(self) -> None:
        if (cluster := self.take_cluster()) is not None:
            cluster.disconnect()
            await cluster.close()

    def send_catalog(self, namespace: Namespace) -> None:
        """Begin to send the Catalog to the other nodes, if it is this node's."""
        if self.cluster is not None:
            self.cluster.send_catalog(namespace)

    def watch(self, namespace: Namespace, counters: AgentCounters) -> None:
        """Begin to exchange the marks of written Files with the other nodes."""
        if self.cluster is not None:
            self.cluster.written.watch(namespace, counters)

    async def join(
        self, staging: Staging, counters: AgentCounters, spec: JobSpec | None
    ) -> None:
        """Join now or, without a spec, once the first node has sent it."""
        if self.cluster is None:
            return
        if spec is None:
            late = self._join_late(self.cluster, staging, counters)
            self._late = asyncio.create_task(late)
            self._late.add_done_callback(log_failure)
            return
        await self._join(self.cluster, staging, counters, spec)

    async def wait_until_started(self) -> None:
        """Wait for the other nodes: programs that start earlier would read twice."""
        if self.cluster is not None:
            await self.cluster.wait_until_started()

    async def _join(
        self,
        cluster: Cluster,
        staging: Staging,
        counters: AgentCounters,
        spec: JobSpec,
    ) -> None:
        ends = await cluster.exchange(staging, counters, spec)
        staging.stager.join(ends.sources, ends.receiver)
        self._links = PeerTraffic(ends.server, ends.receiver, ends.sources)
        loop = asyncio.get_running_loop()
        loop.add_reader(ends.receiver.event_fd, self._turn)
        cluster.mesh.set_phase(Phase.RUNNING)

    async def _join_late(
        self, cluster: Cluster, staging: Staging, counters: AgentCounters
    ) -> None:
        found = await self._receive(cluster, math.inf)
        if found is None:
            return
        spec = found[1]
        if spec.digest != staging.namespace.digest:
            first = cluster.bootstrap.nodes[0]
            self._warn_alone(f"{first} has indexed different files")
            await self._leave()
            return
        await self._join(cluster, staging, counters, spec)

    def stop(self) -> None:
        """Stop exchanging Files with other nodes."""
        if self._late is not None:
            self._late.cancel()
        if self.cluster is not None:
            self.cluster.disconnect()

    def take_cluster(self) -> Cluster | None:
        """Return the cluster once; the caller closes it after it has its reports."""
        cluster, self.cluster = self.cluster, None
        return cluster
