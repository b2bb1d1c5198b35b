"""Replicas are evicted for requested Files: those used longest ago."""

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from monarch import native
from monarch.codec import Codec
from monarch.native import DTYPES, Packing, Reason, ReplicaState, Table, state_word
from monarch.native.library import LIB
from monarch.stager import Destination
from support.processes import wait_until
from support.stages import memory_directory
from unit.test_native_packs import add_pool
from unit.test_native_staging import Job, files_of, make_job

PAGE, MIB = 4096, 1 << 20
LARGE_BYTES = 8 * MIB
TIER, POOL = 0, 1
ABSENT = (ReplicaState.ABSENT, Reason.NONE)
READY = ReplicaState.READY
OLD = 1_000_000_000  # ticks: more than the duration of a test

# -- which ones, without any effect ------------------------------------------------


def oldest(
    words: np.ndarray[Any, Any], used: np.ndarray[Any, Any], now: int, most: int
) -> list[tuple[int, int]]:
    """The data plane's choice among the Files in Tier 0."""
    view = np.zeros(1, DTYPES["monarch_lru_view"])
    view["words"], view["used"] = words.ctypes.data, used.ctypes.data
    view["files"], view["tier"], view["now"] = len(words), TIER, now
    out = np.zeros(most, DTYPES["monarch_lru_file"])
    place = ctypes.c_void_p(view.ctypes.data)
    count = LIB.monarch_lru_oldest(place, ctypes.c_void_p(out.ctypes.data), most)
    return [(int(one["file"]), int(one["age"])) for one in out[:count]]


def test_the_oldest_replicas_of_a_tier_are_those_of_a_sorted_list() -> None:
    random = Random(3)
    states = [
        state_word(state, tier, Reason.NONE)
        for state in ReplicaState
        for tier in (TIER, POOL)
    ]
    for _ in range(300):
        count, now = random.randint(0, 60), random.choice([5, 1000, (1 << 32) - 1])
        words = np.array([random.choice(states) for _ in range(count)], np.uint32)
        ages = [random.randrange(random.choice([3, 1000])) for _ in range(count)]
        used = np.array([(now - age) % (1 << 32) for age in ages], np.uint32)
        most = random.choice([1, 2, 7, 100])

        there = [f for f in range(count) if words[f] == state_word(READY, TIER)]
        expected = sorted(there, key=lambda file: (-ages[file], file))[:most]
        assert oldest(words, used, now, most) == [(f, ages[f]) for f in expected]


# -- in an engine ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """An engine with one Tier that evicts, and a Pool."""

    job: Job
    table: Table
    engine: native.Engine
    used: Any
    waiters: Any
    contents: list[bytes]

    def state(self, file: int) -> tuple[ReplicaState, Reason]:
        state, _, reason = native.word_parts(int(self.job.states[file]))
        return state, Reason.NONE if state is READY else reason

    def is_ready(self, file: int) -> bool:
        return self.state(file)[0] is READY

    def bring(self, *files: int) -> None:
        """Ask for Files as programs do, until they are there."""
        for file in files:
            self.engine.demand(file)
            wait_until(partial(self.is_ready, file), f"file {file}")

    def ready(self) -> set[int]:
        return {file for file in range(len(self.job.states)) if self.is_ready(file)}

    @property
    def account(self) -> native.Account:
        return self.table.account(TIER)

    def du(self) -> int:
        """The bytes of blocks below the directory of the Tier."""
        return sum(one.stat().st_blocks * 512 for one in self.job.tier.iterdir())


def noting(job: Job, files: int) -> tuple[Job, Any]:
    """The job with a flags segment that notes when Files are used."""
    old: Any = job.board.flags
    flags = np.concatenate([old, np.zeros(4 * files + 8, np.uint8)])
    head = DTYPES["flags"].itemsize
    place = -(-len(old) // 4) * 4
    record = flags[:head].view(DTYPES["flags"])
    record["recency"], record["tick"] = place, 1
    record["seg"]["length"] = len(flags)
    used = flags[place : place + 4 * files].view(np.uint32)
    return replace(job, board=replace(job.board, flags=flags)), used


@pytest.fixture
def make() -> Iterator[Callable[..., Node]]:
    """A function that starts an engine with a Tier on tmpfs."""
    ended: list[Node] = []

    def start(
        sizes: list[int],
        room: int,
        *,
        codec: str = "",
        to: Destination = Destination.TIER,
    ) -> Node:
        contents = [os.urandom(size) for size in sizes]
        (directory / str(len(ended))).mkdir()
        job = make_job(directory / str(len(ended)), sizes, contents)
        add_pool(job)
        job, used = noting(job, len(sizes))
        files = files_of(job, sizes)
        table = Table(files, 1, LARGE_BYTES)
        rows = np.zeros(int(files.first[-1]), native.TABLE_ROW)
        rows["destination"], rows["sources"] = to, native.NO_SOURCE
        packings: tuple[Packing, ...] = ()
        if codec:
            table.pack(TIER, 1.0)
            packings = (Packing(TIER, Codec.parse(codec), b"", 0, None),)
        table.evict(TIER)
        table.set_capacity(TIER, room)
        table.set_capacity(POOL, 64 * MIB)
        table.follow(rows, 0, 1, uses_pool=False)
        requests: Any = job.board.requests
        record = requests[: DTYPES["requests"].itemsize].view(DTYPES["requests"])
        options = replace(job.options, table=table, packings=packings)
        engine = native.Engine(job.board, options)
        waiters = record["waiters"][0]
        ended.append(Node(job, table, engine, used, waiters, contents))
        return ended[-1]

    with memory_directory() as directory:
        yield start
        for node in ended:
            node.engine.close()
            node.table.close()


def test_a_requested_file_replaces_the_least_recently_used_one(
    make: Callable[..., Node],
) -> None:
    node = make([100_000] * 8, 4 * 102_400)
    node.bring(0, 1, 2, 3)
    now = int(node.used.max())
    node.used[[0, 1, 2, 3]] = now, (now - OLD + 1) % 2**32, now, (now - OLD) % 2**32

    node.bring(4)
    assert node.ready() == {0, 1, 2, 4}
    node.bring(5)
    assert node.ready() == {0, 2, 4, 5}

    assert node.state(3) == ABSENT, "it can be asked for again"
    assert (node.account.evicted_files, node.account.evicted_bytes) == (2, 2 * 102_400)
    assert node.account.used_bytes == node.du() == 4 * 102_400
    node.bring(3)
    assert node.job.replica(3).read_bytes() == node.contents[3]


def test_fill_evicts_nothing(make: Callable[..., Node]) -> None:
    node = make([100_000] * 4, 2 * 102_400)
    node.bring(0, 1)

    node.engine.fill(np.arange(4, dtype=np.uint32), np.zeros(0, np.uint32))
    wait_until(lambda: not sum(node.engine.fill_left()), "fill")

    assert node.ready() == {0, 1}
    assert node.account.evicted_files == 0
    assert node.state(2) == ABSENT, "a program that asks for it gets it"


def test_an_open_replica_stays_and_others_are_evicted(
    make: Callable[..., Node],
) -> None:
    node = make([100_000] * 8, 3 * 102_400)
    node.bring(0, 1, 2)
    node.used[:3] = 0, 1, 2

    with node.job.replica(0).open("rb") as held:
        node.bring(3)
        assert node.ready() == {0, 2, 3}
        assert held.read() == node.contents[0]
    # Files in use are checked again after others have left.
    node.bring(4, 5)

    assert node.ready() == {3, 4, 5}


def test_where_all_replicas_are_in_use_programs_read_the_origin_for_a_while(
    make: Callable[..., Node],
) -> None:
    node = make([100_000] * 4, 2 * 102_400)
    node.bring(0, 1)

    with node.job.replica(0).open("rb"), node.job.replica(1).open("rb"):
        node.engine.demand(2)
        assert node.state(2) == (ReplicaState.ABSENT, Reason.BUSY)
        assert node.ready() == {0, 1}
    wait_until(lambda: node.state(2) == ABSENT, "it may be asked for again")
    node.bring(2)

    assert node.account.evicted_files == 1


def test_a_replica_that_a_program_waits_for_stays(make: Callable[..., Node]) -> None:
    node = make([100_000] * 4, 2 * 102_400)
    node.bring(0, 1)
    node.used[:2] = 0, 1
    node.waiters[0] = 1

    node.bring(2)

    assert node.ready() == {0, 2}


def test_a_file_that_fits_no_tier_evicts_nothing(make: Callable[..., Node]) -> None:
    node = make([100_000, 100_000, 500_000], 2 * 102_400)
    node.bring(0, 1)

    node.engine.demand(2)
    wait_until(lambda: node.state(2)[1] is Reason.NO_ROOM, "it is refused")

    assert node.ready() == {0, 1}


def test_a_file_that_no_node_keeps_is_staged_where_it_is_requested(
    make: Callable[..., Node],
) -> None:
    node = make([100_000] * 3, 2 * 102_400, to=Destination.NOWHERE)

    node.bring(0, 1, 2)

    assert len(node.ready()) == 2
    assert node.account.evicted_files == 1


def test_accounts_are_right_for_any_sequence_of_files(
    make: Callable[..., Node],
) -> None:
    random = Random(5)
    sizes = [random.choice([0, 1, 5000, 70_000, 300_000]) for _ in range(200)]
    node = make(sizes, 2 * MIB)

    for _ in range(600):
        node.bring(random.randrange(len(sizes)))
        account = node.account
        assert account.used_bytes + account.reserved_bytes <= account.capacity_bytes
        assert node.du() <= account.capacity_bytes
    there = sum(max(PAGE, -(-sizes[f] // PAGE) * PAGE) for f in node.ready())

    assert node.account.used_bytes == there
    assert node.account.evicted_files > 100


def test_a_packed_tier_evicts_its_least_recently_used_segment(
    make: Callable[..., Node],
) -> None:
    size = 210_000  # a segment of 1 MiB is full with the fifth
    node = make([size] * 24, 21 * size, codec="none")

    def fill(files: range) -> None:
        node.engine.fill(np.array(files, np.uint32), np.zeros(0, np.uint32))
        wait_until(lambda: (node.table.packed()[list(files)] == TIER).all(), "packed")

    fill(range(20))
    now = int(node.used.max())
    node.used[:20] = now
    node.used[5:10] = (now - OLD) % 2**32
    node.engine.demand(20)
    wait_until(lambda: node.table.packed()[20] == TIER, "it is packed")

    packed = node.table.packed()
    assert np.flatnonzero(packed[:20] != TIER).tolist() == [5, 6, 7, 8, 9]
    assert node.state(5) == ABSENT
    assert node.account.evicted_files == 5
    sizes = sum(one.stat().st_size for one in node.job.tier.iterdir())
    assert sizes == node.account.used_bytes <= 21 * size
    node.engine.demand(5)
    wait_until(partial(node.is_ready, 5), "what has left comes again")
