"""Makes the native engine and the Stager from a setup, and keeps memory free."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from monarch import native
from monarch.agent.job_spec import Sealing, pool_need
from monarch.agent.namespace import Namespace
from monarch.agent.packed_tiers import PackedTier, PlainTier
from monarch.agent.segments import Segments
from monarch.agent.setup import Setup
from monarch.agent.siblings import Siblings
from monarch.metrics import AgentCounters
from monarch.stager import (
    CodecInUse,
    DemandFirst,
    ExtentDigests,
    FillConcurrency,
    Stager,
    StagerSettings,
    Storage,
    room_left,
)
from monarch.stager.concurrency import MOST
from monarch.tiers import RamTier
from monarch.tiers.memory import read_memory
from monarch.tiers.tier import LRU_ADVICE
from monarch.units import format_count, format_size

DEMAND_THREADS: Final = 32
THREADS_MAX: Final = 64
NAMES_MAX: Final = 4
"""The maximum number of datasets named in the first line of a job."""

log = logging.getLogger("monarch.agent")


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The settings and parts of an engine.

    Attributes:
        concurrency: how many background Transfers read the Origin at once.
        sealing: how Extents are sealed for other nodes, if they are.
        readers: the limit of Transfers that read the Origin at once, if any.
        packed: the Tiers that are packed.
        alone: whether no other node is in the job, now or later.
    """

    table: native.Table
    concurrency: FillConcurrency
    sealing: Sealing | None
    readers: int | None
    packed: Sequence[PackedTier] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Staging:
    """The parts that stage Files on this node, from the Catalog until the end.

    Attributes:
        extents: the digests of staged Extents, for Tiers that are retained.
        concurrency: how many background Transfers read the Origin at once.
        siblings: the jobs beside this one whose Files are linked.
        packing: of the Tiers with a codec.
        demand_first: how many background Transfers do so while programs wait.
    """

    namespace: Namespace
    engine: native.Engine
    stager: Stager
    extents: ExtentDigests
    concurrency: FillConcurrency
    siblings: Siblings
    packing: Sequence[PackedTier | PlainTier] = ()
    demand_first: DemandFirst = field(default_factory=DemandFirst)

    def start(self) -> None:
        """Start fill; its limit while programs wait is found by measurement."""
        self.engine.set_background(self.concurrency.limit, self.demand_first.beside)
        self.stager.start()

    def adapt(self, now_s: float, permitted: int = MOST) -> None:
        """Adapt fill to the speed of the Origin; called repeatedly.

        Args:
            now_s: a monotonic clock.
            permitted: how many background copies other nodes permit.
        """
        limit, first = self.concurrency.limit, self.demand_first
        pace = self.engine.pace()
        done = pace.files, now_s
        changes = first.note(self.engine.demands(), limit, done)
        changes |= first.permit(permitted)
        if first.permitted >= limit:  # else that limit would be measured
            changes |= self.concurrency.note(pace, now_s)
        if not changes:
            return
        limit = min(self.concurrency.limit, first.permitted)
        beside = self.demand_first.beside
        log.debug("fill changes concurrency=%d beside=%d", limit, beside)
        self.engine.set_background(limit, beside)
        self.demand_first.forget()


def make_storage(
    setup: Setup,
    namespace: Namespace,
    extents: ExtentDigests,
    packed: Sequence[PackedTier] = (),
) -> Storage:
    """Make the staging table of a published Namespace, with the space of all Tiers."""
    files = namespace.table_files(extents.first)
    table = native.Table(files, len(setup.tiers), _urgent_bytes_max(setup))
    for one in packed:
        table.pack(one.tier, one.ratio, setup.tiers[one.tier].last_pages)
    for number, tier in enumerate(setup.tiers):
        if tier.settings.evicts:
            table.evict(number)
    codecs = {one.tier: CodecInUse(one.codec, one.ratio, one.why) for one in packed}
    return Storage(
        setup.tiers,
        table,
        setup.pool,
        pool_at_once=setup.pool_at_once,
        codecs=codecs,
    )


def make_engine(
    setup: Setup, segments: Segments, extents: ExtentDigests, parts: EngineParts
) -> native.Engine:
    """Start the threads that copy; each root has its own share of them."""
    config, memory = setup.config, segments.memory
    wanted = DEMAND_THREADS + parts.concurrency.most
    board = native.Segments(
        memory["catalog"], memory["flags"], memory["requests"], memory["inodes"]
    )
    options = native.Options(
        threads=engine_threads(wanted, len(setup.datasets)),
        background_max=parts.concurrency.most,
        background_first=parts.concurrency.limit,
        bandwidth_bytes_per_s=config.fill.bytes_per_s,
        digests=extents.digests,
        digest_first=extents.first,
        seals=_seals(setup, extents, parts.sealing) if parts.sealing else None,
        table=parts.table,
        readers_max=parts.readers,
        retains=config.retain != "job",
        shares_memory=len(read_memory()) == 1,
        alone=parts.alone,
        packings=tuple(chain.from_iterable(one.packings for one in parts.packed)),
    )
    return native.Engine(board, options)


def engine_threads(wanted: int, roots: int) -> int:
    """Return how many threads copy: as many as are wanted, for each root.

    So a hanging root blocks at most its share of them.
    """
    return max(wanted, roots, min(wanted * roots, THREADS_MAX))


def _seals(setup: Setup, extents: ExtentDigests, sealing: Sealing) -> native.Seals:
    only = sealing.agreed and setup.config.retain == "job"
    return native.Seals.make(sealing.key, len(extents.digests), only=only)


def make_stager(
    setup: Setup,
    namespace: Namespace,
    engine: native.Engine,
    storage: Storage,
    counters: AgentCounters,
) -> Stager:
    """Make the Stager of a published Namespace."""
    settings = StagerSettings(
        setup.config.fill.enabled, _urgent_bytes_max(setup), behind=namespace.behind
    )
    return Stager(namespace.replicas(), engine, storage, settings, counters)


def _urgent_bytes_max(setup: Setup) -> int:
    """Return the size up to which programs wait for a File."""
    cold = setup.config.cold_open
    waits = {"wait": 1 << 62, "through": 0, "auto": cold.wait_max}
    return waits[cold.mode]


def count_segments(setup: Setup, segments: Segments) -> None:
    """Subtract the size of the segments from the first RAM Tier, if it has a share."""
    ram = [tier for tier in setup.tiers if isinstance(tier, RamTier)]
    for tier in ram[:1]:
        tier.subtract(sum(map(len, segments.memory.values())))


def start_line(
    setup: Setup,
    namespace: Namespace,
    nodes: int = 1,
    packing: Sequence[PackedTier | PlainTier] = (),
) -> str:
    """Return the line that is printed when a job begins."""
    ratios = {one.tier: one.ratio for one in packing}
    count, size = len(namespace.inventory), namespace.inventory.total_bytes
    names = [name for dataset in setup.datasets for name in dataset.names]
    places = ", ".join(names[:NAMES_MAX])
    if len(names) > NAMES_MAX:
        places += f" and {format_count(len(names) - NAMES_MAX)} more"
    codecs = {one.tier: f" {one.text}" for one in packing}
    tiers = ", ".join(
        f"{tier.name} {format_size(tier.capacity_bytes)}{codecs.get(number, '')}"
        for number, tier in enumerate(setup.tiers)
    )
    files = "file" if count == 1 else "files"
    what = f"{format_count(count)} {files}, {format_size(size)}"
    what += f"; {namespace.links}" if namespace.links else ""
    pool = setup.pool.capacity_bytes if setup.pool and setup.pool_at_once else 0
    beside = f" and a pool of {format_size(pool)}" if pool else ""
    line = f"staging {places} ({what}) to {tiers}{beside}"
    if nodes > 1:
        line += f", on each of {nodes} nodes"
    shared = setup.config.peers.mode in ("auto", "partition")
    held = (
        tier.capacity_bytes * ratios.get(number, 1.0)
        for number, tier in enumerate(setup.tiers)
    )
    room = int(sum(held)) * (nodes if shared else 1)
    if room >= namespace.room_bytes:
        return line
    line += f"; {100 * room // namespace.room_bytes}% of it fits"
    return f"{line}{f': {LRU_ADVICE}' if _evicts(setup) else ''}"


def _evicts(setup: Setup) -> bool:
    return any(tier.settings.evicts for tier in setup.tiers)


def pool_warning(namespace: Namespace, stager: Stager) -> str:
    """Return the line about a Pool that is too small for the largest File; or ""."""
    account, sizes = stager.pool_account, namespace.inventory.sizes
    packs, passes = stager.storage.packs, not stager.policy.kept.all()
    if account is None or not len(sizes) or not (packs or passes):
        return ""
    largest = int(sizes.argmax())
    size_bytes = int(sizes[largest])
    need_bytes = pool_need(size_bytes)
    if need_bytes <= account.capacity_bytes:
        return ""
    path = os.fsdecode(namespace.inventory.path(largest))
    follows = "are stored without packing" if packs else "may be read from the origin"
    return (
        f"the pool ({format_size(account.capacity_bytes)}) is too small for {path} "
        f"({format_size(size_bytes)}), which needs {format_size(need_bytes)}: such "
        f"files {follows}; set peers.transit, a part of the ram tiers, or enlarge these"
    )


class MemoryGuard:
    """Keeps RAM Replicas below the memory limits.

    The data plane stages by itself, within limits that are set beforehand.
    """

    def __init__(self, stager: Stager) -> None:
        self._stager = stager

    def __repr__(self) -> str:
        return f"<MemoryGuard of {self._stager!r}>"

    def check(self) -> bool:
        """Evict some Replicas if a limit is near; return whether any were evicted."""
        freed, levels = 0, read_memory()
        for level in levels:
            used_bytes = level.used_bytes - freed
            freed += self._stager.relieve(used_bytes, level.limit_bytes)
        if freed:
            log.warning("memory is short evicted=%s", format_size(freed))
        rooms = [room_left(one.used_bytes - freed, one.limit_bytes) for one in levels]
        self._stager.admit(min(rooms))
        return freed > 0
