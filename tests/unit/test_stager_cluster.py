"""Several Stagers of one job under random faults: their invariants."""

import errno
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.native import Order, ReplicaState, Step, word_parts
from monarch.placement import Mode, Placement
from monarch.stager.capacity import footprint
from support.stages import FILL, NO_FILL, Stage, make_stage, memory_directory, place

PAGE = 4096
FILES = 16
STEPS = 150
ROUNDS_MAX = 60
LATER = [(errno.ETIMEDOUT, Step.READ), (errno.EBADMSG, Step.VERIFY)]
AT_TIER = [(errno.ENOSPC, Step.WRITE), (errno.EIO, Step.WRITE)]


class Cluster:
    """Nodes whose receivers ask each other's Stagers, and programs that wait."""

    def __init__(self, directory: Path, placement: Placement, rooms, pool, fill):
        self.orders = [placement.order(file) for file in range(FILES)]
        self.nodes: list[Stage] = []
        for number, room in enumerate(rooms):
            stage = make_stage(
                directory / f"n{number}",
                [PAGE] * FILES,
                (room * PAGE,),
                fill,
                pool * PAGE,
            )
            stage.join(placement, number)
            stage.stager.start()
            self.nodes.append(stage)
            stage.engine.is_awaited = partial(self._is_awaited, number)
        self.waiting: list[set[int]] = [set() for _ in rooms]
        self.cut: set[tuple[int, int]] = set()
        self.copied: Counter[int] = Counter()

    def _is_awaited(self, node: int, file: int) -> bool:
        """Whether a program waits for a File on a node, or a peer asks it for it."""
        asked = [one for stage in self.nodes for one in stage.receiver.fetches]
        return file in self.waiting[node] or any(
            (one.file, one.peer) == (file, node) for one in asked
        )

    def open(self, node: int, file: int) -> None:
        """A program opens a File and waits for it."""
        self.waiting[node].add(file)
        self._look(node, file)

    def _look(self, node: int, file: int) -> None:
        """The Shim's use of a state word."""
        state, _, reason = self.nodes[node].state(file)
        if state is ReplicaState.READY or reason:
            self.waiting[node].discard(file)
        elif state is ReplicaState.ABSENT:
            self.nodes[node].engine.demand(file)

    def copy(self, node: int, status: int = 0, step: Step = Step.READ) -> None:
        """The engine of a node ends its oldest copy."""
        stage = self.nodes[node]
        if stage.engine.orders:
            file = stage.engine.orders[0].file
            self.copied[file] += not status
            stage.end(file, status, step)

    def copy_untold(self, node: int) -> None:
        """A copy is published, and the Stager does nothing."""
        stage = self.nodes[node]
        if stage.engine.orders:
            order = stage.engine.orders[0]
            self.copied[order.file] += 1
            stage.path(order.file, order.tier).write_bytes(b"x" * PAGE)
            stage.engine.end(order)

    def deliver(self, node: int, fetch: Order) -> None:
        """A peer answers a node's request, or looks for the File itself."""
        stage, peer = self.nodes[node], self.nodes[fetch.peer]
        state, _, reason = peer.state(fetch.file)
        if (node, fetch.peer) in self.cut:
            stage.arrive(fetch.file, -errno.ECONNRESET)
        elif state is ReplicaState.READY and not peer.written[fetch.file]:
            stage.arrive(fetch.file)
        elif reason or peer.written[fetch.file]:
            stage.arrive(fetch.file, -errno.ENOENT)
        elif state is ReplicaState.ABSENT:
            peer.ask(fetch.file)

    def pass_time(self, seconds: float) -> None:
        """Let time pass on all nodes, and programs look again."""
        for number, stage in enumerate(self.nodes):
            for file in sorted(self.waiting[number]):
                self._look(number, file)
            stage.pass_time(seconds)
            self._mend_links(number)

    def _mend_links(self, number: int) -> None:
        sources = self.nodes[number].sources
        sources.openings()
        for peer in range(len(self.nodes)):
            if peer == number or not sources.due(peer):
                continue
            if (number, peer) in self.cut:
                sources.failed(peer)
            else:
                sources.connected(peer)

    def round(self) -> None:
        """Everything in flight continues as well as it can."""
        for number, stage in enumerate(self.nodes):
            for _ in range(len(stage.engine.orders)):
                self.copy(number)
            for fetch in list(stage.receiver.fetches):
                self.deliver(number, fetch)
        self.pass_time(0.05)

    def finish(self) -> None:
        """No program waits longer than some rounds when nothing fails any more."""
        for _ in range(ROUNDS_MAX):
            if not self.is_busy():
                return
            self.round()
        pytest.fail(f"somebody waits for ever: {self.waiting} {self.nodes}")

    def is_busy(self) -> bool:
        """Whether a program waits or a Transfer runs."""
        return any(self.waiting) or any(node.stager.in_flight for node in self.nodes)

    def check(self) -> None:
        """The invariants of every moment."""
        for number, stage in enumerate(self.nodes):
            check_flights(stage)
            check_accounts(stage)
            for file, _, peer in stage.fetching():
                order = self.orders[file]
                assert order.index(peer) < order.index(number), "requests flow uphill"
            assert stage.counters.agent_errors == 0


def check_flights(stage: Stage) -> None:
    """Each File has one Transfer at most, and is STAGING exactly while it has one."""
    files = [order.file for order in stage.engine.orders]
    files += [fetch.file for fetch in stage.receiver.fetches]
    staging = {
        file for file in range(FILES) if stage.state(file)[0] is ReplicaState.STAGING
    }
    assert len(files) == len(set(files))
    assert set(files) == staging


def check_accounts(stage: Stage) -> None:
    """No Tier exceeds its capacity; reservations equal the transfers in flight."""
    for number in range(2):
        account = stage.account(number)
        held = account.used_bytes + account.reserved_bytes
        assert held <= account.capacity_bytes or not account.in_service
        under_way = [o.file for o in stage.engine.orders if o.tier == number]
        under_way += [f.file for f in stage.receiver.fetches if f.tier == number]
        assert account.reserved_bytes == len(under_way) * footprint(PAGE)
        ready = [word_parts(word)[:2] for word in stage.words.tolist()]
        count = ready.count((ReplicaState.READY, number))
        assert account.used_bytes == count * footprint(PAGE)


def disturb(cluster: Cluster, random: Random) -> None:
    """Let one thing happen, good or bad."""
    node = random.randrange(len(cluster.nodes))
    peer = random.randrange(len(cluster.nodes))
    stage = cluster.nodes[node]
    fetches = stage.receiver.fetches
    match random.randrange(13):
        case 0 | 1 | 2:
            cluster.open(node, random.randrange(FILES))
        case 3 | 4:
            cluster.copy(node)
        case 5 | 6 | 7 if fetches:
            cluster.deliver(node, random.choice(fetches))
        case 8 if fetches:
            cause, step = random.choice([*LATER, *AT_TIER])
            stage.arrive(random.choice(fetches).file, -cause, step)
        case 9 if node != peer:
            cluster.cut ^= {(node, peer)}
            if (node, peer) in cluster.cut:
                stage.sources.lost(peer)
        case 10 if stage.engine.orders:
            cause, step = random.choice([(errno.EIO, Step.READ), *AT_TIER])
            cluster.copy(node, -cause, step)
        case 11 if random.random() < 0.2:
            stage.written[random.randrange(FILES)] = 1
        case 12 if random.random() < 0.5:
            cluster.copy_untold(node)
            stage.stager.relieve(used_bytes=20 * PAGE, limit_bytes=20 * PAGE)
            stage.stager.admit(random.randrange(-PAGE, 20 * PAGE))
    cluster.pass_time(random.choice([0.0, 0.02, 0.3]))


@settings(max_examples=30)
@given(
    random=st.randoms(use_true_random=False),
    rooms=st.lists(st.integers(0, FILES), min_size=2, max_size=4),
    pool=st.integers(0, 4),
    mode=st.sampled_from(Mode),
    fill=st.sampled_from([FILL, NO_FILL]),
)
def test_whatever_fails_every_request_ends_and_no_invariant_breaks(
    random, rooms, pool, mode, fill
):
    placement = place(FILES, [room * PAGE for room in rooms], mode)
    with memory_directory() as directory:
        cluster = Cluster(directory, placement, rooms, pool, fill)
        for _ in range(STEPS):
            disturb(cluster, random)
            cluster.check()

        cluster.cut.clear()
        cluster.finish()

        cluster.check()
        for stage in cluster.nodes:
            stage.stager.stop()
        shutil.rmtree(directory / "n0")


@settings(max_examples=20)
@given(
    random=st.randoms(use_true_random=False),
    nodes=st.integers(2, 4),
    mode=st.sampled_from(Mode),
    fill=st.sampled_from([FILL, NO_FILL]),
)
def test_without_trouble_each_file_is_read_from_the_origin_once(
    random, nodes, mode, fill
):
    placement = place(FILES, [FILES * PAGE] * nodes, mode)
    with memory_directory() as directory:
        rooms = [FILES] * nodes
        cluster = Cluster(directory, placement, rooms, 2 * FILES, fill)
        wanted = [(node, file) for node in range(nodes) for file in range(FILES)]
        random.shuffle(wanted)

        for node, file in wanted:
            cluster.open(node, file)
            if random.random() < 0.3:
                cluster.round()
            cluster.check()
        cluster.finish()

        assert cluster.copied == Counter(range(FILES))
        for stage in cluster.nodes:
            words = stage.words.tolist()
            assert {word_parts(word)[0] for word in words} == {ReplicaState.READY}
            assert stage.counters.origin_instead_files == 0
            assert stage.tally("origin_instead_files") == 0


@settings(max_examples=30)
@given(random=st.randoms(use_true_random=False), mode=st.sampled_from(Mode))
def test_a_lost_node_costs_the_origin_no_more_than_what_it_held(random, mode):
    nodes, lost = 4, 1
    placement = place(FILES, [FILES * PAGE] * nodes, mode)
    with memory_directory() as directory:
        cluster = Cluster(directory, placement, [FILES] * nodes, 2 * FILES, NO_FILL)
        for file in range(FILES):
            cluster.open(random.randrange(nodes), file)
        cluster.finish()
        before = cluster.copied.copy()
        held = cluster.nodes[lost].account(0).used_bytes // PAGE

        for node in range(nodes):
            if node != lost:
                cluster.cut.add((node, lost))
                cluster.nodes[node].sources.gone(lost)
        for node in range(nodes):
            for file in range(FILES) if node != lost else ():
                cluster.open(node, file)
        cluster.finish()

        assert (cluster.copied - before).total() <= held
