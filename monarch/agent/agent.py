"""The life of an agent: it indexes, publishes, stages, watches, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from monarch import native
from monarch.agent.control import ControlSocket, Notifier
from monarch.agent.hints import Hints
from monarch.agent.job_spec import JobSpec
from monarch.agent.joining import Joining
from monarch.agent.lifetime import AgentParts, MakeLifetime, StateWord
from monarch.agent.live import Live
from monarch.agent.loaders import LoaderRows
from monarch.agent.namespace import Namespace, extent_arrays, publish
from monarch.agent.outline import Outline, outline_roots, serve_catalog
from monarch.agent.packed_tiers import Known, PackedTier, PlainTier, choose_packing
from monarch.agent.processes import Processes
from monarch.agent.readers import ReaderLimit
from monarch.agent.rechecking import Rechecking
from monarch.agent.recorder import Levels, Recorder, levels
from monarch.agent.retained_packs import packs_in
from monarch.agent.segments import RunDirectory
from monarch.agent.setup import Setup, without_pool
from monarch.agent.shutdown import Shutdown, adopt_retained, claim_all
from monarch.agent.siblings import Siblings, count_shared
from monarch.agent.staging import (
    EngineParts,
    MemoryGuard,
    Staging,
    count_segments,
    make_engine,
    make_stager,
    make_storage,
    pool_warning,
    start_line,
)
from monarch.agent.stats import AgentStats, RunLabel
from monarch.agent.tier_watch import TierWatch
from monarch.background import in_thread, log_failure
from monarch.metrics import AgentCounters
from monarch.native import AgentState
from monarch.origins.dataset import Indexed, IndexKey, forget_indexes, save_all
from monarch.stager import ExtentDigests, FillConcurrency, Stager
from monarch.tiers.leftovers import collect_all
from monarch.tiers.retained import Manifest
from monarch.units import format_duration

if TYPE_CHECKING:
    from monarch import report as reports
    from monarch.agent.cluster import Cluster
    from monarch.agent.exporter import Exporter
    from monarch.peers.mesh import Mesh

BEAT_S: Final = 0.1
TICK_S: Final = 0.1
# The end of a short program must be noticed before a whole tick has passed.
FIRST_TICK_S: Final = 0.02
FIRST_TICKS: Final = 100
# Memory is checked this often.
GUARD_S: Final = 0.25
# How long the end waits until the indexes of this job are saved for later ones, and
# the leftovers of dead jobs are removed.
LAST_S: Final = 5.0

log = logging.getLogger("monarch.agent")


class Agent:
    """Composes the parts of an agent, and answers requests until its lifetime ends.

    Attributes:
        report: the report that this node has written, if any.
        retained: False if retaining the Tiers has failed.
        signal: the number of the signal that ended it; 0: none.
    """

    _packing: tuple[PackedTier | PlainTier, ...] = ()

    def __init__(
        self,
        setup: Setup,
        run: RunDirectory,
        notifier: Notifier,
        cluster: Cluster | None,
        make_lifetime: MakeLifetime,
    ) -> None:
        self.setup = setup
        self.run = run
        self.segments = run.segments
        self.notifier = notifier
        self._requests = run.segments.memory["requests"]
        self.counters = AgentCounters()
        self.joining = Joining(setup, notifier, cluster, self._turn)
        self.processes = Processes(run.segments.memory["counters"], self._end_process)
        self._state = StateWord(self._requests)
        parts = AgentParts(
            setup=setup,
            notifier=notifier,
            state=self._state,
            processes=self.processes,
            joining=self.joining,
            counters=self.counters,
            turn=self._turn,
            end=self.end,
        )
        self._lifetime = lifetime = make_lifetime(parts)
        self._shutdown = Shutdown(parts, lifetime, run.path, self._stats)
        self.report: reports.Report | None = None
        self.signal = 0
        self.retained = True
        self._label = RunLabel.of(run.path.name)
        self._recorder = Recorder(self.processes, self._levels, self._label.clock_s)
        self._plain = ""
        # None unless programs have started before the Catalog was ready.
        self._outline: Outline | None = None
        self._staging: Staging | None = None
        # None until the programs of all nodes start.
        self._stager: Stager | None = None
        self._end = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._indexes: list[IndexKey] = []
        self._saving: asyncio.Future[None] | None = None
        self._collecting: asyncio.Future[None] | None = None
        self._tier_watch: TierWatch | None = None
        self._memory: MemoryGuard | None = None
        self._hints, self._loaders = Hints(run.path), LoaderRows()
        self._readers = ReaderLimit(setup.config.origin.readers, self._mesh)
        self._live = Live(run.path, parts, self._stats, self._mesh)
        self._waking = False
        self._ticks = 0

    def __repr__(self) -> str:
        return f"<Agent {self._state!r} {self._lifetime!r}>"

    async def live(self) -> None:
        """Run all steps, from the index to the summary.

        Raises:
            MonarchError: no catalog exists; no program was started.
        """
        loop = asyncio.get_running_loop()
        for signo in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signo, self._end_by, signo)
        control = ControlSocket(self.run.path, self._answer)
        await control.open()
        beating = asyncio.create_task(self._every(BEAT_S, self._beat))
        watching = asyncio.create_task(self._watch())
        exporter = self._export()
        recording = asyncio.create_task(self._recorder.run(self._guarded))
        try:
            await self._start()
            await self._end.wait()
        finally:
            self._state.set(AgentState.ENDING)
            self.processes.note_end_of_job()
            control.close()
            watching.cancel()
            recording.cancel()
            if self._tier_watch is not None:
                self._tier_watch.close()
            staging = self._staging if self._stager is not None else None
            ended = await self._shutdown.end(staging)
            self.report, self.retained = ended.report, ended.retained
            await self._end_last()
            if exporter is not None:
                await exporter.close()
            beating.cancel()
            self.processes.close()

    async def _end_last(self) -> None:
        """Keep the indexes of unchanged datasets for later jobs, and nothing else."""
        if self._saving is None or self._staging is None:
            return
        changed = {root.path for root in self._staging.namespace.changed_roots()}
        stale = [one for one in self._indexes if one.root in changed]
        last = [self._saving, in_thread(forget_indexes, stale)]
        lost = self._staging.stager.storage.lost_tiers()
        if self._collecting is not None and not lost:  # it searches all Tiers
            last.append(self._collecting)
        await asyncio.wait(last, timeout=LAST_S)

    def end(self, reason: str) -> None:
        """Begin the orderly end."""
        if not self._end.is_set():
            log.info("agent ends reason=%s", reason)
        self._end.set()

    def _end_by(self, signo: int) -> None:
        self.signal = self.signal or signo
        self.end(f"signal {signo}")

    def _stats(self) -> AgentStats:
        """Return the current data for a report."""
        return AgentStats(
            self.setup,
            self._label,
            self.processes,
            self.counters,
            namespace=self._staging.namespace if self._staging is not None else None,
            stager=self._stager,
            fill=self._staging.concurrency if self._staging is not None else None,
            plain=self._plain,
            late_s=self._outline.late_s if self._outline is not None else 0.0,
            cluster=self.joining.stats(),
            recorder=self._recorder,
            loaders=self._loaders,
        )

    def _export(self) -> Exporter | None:
        """Begin to export metrics; None if none are wanted."""
        wanted = self.setup.config.metrics
        if wanted.port is None and wanted.textfile is None:
            return None
        from monarch.agent.exporter import begin_export

        return begin_export(self._live, self.setup, self.notifier.warn)

    def _levels(self) -> Levels:
        return levels(self._stats().tally(), self._staging)

    # -- start ------------------------------------------------------------------

    async def _start(self) -> None:
        self.run.place_shim()
        await self.joining.open()
        indexing = asyncio.ensure_future(
            self.joining.index(self.counters, whole=self._lifetime.needs_all_datasets)
        )
        wait_max_s = self._lifetime.late_after_s
        await self._first_of(indexing, wait_max_s)
        if wait_max_s is not None and not (indexing.done() or self._end.is_set()):
            await self._start_programs(wait_max_s)
            await self._first_of(indexing, None)
        if self._end.is_set():
            indexing.cancel()
            return
        try:
            await self._begin_staging(*indexing.result())
        except Exception as error:
            if self._outline is None:
                raise
            self._go_plain(error)
            return
        for step in (self._guard, self._turn):
            self._tasks.append(asyncio.create_task(self._every(GUARD_S, step)))
        homes = {self.run.path.parent, *(tier.home for tier in self.setup.tiers)}
        self._collecting = in_thread(collect_all, sorted(homes))
        self._collecting.add_done_callback(log_failure)

    async def _first_of(
        self, waited_for: asyncio.Future[Any], timeout_s: float | None
    ) -> None:
        """Wait for a future, at most until the end begins."""
        ending = asyncio.create_task(self._end.wait())
        both = waited_for, ending
        await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()

    async def _begin_staging(
        self, indexed: list[Indexed], spec: JobSpec | None
    ) -> None:
        manifests: dict[int, Manifest] = {}
        if self.setup.config.retain != "job":
            roots = [one.root.path for one in indexed]
            manifests = await in_thread(claim_all, self.setup.tiers, roots)
        namespace = self._publish(indexed)
        large_bytes = self.setup.config.cold_open.wait_max
        await in_thread(namespace.flag_whole, self.setup.whole, large_bytes)
        self.joining.send_catalog(namespace)
        self.joining.watch(namespace, self.counters)
        self._indexes = [one.key for one in indexed]
        self._saving = in_thread(save_all, tuple(indexed))
        indexed.clear()
        count_segments(self.setup, self.segments)
        alone = self.joining.cluster is None
        await in_thread(count_shared, self.setup, namespace, self.run.path, alone)
        extents = ExtentDigests(*extent_arrays(namespace))
        sealing = self.joining.sealing(spec)
        packed = await self._choose_packing(namespace, spec, manifests)
        storage = make_storage(self.setup, namespace, extents, packed)
        at_once = FillConcurrency(self.setup.config.fill.at_once)
        parts = storage.table, at_once, sealing, self._readers.first(), packed, alone
        engine = make_engine(self.setup, self.segments, extents, EngineParts(*parts))
        stager = make_stager(self.setup, namespace, engine, storage, self.counters)
        beside = Siblings(self.run.path, engine, shares=self.setup.config.share == "on")
        parts_of = namespace, engine, stager, extents, at_once
        self._staging = Staging(*parts_of, siblings=beside, packing=self._packing)
        if manifests:
            told = manifests, self.counters, self.notifier.warn
            await in_thread(adopt_retained, self._staging, *told)
        await self.joining.join(self._staging, self.counters, spec)
        starting = asyncio.ensure_future(self.joining.wait_until_started())
        await self._first_of(starting, None)
        starting.cancel()
        self._stager = stager
        if self.joining.is_first:
            judge, answered = stager.replicas, self.processes.answered
            self._tasks.append(Rechecking(namespace, judge, answered).begin())
        self._tier_watch = TierWatch(stager, self._turn)
        self._memory = MemoryGuard(stager)
        self._guarded(self._guard)
        (loop := asyncio.get_running_loop()).add_reader(engine.event_fd, self._turn)
        await in_thread(beside.look)
        self._tasks.append(beside.begin())
        self._staging.start()
        loop.call_soon(self._turn)
        serve_catalog(self._requests, self._outline)
        await self._hints.begin(self._staging)
        self._state.set(AgentState.READY)
        self._recorder.note_start()
        self.notifier.ready(self._start_line(namespace, spec, stager))

    def _publish(self, indexed: list[Indexed]) -> Namespace:
        if self._outline is not None:
            indexed = [one.as_of_earlier() for one in indexed]
        namespace = publish(self.setup, indexed, self.segments)
        if self._outline is not None:
            self._outline.apply()
        if self._lifetime.needs_all_datasets:
            namespace.behind.open_all()
        return namespace

    async def _choose_packing(
        self, namespace: Namespace, spec: JobSpec | None, left: dict[int, Manifest]
    ) -> tuple[PackedTier, ...]:
        """Choose the packing of Tiers; return those that are packed."""
        told, alone = spec.packed if spec else (), self.joining.cluster is None
        known = Known(told, packs_in(left), alone=alone)
        parts = (self.setup, namespace.inventory, self.notifier.warn, known)
        choice = await in_thread(choose_packing, *parts)
        choice.count(self.counters)
        if alone and not choice.packed:
            self.setup = without_pool(self.setup)
        self._packing = choice.tiers
        return choice.packed

    def _start_line(
        self, namespace: Namespace, spec: JobSpec | None, stager: Stager
    ) -> str:
        """Return the line to print at the start; "" if another node prints it."""
        if spec is not None and not self.joining.announces:
            return ""
        if warning := pool_warning(namespace, stager):
            self.notifier.warn(warning)
        return start_line(self.setup, namespace, stager.policy.nodes, self._packing)

    async def _start_programs(self, wait_max_s: float) -> None:
        """Let programs start now; they are served as soon as the Catalog is ready."""
        roots = await outline_roots(self.setup)
        self._outline = Outline(self.setup, self.segments, roots)
        self._state.set(AgentState.SCANNING)
        self.notifier.late(
            f"datasets not indexed after {format_duration(wait_max_s)}: "
            "programs start and are served later"
        )

    def _go_plain(self, error: Exception) -> None:
        """Let running programs continue on the origin."""
        log.error("no catalog", exc_info=error)
        self._plain = reason = str(error)
        self._state.set(AgentState.PLAIN)
        self.notifier.plain(reason)

    def _mesh(self) -> Mesh | None:
        cluster = self.joining.cluster
        return cluster.mesh if cluster is not None else None

    # -- steps that repeat ------------------------------------------------------

    def _turn(self) -> None:
        stager = self._stager
        if stager is None or self._end.is_set():
            return
        loop = asyncio.get_running_loop()
        stager.turn()
        if stager.wake_s is not None and not self._waking:
            self._waking = True
            loop.call_later(stager.wake_s, self._wake)
        if self.joining.cluster is not None:
            self.joining.cluster.links.check_breakers()
        self._attend_tiers(stager)

    def _attend_tiers(self, stager: Stager) -> None:
        if self._tier_watch is not None:
            self._tier_watch.attend()
        for warning in stager.losses.take_warnings():
            self.notifier.warn(warning)

    def _wake(self) -> None:
        self._waking = False
        self._turn()

    def _beat(self) -> None:
        if self._staging is None or not self._staging.engine.is_open:
            native.beat(self._requests)
        else:
            first = self._staging.demand_first
            permitted = self.joining.exchange_fill_limits(first.asked)
            self._staging.adapt(time.monotonic(), permitted)
            self._staging.stager.look_behind()
            self._readers.look(self._staging, time.monotonic())

    def _guard(self) -> None:
        """Check the memory in steps; opens are served between them."""
        if self._memory is None or self._end.is_set():
            return
        if self._memory.check():
            asyncio.get_running_loop().call_soon(self._guard)

    async def _watch(self) -> None:
        """Check repeatedly whether to end."""
        while True:
            self._guarded(self._tick)
            self._ticks += 1
            await asyncio.sleep(FIRST_TICK_S if self._ticks < FIRST_TICKS else TICK_S)

    def _tick(self) -> None:
        self._lifetime.look(self._stager)
        self._hints.look()
        self._live.sample()
        if self._outline is not None and self._stager is not None:
            self._outline.look()

    def _end_process(self) -> None:
        if not self._end.is_set():  # else the engine may be closed
            self._lifetime.note_end_of_process(self._stager)

    async def _every(self, seconds: float, step: Callable[[], None]) -> None:
        while True:
            self._guarded(step)
            await asyncio.sleep(seconds)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            self.counters.agent_errors += 1
            log.exception("step failed step=%s", step.__name__)

    # -- control ----------------------------------------------------------------

    async def _answer(self, asked: dict[str, Any], pid: int) -> dict[str, Any]:
        if asked.get("op") == "hint":
            return await self._hints.take(asked, pid)
        if asked.get("op") == "loader":
            return self._loaders.take(asked, pid)
        if asked.get("op") == "stop":
            self.end("asked to stop")
            return {"ok": True, "pid": os.getpid()}
        if asked.get("op") == "status":
            return self._live.status()
        if asked.get("op") == "live":
            return self._live.figures()
        return {"error": f"unknown op {asked.get('op')!r}"}
