"""How an agent comes to share with others: from the start, later, or not at all."""

import asyncio
import math
from collections.abc import Callable

from monarch import native
from monarch.agent.cluster import Found, Peers
from monarch.agent.control import Notifier
from monarch.agent.job_spec import (
    Integrity,
    JobSpec,
    Sealing,
    can_seal,
    integrity_conflict,
    no_seals_reason,
)
from monarch.agent.namespace import Namespace, index_datasets
from monarch.agent.setup import Setup
from monarch.agent.stats import Figures
from monarch.background import in_thread, log_failure
from monarch.errors import MonarchError
from monarch.metrics import Tally
from monarch.origins.dataset import Indexed
from monarch.peers.protocol import Phase
from monarch.stager import Stager


class Joining:
    """Finds the Catalog, and lets the Stager share as soon as the spec are known.

    Args:
        turn: to be called when Files have arrived.

    Attributes:
        peers: None for a node that works alone for good.
    """

    def __init__(
        self,
        setup: Setup,
        notifier: Notifier,
        peers: Peers | None,
        turn: Callable[[], None],
    ) -> None:
        self.peers = peers
        self._setup = setup
        self._notifier = notifier
        self._turn = turn
        self._late: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Joining {self.peers!r}>"

    async def open(self, figures: Figures) -> None:
        """Begin to look for the others, if there are any."""
        peers = self.peers
        if peers is None:
            return
        if self._setup.config.peers.integrity == "mac" and not can_seal():
            self.peers = None
            self._warn_alone(f"peers.integrity is mac, but {no_seals_reason()}")
            return
        try:
            await peers.open()
        except OSError as error:
            self.peers = None
            self._warn_alone(f"the others cannot reach it: {error.strerror}")
            return
        figures.join(
            peers.bootstrap.node_list,
            lambda: peers.mesh.view,
            lambda: peers.mesh.tampered,
        )

    async def index(self) -> tuple[list[Indexed], JobSpec | None]:
        """Take the Catalog of the first node, or make our own."""
        if self.peers is not None and self.peers.bootstrap.number:
            timeout_s = self._setup.config.peers.join_timeout
            if found := await self._receive(self.peers, timeout_s):
                return found
            self._warn_late()
        indexed = await in_thread(index_datasets, self._setup, self._notifier)
        if self.peers is None or self.peers.bootstrap.number:
            return indexed, None
        found = await self.peers.offer(indexed)
        return found if await self._agree(self.peers, found[1]) else (indexed, None)

    async def _receive(self, peers: Peers, timeout_s: float) -> Found | None:
        """Return what the first node gives; None: not in time, or not of use."""
        try:
            found = await peers.receive(timeout_s)
        except MonarchError as error:
            self._warn_alone(f"the catalog of {peers.bootstrap.nodes[0]}: {error}")
            await self._leave()
            return None
        return found if found and await self._agree(peers, found[1]) else None

    async def _agree(self, peers: Peers, spec: JobSpec) -> bool:
        """Return whether we may share on these spec; else leave, and tell why."""
        wish = self._setup.config.peers.integrity
        first = peers.bootstrap.nodes[0]
        why = integrity_conflict(spec.integrity, first, wish, can=can_seal())
        if why:
            self._warn_alone(why)
            await self._leave()
        return not why

    def sealing(self, spec: JobSpec | None) -> Sealing | None:
        """Return how Extents are to be sealed; None: they are not.

        A node that does not know the spec yet seals what it stages if it can: else it
        could give nothing of that once it has joined.
        """
        wish = self._setup.config.peers.integrity
        if self.peers is None or wish == "checksum" or not can_seal():
            return None
        if spec is not None and spec.integrity is not Integrity.MAC:
            return None
        return Sealing(self.peers.seal_key(), agreed=spec is not None)

    def _warn_alone(self, why: str) -> None:
        self._notifier.warn(f"this node works alone: {why}")

    def _warn_late(self) -> None:
        if self.peers is not None:
            first, why = self.peers.bootstrap.nodes[0], self.peers.mesh.last_error
            reason = f" ({why})" if why else ""
            self._notifier.warn(
                f"{first} has not joined yet{reason}: this node works alone until then"
            )

    async def _leave(self) -> None:
        peers, self.peers = self.peers, None
        if peers is not None:
            peers.links.close(asyncio.get_running_loop())
            await peers.close()

    def watch(self, namespace: Namespace, tally: Tally) -> None:
        """Tell the others of Files that are written to here, and be told of theirs."""
        if self.peers is not None:
            self.peers.written.watch(namespace, tally)

    async def share(
        self,
        engine: native.Engine,
        stager: Stager,
        figures: Figures,
        spec: JobSpec | None,
    ) -> None:
        """Share from now on, or without spec as soon as the first node is there."""
        if self.peers is None:
            return
        if spec is None:
            late = self._share_late(self.peers, engine, stager, figures)
            self._late = asyncio.create_task(late)
            self._late.add_done_callback(log_failure)
            return
        await self._share(self.peers, engine, stager, figures, spec)

    async def settle(self) -> None:
        """Wait for the others: who begins before owners can be asked reads twice."""
        if self.peers is not None and self.peers.links.endpoints is not None:
            await self.peers.settle()

    async def _share(
        self,
        peers: Peers,
        engine: native.Engine,
        stager: Stager,
        figures: Figures,
        spec: JobSpec,
    ) -> None:
        stager.share(await peers.links.open(engine, stager, spec))
        ends = peers.links.endpoints
        assert ends is not None
        figures.share(ends.server, ends.receiver, ends.sources)
        loop = asyncio.get_running_loop()
        loop.add_reader(ends.receiver.event_fd, self._turn)
        peers.mesh.set_phase(Phase.RUNNING)

    async def _share_late(
        self, peers: Peers, engine: native.Engine, stager: Stager, figures: Figures
    ) -> None:
        found = await self._receive(peers, math.inf)
        if found is None or figures.namespace is None:
            return
        spec = found[1]
        if spec.digest != figures.namespace.digest:
            first = peers.bootstrap.nodes[0]
            self._warn_alone(f"{first} has indexed different files")
            await self._leave()
            return
        await self._share(peers, engine, stager, figures, spec)

    def stop(self) -> None:
        """Share no more."""
        if self._late is not None:
            self._late.cancel()
        if self.peers is not None:
            self.peers.links.close(asyncio.get_running_loop())
