"""Stagers over small Tiers, with engines and receivers scripted by a test."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from monarch.metrics import AgentCounters
from monarch.native import (
    Account,
    Reason,
    ReplicaState,
    Step,
    Table,
    TableFiles,
    word_parts,
)
from monarch.placement import Mode, Node, Placement
from monarch.stager import (
    FileTable,
    Policy,
    Replicas,
    Sources,
    Stager,
    StagerSettings,
    Storage,
    WrittenMarks,
)
from monarch.tiers import RamTier, SsdTier, Tier, TierSettings, open_pool
from monarch.units import Size
from support.fake_engine import FakeEngine, FakeReceiver
from support.placements import first_rows, place_sizes

NO_FILL = StagerSettings(fill=False, urgent_bytes_max=1 << 20)
FILL = StagerSettings(fill=True, urgent_bytes_max=1 << 20)

PAGE = 4096
FILL_MAX = 4
ROOM = 1 << 20
BUSY_S = 0.1

State = tuple[ReplicaState, int, Reason]
ABSENT: State = (ReplicaState.ABSENT, 0, Reason.NONE)


@dataclass
class Clock:
    """Seconds that pass on command of the test."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Stage:
    """A Stager over Tiers in directories, and everything around it.

    Args:
        words: the state words, as the data plane writes them.
        written: the marks of Files, as programs write them.
        roots: the marks of roots.
    """

    stager: Stager
    engine: FakeEngine
    words: npt.NDArray[np.uint32]
    written: npt.NDArray[np.uint8]
    roots: npt.NDArray[np.uint8]
    counters: AgentCounters
    receiver: FakeReceiver
    pool: Tier
    clock: Clock
    placement: Placement = field(init=False)
    sources: Sources = field(init=False)

    @property
    def replicas(self) -> Replicas:
        """The states of the Files."""
        return self.stager.replicas

    def ask(self, *files: int) -> None:
        """Let programs ask for Files."""
        for file in files:
            self.engine.demand(file)
        self.stager.turn()
        while doubtful := self.stager.losses.take_doubtful():
            for file, tier in doubtful.items():
                finding = self.stager.losses.look_for(file, tier)
                self.stager.note_found(file, tier, finding)

    def end(self, file: int, status: int = 0, step: Step = Step.PUBLISH) -> None:
        """End the copy of a File from the Origin."""
        order = next(order for order in self.engine.orders if order.file == file)
        if not status:
            self._write(file, order.tier)
        self.engine.end(order, status, step)
        self.stager.turn()
        self.engine.fill_up()

    def arrive(self, file: int, status: int = 0, step: Step = Step.READ) -> None:
        """End the Fetch of a File from a peer."""
        fetch = next(fetch for fetch in self.receiver.fetches if fetch.file == file)
        if not status:
            self._write(file, fetch.tier)
        if self.receiver.end(fetch, status, step) == 0:
            self.engine.published(fetch)
        self.stager.turn()
        self.engine.fill_up()

    def _write(self, file: int, tier: int) -> None:
        size_bytes = self.replicas.size_of(file)
        with self.path(file, tier).open("wb") as replica:
            replica.write(b"x" * min(size_bytes, PAGE))
            replica.truncate(size_bytes)

    def path(self, file: int, tier: int) -> Path:
        """Return the path of a Replica."""
        return self.stager.storage.places[tier].directory / self.replicas.name_of(file)

    def account(self, tier: int) -> Account:
        """Return the account of a Tier, or of the Pool."""
        return self.stager.storage.ledger.account(tier)

    def state(self, file: int) -> State:
        """Return the state of a File."""
        return word_parts(int(self.words[file]))

    def ordered(self) -> list[tuple[int, int]]:
        """Return the Files that the engine copies, with their Tiers."""
        return [(order.file, order.tier) for order in self.engine.orders]

    def fetching(self) -> list[tuple[int, int, int]]:
        """Return the Files being fetched from peers, with their Tiers and peers."""
        return [(order.file, order.tier, order.peer) for order in self.receiver.fetches]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the Stager look what follows."""
        self.clock.now_s += seconds
        self.engine.serve_pool()
        self.stager.turn()

    def join(self, placement: Placement, own: int) -> Sources:
        """Let this node be one of several, all of them connected."""
        policy = Policy.cluster(placement, own)
        self.stager.follow(policy)
        sources = Sources(policy, self.stager.table, self.counters, self.clock)
        for peer in range(len(placement.nodes)):
            if peer != own:
                assert sources.due(peer)
                sources.connected(peer)
        self.placement, self.sources = placement, sources
        self.stager.join(sources, self.receiver)
        return sources

    def tally(self, name: str) -> int:
        """Return a count of the data plane."""
        return self.stager.table.tally()[name]


def make_stage(
    directory: Path,
    files: list[int] | list[list[int]],
    capacities: tuple[int, ...] = (1 << 20,),
    settings: StagerSettings = NO_FILL,
    pool_bytes: int = ROOM,
) -> Stage:
    """Make a Stager whose Tiers lie in a directory; the first one is memory.

    Its fill begins with `stager.start`.

    Args:
        files: the sizes of the Files, one list for each root.
        pool_bytes: the room of the Pool, which is used when the node has joined.
    """
    tiers: list[Tier] = []
    for number, capacity in enumerate(capacities):
        kind: type[Tier] = SsdTier if number else RamTier
        tier = kind(tier_settings(directory, f"tier{number}"), "j.n")
        tier.directory.mkdir(parents=True)
        tier.capacity_bytes = capacity
        tiers.append(tier)
    in_roots = [[size] if isinstance(size, int) else size for size in files]
    sizes = [size for root in in_roots for size in root]
    bases: tuple[int, ...] = (0,)
    if any(isinstance(size, list) for size in files):
        bases = tuple(accumulate([0, *map(len, in_roots[:-1])]))
    shared = table_files(sizes, bases)
    words, written, roots = shared.words, shared.marks, shared.root_marks
    table = FileTable(
        sizes=shared.sizes,
        words=words,
        marks=WrittenMarks(roots, written, lambda: None),
        name_of=lambda file: f"{file:032x}",
        inodes_of=lambda files, tier: [1000 + file for file in files],
        inodes_in=lambda tier: [1000],
        bases=bases,
    )
    pool = open_pool(directory / "run", 0)
    pool.directory.mkdir(parents=True)
    pool.capacity_bytes = pool_bytes
    staging = Table(shared, len(tiers), settings.urgent_bytes_max)
    receiver = FakeReceiver(staging)
    counters, clock = AgentCounters(), Clock()
    engine = FakeEngine(staging, receiver, words, clock, bases, len(tiers))
    storage, settings = Storage(tiers, staging, pool), replace(settings, clock=clock)
    stager = Stager(Replicas(table), engine, storage, settings, counters)
    return Stage(stager, engine, words, written, roots, counters, receiver, pool, clock)


def table_files(sizes: list[int], bases: tuple[int, ...] = (0,)) -> TableFiles:
    """Return Files of these sizes, all of them absent, in memory of their own."""
    lengths = np.array(sizes, np.uint64)
    return TableFiles(
        sizes=lengths,
        words=np.zeros(len(sizes), np.uint32),
        marks=np.zeros(len(sizes), np.uint8),
        root_marks=np.zeros(len(bases), np.uint8),
        bases=np.array(bases, np.uint32),
        first=first_rows(lengths),
    )


def tier_settings(path: Path, name: str) -> TierSettings:
    """Return the settings of a small Tier."""
    return TierSettings(
        key="tiers[0]",
        name=name,
        kind="ssd",
        path=path,
        capacity=Size.parse("1MiB"),
        headroom=Size.parse("0"),
    )


def place(
    count: int, capacities: list[int], mode: Mode = Mode.PARTITION, need: int = 4096
) -> Placement:
    """Place Files of one page each on nodes."""
    nodes = [Node(f"n{number}", each) for number, each in enumerate(capacities)]
    sizes = np.full(count, need, np.uint64)
    return place_sizes(nodes, sizes, 7, mode, above_bytes=1 << 62)


def make_shared(
    directory: Path,
    pages: list[int],
    mode: Mode = Mode.PARTITION,
    settings: StagerSettings = NO_FILL,
    files: tuple[int, int] = (60, PAGE),
) -> Stage:
    """Make node 0 of some, each with its own room for pages, where programs run.

    Args:
        files: how many, and of how many bytes each.
    """
    count, need = files
    stage = make_stage(directory, [need] * count, (pages[0] * PAGE,), settings)
    placement = place(count, [each * PAGE for each in pages], mode, need)
    stage.join(placement, 0)
    stage.stager.start()
    return stage


def owned_by(stage: Stage, node: int) -> list[int]:
    """Return the Files of a node."""
    return np.flatnonzero(stage.placement.owners == node).tolist()


def followed_by(stage: Stage, *nodes: int) -> int:
    """Return a File whose order begins with these nodes."""
    placement = stage.placement
    files = range(len(placement.needs))
    return next(f for f in files if placement.order(f)[: len(nodes)] == list(nodes))


@contextmanager
def memory_directory() -> Iterator[Path]:
    """A directory on tmpfs, where Replicas lie in earnest."""
    directory = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="monarch-test-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
