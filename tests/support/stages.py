"""Stagers over small Tiers, with engines and receivers that do what a test says."""

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
    Arrival,
    Completion,
    Fetch,
    Health,
    Order,
    Reason,
    ReplicaState,
    Step,
    state_word,
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
from monarch.stager.capacity import Account
from monarch.tiers import RamTier, SsdTier, Tier, TierSettings, open_pool
from monarch.units import Size

NO_FILL = StagerSettings(fill=False, concurrency=2, urgent_bytes_max=1 << 20)
FILL = StagerSettings(fill=True, concurrency=2, urgent_bytes_max=1 << 20)

PAGE = 4096
ROOM = 1 << 20

State = tuple[ReplicaState, int, Reason]
ABSENT: State = (ReplicaState.ABSENT, 0, Reason.NONE)


@dataclass
class FakeEngine:
    """Takes orders; ends them when the test says so, in the state words too."""

    words: npt.NDArray[np.uint32]
    asked: list[int] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    ended: list[Completion] = field(default_factory=list)
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)
    room: int = 1000
    found: Health = field(default_factory=lambda: Health(0, 0, 0))

    def health(self) -> Health:
        """Return what the test says."""
        return self.found

    def requests(self) -> list[int]:
        """Return what programs asked for."""
        asked, self.asked = self.asked, []
        return asked

    def submit(self, orders):
        """Take as many orders as there is room for."""
        taken = list(orders)[: self.room]
        self.orders += taken
        self.room -= len(taken)
        return len(taken)

    def completions(self) -> list[Completion]:
        """Return what has ended."""
        ended, self.ended = self.ended, []
        return ended

    def forget(self, tier: int, ino: int) -> None:
        """Note the call."""
        self.forgotten.append((tier, ino))

    def keep(self, tier: int, ino: int) -> None:
        """Note the call."""
        self.kept.append((tier, ino))

    def end(self, order: Order, status: int = 0, step: Step = Step.PUBLISH) -> None:
        """End an order, of which 10 bytes were read."""
        self.orders.remove(order)
        if not status:
            self.words[order.file] = state_word(ReplicaState.READY, order.tier)
        file, tier, kind = order
        self.ended.append(Completion(file, tier, kind, step, status, 10, 1000))


@dataclass
class FakeReceiver:
    """Takes Fetches; ends them when the test says so."""

    words: npt.NDArray[np.uint32]
    fetches: list[Fetch] = field(default_factory=list)
    ended: list[Arrival] = field(default_factory=list)
    room: int = 1000

    def submit(self, orders):
        """Take as many orders as there is room for."""
        taken = list(orders)[: self.room]
        self.fetches += taken
        self.room -= len(taken)
        return len(taken)

    def arrivals(self) -> list[Arrival]:
        """Return what has ended."""
        ended, self.ended = self.ended, []
        return ended

    def end(self, fetch: Fetch, status: int = 0, step: Step = Step.READ) -> None:
        """End a Fetch; a Replica from a peer is marked as such, as it is natively."""
        self.fetches.remove(fetch)
        if not status:
            step = Step.PUBLISH
            word = state_word(ReplicaState.READY, fetch.tier, Reason(1))
            self.words[fetch.file] = word
        self.ended.append(Arrival(*fetch, step, status, 10, 1000))


@dataclass
class Clock:
    """Seconds that pass when the test says so."""

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
        self.engine.asked += files
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

    def arrive(self, file: int, status: int = 0, step: Step = Step.READ) -> None:
        """End the Fetch of a File from a peer."""
        fetch = next(fetch for fetch in self.receiver.fetches if fetch.file == file)
        if not status:
            self._write(file, fetch.tier)
        self.receiver.end(fetch, status, step)
        self.stager.turn()

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
        """Return the Files that come from peers, with their Tiers and peers."""
        return [(file, tier, peer) for file, tier, peer in self.receiver.fetches]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the Stager look what follows."""
        self.clock.now_s += seconds
        self.stager.turn()

    def join(self, placement: Placement, own: int) -> Sources:
        """Let this node be one of several, all of them connected."""
        policy = Policy.cluster(placement, own)
        sources = Sources(policy, self.counters, self.clock)
        for peer in range(len(placement.nodes)):
            if peer != own:
                assert sources.due(peer)
                sources.connected(peer)
        self.placement, self.sources = placement, sources
        self.stager.join(sources, self.receiver)
        return sources


def make_stage(
    directory: Path,
    files: list[int] | list[list[int]],
    capacities: tuple[int, ...] = (1 << 20,),
    settings: StagerSettings = NO_FILL,
    pool_bytes: int = ROOM,
) -> Stage:
    """Make a Stager whose Tiers lie in a directory; the first one is memory.

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
    words = np.zeros(len(sizes), np.uint32)
    written, roots = np.zeros(len(sizes), np.uint8), np.zeros(len(bases), np.uint8)
    table = FileTable(
        sizes=np.array(sizes, np.uint64),
        words=words,
        marks=WrittenMarks(roots, written, lambda: None),
        publish=words.__setitem__,
        name_of=lambda file: f"{file:032x}",
        inodes_of=lambda files, tier: [1000 + file for file in files],
        inodes_in=lambda tier: [1000],
        bases=bases,
    )
    pool = open_pool(directory / "run", 0)
    pool.directory.mkdir(parents=True)
    pool.capacity_bytes = pool_bytes
    engine, counters, clock = FakeEngine(words), AgentCounters(), Clock()
    storage, settings = Storage(tiers, pool), replace(settings, clock=clock)
    stager = Stager(Replicas(table), engine, storage, settings, counters)
    receiver = FakeReceiver(words)
    return Stage(stager, engine, words, written, roots, counters, receiver, pool, clock)


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
    return Placement(nodes, np.full(count, need, np.uint64), 7, mode)


def make_shared(
    directory: Path,
    pages: list[int],
    mode: Mode = Mode.PARTITION,
    settings: StagerSettings = NO_FILL,
    files: tuple[int, int] = (60, PAGE),
) -> Stage:
    """Make node 0 of some, each with its own room for pages.

    Args:
        files: how many, and of how many bytes each.
    """
    count, need = files
    stage = make_stage(directory, [need] * count, (pages[0] * PAGE,), settings)
    placement = place(count, [each * PAGE for each in pages], mode, need)
    stage.join(placement, 0)
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
