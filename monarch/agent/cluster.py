"""Joins the agents of the other nodes, shares the Catalog and gathers reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from monarch import report as reports
from monarch.agent.bootstrap import Bootstrap
from monarch.agent.control import Notifier
from monarch.agent.job_spec import (
    GivenIndexes,
    Integrity,
    JobSpec,
    can_seal,
    datasets_payload,
    indexes_from_blocks,
    make_job_spec,
    no_seals_warning,
    seal_key,
)
from monarch.agent.namespace import Namespace
from monarch.agent.packed_tiers import Choice, Known, choose_packing
from monarch.agent.peer_sockets import Endpoints, PeerSockets, WaitingSockets
from monarch.agent.retained_packs import left_packs
from monarch.agent.setup import Setup
from monarch.agent.staging import Staging
from monarch.agent.stats import AgentStats
from monarch.agent.written_marks import MarkExchange
from monarch.background import in_thread, log_failure
from monarch.catalog.inventory import Inventory
from monarch.codec import PLAIN
from monarch.errors import MonarchError
from monarch.metrics import AgentCounters
from monarch.native import CONSTANTS
from monarch.origins.dataset import Indexed
from monarch.peers.addresses import PeerSettings
from monarch.peers.mesh import Mesh, MeshCallbacks
from monarch.peers.protocol import Identity, Phase, ProtocolError, Standing, View

PROGRESS_S: Final = 1.0
# How long an agent without a connection to the others waits for one.
DISCONNECTED_S: Final = 5.0
# The time to gather reports: at the end of the job, and when only this node ends.
REPORT_S: Final = 10.0
REPORT_ALONE_S: Final = 2.0

Found: TypeAlias = tuple[list[Indexed], JobSpec]

log = logging.getLogger("monarch.agent")


class Cluster:
    """Joins the nodes of the job, and sends the Catalog to them or receives it.

    Attributes:
        on_note: called with the number of a node and its note to all.
    """

    def __init__(self, bootstrap: Bootstrap, setup: Setup, notifier: Notifier) -> None:
        self.bootstrap = bootstrap
        self._setup = setup
        self._notifier = notifier
        # Sent to the other nodes with this node's Catalog; None: nothing left to send.
        self._unsent: dict[str, Any] | None = None
        self._offering: asyncio.Task[None] | None = None
        self._opened_s = 0.0
        self._heard_s = 0.0
        self._rested_s = 0.0
        self._last_progress = ""
        self._cleared = False
        self.on_note: Callable[[int, dict[str, Any]], None] = lambda number, said: None
        self.mesh = Mesh(
            _settings(bootstrap, setup),
            MeshCallbacks(
                view_changed=lambda view: self.links.update(view),
                socket_received=lambda peer, fd: self.links.adopt(peer, fd),
                note_received=self._noted,
                marks_received=lambda marks: self.written.take(marks),
            ),
        )
        self.written = MarkExchange(self.mesh)
        self._waiting = WaitingSockets(bootstrap, setup, self.mesh)
        self.links: WaitingSockets | PeerSockets = self._waiting

    def __repr__(self) -> str:
        return f"<Cluster {self.mesh!r}>"

    async def open(self) -> None:
        """Begin to connect to the other nodes.

        Raises:
            OSError: this node cannot listen at the configured address.
        """
        await self.mesh.open()
        self._opened_s = time.monotonic()

    def seal_key(self) -> bytes:
        """Return the key of the job's seals."""
        return seal_key(self.bootstrap.secret, self.bootstrap.job)

    async def exchange(
        self, staging: Staging, counters: AgentCounters, spec: JobSpec
    ) -> Endpoints:
        """Begin to exchange Files with the other nodes."""
        self.links = links = await self._waiting.open(staging, counters, spec)
        return links.endpoints

    def disconnect(self) -> None:
        """Stop exchanging Files; to be called before the engine is closed."""
        links, self.links = self.links, self._waiting
        links.close(asyncio.get_running_loop())

    # -- the catalog ------------------------------------------------------------

    async def offer(self, indexed: list[Indexed], counters: AgentCounters) -> Found:
        """Decide the job spec, which the other nodes follow, too.

        If the other nodes have a Catalog and a spec from an earlier agent of this node,
        these are kept: with two Placements, nodes would send each other requests in
        circles.
        """
        left_s = self._setup.config.peers.join_timeout - self._age_s()
        with self._reporting(self._missing):
            await self.mesh.wait_until(lambda view: view.complete, max(0.0, left_s))
        view, names = self.mesh.view, self.bootstrap.nodes
        if (found := await self._offered_before(view)) is not None:
            return found
        choice = await in_thread(self._choose_packing, indexed)
        choice.count(counters)
        packed = tuple(one.spec for one in choice.tiers)
        spec = make_job_spec(names, view, self._setup.config, indexed, packed)
        if pool := self._setup.pool:
            spec = replace(spec, pool_bytes=pool.capacity_bytes)
        self._warn_no_seals(spec, view)
        if warning := self._unseen(view):
            self._notifier.warn(warning)
        self._unsent = {
            "terms": spec.payload(),
            "datasets": datasets_payload(self._setup.datasets),
            "provisional": [one.provisional for one in indexed],
        }
        return indexed, spec

    def _choose_packing(self, indexed: list[Indexed]) -> Choice:
        """Choose the packing of Tiers for all nodes."""
        if all(tier.settings.codec == PLAIN for tier in self._setup.tiers):
            return Choice()
        roots = [one.mapped() for one in indexed]
        inventory = Inventory(roots, CONSTANTS["EXTENT_BYTES"])
        paths, retain = [one.root.path for one in indexed], self._setup.config.retain
        left = left_packs(self._setup.tiers, paths, retain)
        peers = self._setup.config.peers
        shared = peers.mode in ("auto", "partition")
        rooms = len(self.bootstrap.nodes) / (peers.copies or 1) if shared else 1.0
        known = Known(left=left, for_others=True, rooms=max(1.0, rooms))
        return choose_packing(self._setup, inventory, self._notifier.warn, known)

    def send_catalog(self, namespace: Namespace) -> None:
        """Begin to send the Catalog to all other nodes, if it is this node's.

        It is sent from shared memory: the indexes that it was made from can be freed.
        """
        if self._unsent is None:
            return
        blocks = [root.block.memory.data for root in namespace.roots]
        sending = self.mesh.catalog.offer(self._unsent, blocks)
        self._offering = asyncio.create_task(sending)
        self._offering.add_done_callback(log_failure)
        self._unsent = None

    def _warn_no_seals(self, spec: JobSpec, view: View) -> None:
        """Warn that no node seals, because some nodes cannot."""
        joined = view.joined
        if spec.integrity is Integrity.MAC or all(m.seals for m in joined):
            return
        if self._setup.config.peers.integrity == "auto":
            names = [self.bootstrap.nodes[member.number] for member in joined]
            self._notifier.warn(no_seals_warning(names, [m.seals for m in joined]))

    async def _offered_before(self, view: View) -> Found | None:
        """Return the Catalog and the job spec that other nodes already use."""
        running = [m.number for m in view.joined if m.phase is Phase.RUNNING]
        try:
            async with asyncio.timeout(self._setup.config.peers.join_timeout):
                shipment = await self.mesh.catalog.fetch_earlier(running)
                if shipment is None:
                    return None
                found = await self._read(*await shipment.unload())
                await self.mesh.catalog.offer_again(shipment)
                return found
        except (TimeoutError, MonarchError) as error:
            log.warning(
                "catalog of an earlier agent not used reason=%s", error or "late"
            )
            return None

    async def receive(self, timeout_s: float) -> Found | None:
        """Return the Catalog of the first node; None if the node does not join in time.

        Raises:
            MonarchError: it cannot be used here; the text gives the reason.
        """
        first = self.bootstrap.nodes[0]
        with self._reporting(lambda: f"waiting for {first}"):
            if not await self.mesh.wait_until(_first_joined, timeout_s):
                return None
        with self._reporting(lambda: f"waiting for {first} to index the datasets"):
            found = await self._catalog()
        if found is None:
            return None
        return await self._read(*found)

    async def _read(self, about: Any, blocks: list[memoryview]) -> Found:
        spec = JobSpec.from_payload(about.get("terms", {}))
        if about.get("datasets") != datasets_payload(self._setup.datasets):
            raise MonarchError(
                f"{self.bootstrap.nodes[0]} has other datasets in its configuration"
            )
        given = GivenIndexes(
            blocks, about.get("provisional", ()), self.bootstrap.nodes[0]
        )
        return await in_thread(indexes_from_blocks, self._setup.datasets, given), spec

    async def _catalog(self) -> tuple[Any, list[memoryview]] | None:
        """Fetch the Catalog; the first node may leave before it has one."""
        fetching = asyncio.create_task(self.mesh.catalog.fetch())
        gone = asyncio.create_task(self.mesh.wait_until(_first_left, float("inf")))
        try:
            await asyncio.wait((fetching, gone), return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(TimeoutError):
                # Parts that it has sent may still arrive through other nodes.
                timeout_s = self._setup.config.peers.join_timeout
                return await asyncio.wait_for(fetching, timeout_s)
        except ProtocolError as error:
            raise MonarchError(str(error)) from error
        finally:
            fetching.cancel()
            gone.cancel()
        return None

    def _age_s(self) -> float:
        return time.monotonic() - self._opened_s

    def _unseen(self, view: View) -> str:
        unseen = [
            self.bootstrap.nodes[member.number]
            for member in view.members
            if member.standing is Standing.UNSEEN
        ]
        if not unseen:
            return ""
        more = f" and {len(unseen) - 3} more" if len(unseen) > 3 else ""
        names = f"{', '.join(unseen[:3])}{more}"
        verb, them = ("has", "it") if len(unseen) == 1 else ("have", "them")
        return f"{names} {verb} not joined; continuing without {them}"

    def _missing(self) -> str:
        joined, count = len(self.mesh.view.joined), len(self.bootstrap.nodes)
        return f"waiting for nodes: {joined} of {count} have joined"

    @contextlib.contextmanager
    def _reporting(self, what: Callable[[], str]) -> Iterator[None]:
        """Report the reason of a long wait repeatedly."""

        async def report() -> None:
            while self.bootstrap.announces:
                await asyncio.sleep(PROGRESS_S)
                self._notifier.progress(what())

        reporting = asyncio.create_task(report())
        try:
            yield
        finally:
            reporting.cancel()

    # -- notes of other nodes ------------------------------------------------------

    def _noted(self, number: int, said: dict[str, Any]) -> None:
        self.on_note(number, said)
        late = said.get("late")
        if isinstance(late, int) and late != number:
            self.links.report_late(late)

    # -- end ----------------------------------------------------------------------

    async def wait_until_started(self) -> None:
        """Wait, so that the programs of all joined nodes start together."""
        with self._reporting(self._starting):
            await self.links.wait_connected(self._setup.config.peers.join_timeout)

    def _starting(self) -> str:
        joined = self.mesh.view.joined
        started = sum(member.phase is not Phase.STARTING for member in joined)
        return f"waiting for nodes: {started} of {len(joined)} have the catalog"

    def resume(self) -> None:
        """Report to the other nodes that a program of the job runs here again."""
        if self.mesh.own.phase is Phase.FINISHED:
            self.mesh.set_phase(Phase.RUNNING)

    def rest(self) -> bool:
        """Report to the other nodes that no program of the job runs here.

        Returns:
            Whether programs run on other nodes, which may need this node's Files.
        """
        if self.mesh.own.phase is not Phase.FINISHED:
            self.mesh.set_phase(Phase.FINISHED)
            self._rested_s = self._heard_s = time.monotonic()
        if self.mesh.view.finished or not self._in_touch():
            return False
        if time.monotonic() - self._rested_s > PROGRESS_S:
            self._report_running()
        return True

    def _report_running(self) -> None:
        joined = self.mesh.view.joined
        running = sum(member.phase is not Phase.FINISHED for member in joined)
        nodes = "node" if running == 1 else "nodes"
        text = f"serving {running} {nodes} on which programs run"
        if text != self._last_progress and self.bootstrap.announces:
            self._last_progress = text
            self._notifier.progress(text)

    def _in_touch(self) -> bool:
        """Return whether other nodes are connected, or were a moment ago."""
        own = self.bootstrap.number
        if all(member.number == own for member in self.mesh.view.joined):
            return False
        now_s = time.monotonic()
        if self.mesh.hub is not None:
            self._heard_s = now_s
        return now_s - self._heard_s < DISCONNECTED_S

    async def gather(self, stats: AgentStats) -> dict[int, bytes] | None:
        """Gather the reports of all nodes on one node.

        Returns:
            The reports of the other nodes; None if another node writes them.
        """
        finished = self.mesh.view.finished and self.mesh.hub is not None
        timeout_s = REPORT_S if finished else REPORT_ALONE_S
        if not self.mesh.is_hub:
            own = await in_thread(reports.encode_node_report, stats.snapshot())
            if await self.mesh.send_report(own, timeout_s):
                return None
        if self.mesh.is_hub:
            if finished:
                await self._clear_up()
                self.mesh.end_job()
            await self.mesh.wait_for_reports(timeout_s)
        return dict(self.mesh.node_reports)

    async def _clear_up(self) -> None:
        """Remove the addresses of the nodes, before any of them begins the next job."""
        self._cleared = True
        await in_thread(partial(self.bootstrap.clean_up, job_ended=True))

    async def close(self) -> None:
        """Leave the job; its hub removes the secret."""
        await self.written.close()
        if self._offering is not None:
            self._offering.cancel()
        ended = self.mesh.is_hub and self.mesh.view.finished and not self._cleared
        await self.mesh.close()
        await in_thread(partial(self.bootstrap.clean_up, job_ended=ended))


def _first_joined(view: View) -> bool:
    return view.members[0].standing is Standing.JOINED


def _first_left(view: View) -> bool:
    return view.members[0].standing is Standing.LEFT


def _settings(bootstrap: Bootstrap, setup: Setup) -> PeerSettings:
    capacities = tuple(tier.usable_bytes for tier in setup.tiers)
    own = bootstrap.addresses.get(bootstrap.number)
    return PeerSettings(
        identity=Identity(bootstrap.job, bootstrap.number, bootstrap.secret),
        nodes=len(bootstrap.nodes),
        capacities=capacities,
        host=bootstrap.host,
        port=own[1] if own is not None else setup.config.peers.port,
        addresses=bootstrap.addresses,
        directory=bootstrap.directory,
        seals=can_seal(),
        readers_max=setup.config.origin.readers or 0,
    )
