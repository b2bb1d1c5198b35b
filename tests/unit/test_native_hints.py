"""Hints in the native engine: read ahead in order, as far as the Pool has room."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from monarch import native
from monarch.native import CONSTANTS, DTYPES, Reason, ReplicaState, Table
from monarch.stager import Destination
from support.processes import wait_until
from support.stages import memory_directory
from unit.test_native_staging import Job, files_of, make_job

PAGE = 4096
FILES, POOL_FILES = 40, 8
POOL = 0  # behind no Tier at all
AHEAD = POOL_FILES * 3 // 4  # of hints.c, on a node without peers
SHARED = POOL_FILES // 2  # where others use the Pool, too
PROGRAM = 77
PAUSE_S = 0.3  # some turns of the thread that looks for free space
LEFT_OUT = 3 * POOL_FILES + 64  # opens after which a claim is given up, at most


@dataclass(frozen=True, slots=True)
class Node:
    """An engine whose only place for Files is the Pool."""

    job: Job
    table: Table
    engine: native.Engine

    def hint(self, files: Any, program: int = PROGRAM) -> None:
        """Announce the files that a program will open."""
        self.engine.hint(program, np.array(list(files), np.uint32))

    def open(self, *files: int) -> None:
        """Count opens, as programs do."""
        flags: Any = self.job.board.flags
        start = int(
            flags[: DTYPES["flags"].itemsize].view(DTYPES["flags"])["opened"][0]
        )
        for file in files:
            flags[start + file] += 1

    def state(self, file: int) -> tuple[ReplicaState, int, Reason]:
        """The state of a File."""
        return native.word_parts(int(self.job.states[file]))

    def ready(self) -> list[int]:
        """The Files that can be opened."""
        states = (self.state(file)[0] for file in range(len(self.job.states)))
        return [f for f, state in enumerate(states) if state is ReplicaState.READY]

    def has(self, file: int) -> bool:
        """Whether a File can be opened."""
        return self.state(file)[0] is ReplicaState.READY

    def sees(self, files: Any) -> None:
        """Wait until exactly these Files can be opened, and see that it stays so."""
        expected = sorted(files)
        wait_until(lambda: self.ready() == expected, f"files {expected}")
        time.sleep(PAUSE_S)
        assert self.ready() == expected


def table_of(job: Job, sizes: list[int], pool_bytes: int, *, shared: bool) -> Table:
    """A table by which no File has room in a Tier."""
    files = files_of(job, sizes)
    table = Table(files, 0, 1 << 20)
    rows = np.zeros(int(files.first[-1]), native.TABLE_ROW)
    rows["destination"] = Destination.POOL if shared else Destination.TIER
    rows["sources"] = native.NO_SOURCE
    table.follow(rows, 0, 1, uses_pool=shared)
    table.set_capacity(POOL, pool_bytes)
    return table


@pytest.fixture
def make() -> Iterator[Callable[..., Node]]:
    """A function that starts an engine with a Pool on tmpfs."""

    def start(
        sizes: list[int] | None = None,
        pool_bytes: int = POOL_FILES * PAGE,
        *,
        shared: bool = False,
    ) -> Node:
        sizes = sizes or [PAGE - 1] * FILES
        job = make_job(directory, sizes)
        table = table_of(job, sizes, pool_bytes, shared=shared)
        stack.callback(table.close)
        options = replace(job.options, table=table)
        return Node(job, table, stack.enter_context(native.Engine(job.board, options)))

    with memory_directory() as directory, ExitStack() as stack:
        yield start


def test_hints_read_ahead_until_the_pool_is_full(make: Callable[..., Node]) -> None:
    node = make()
    order = [9, 3, 30, 1, 20, 7, 11, 13, 2]

    node.hint(order)

    node.sees(order[:AHEAD])
    found = node.engine.hints()
    assert (found.left, found.unopened) == (len(order) - AHEAD, AHEAD)
    assert found.unopened_bytes == AHEAD * PAGE


def test_beside_files_of_peers_hints_take_half_of_the_pool(
    make: Callable[..., Node],
) -> None:
    node = make(shared=True)

    node.hint(range(20))

    node.sees(range(SHARED))


def test_a_file_that_was_opened_makes_room_for_the_next(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.hint(range(20))
    node.sees(range(AHEAD))

    node.open(0, 1)

    wait_until(lambda: {6, 7} <= set(node.ready()), "the next two")
    assert set(range(2, 8)) <= set(node.ready())


def test_an_evicted_replica_is_not_requested_on_a_node_without_peers(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.hint(range(20))
    node.sees(range(AHEAD))

    node.open(*range(AHEAD))

    wait_until(lambda: 0 not in node.ready(), "the first to leave")
    assert node.state(0) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)


def test_a_whole_order_is_read_ahead_as_programs_go_through_it(
    make: Callable[..., Node],
) -> None:
    node = make()
    order = [file for file in range(FILES) if file % 3] * 2
    node.hint(order)

    for file in order:
        wait_until(partial(node.has, file), f"file {file}")
        node.open(file)

    assert node.engine.hints().left == 0
    assert node.table.tally()["hinted_files"] >= len(order) - POOL_FILES
    assert node.table.tally()["hinted_files"] <= len(order)


def test_files_opened_before_their_turn_are_skipped(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.hint(range(AHEAD + 3))
    node.sees(range(AHEAD))

    node.open(AHEAD, 0, 1)

    wait_until(lambda: AHEAD + 2 in node.ready(), "the last one")
    assert AHEAD not in node.ready()
    assert node.table.tally()["hinted_files"] == AHEAD + 2


def test_a_file_that_is_opened_twice_in_each_epoch_is_read_ahead_in_each(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.hint([*range(20), *range(20)])

    for file in [*range(20), *range(20)]:
        wait_until(partial(node.has, file), f"file {file}")
        node.open(file, file)


def test_opens_before_a_hint_do_not_count_for_it(make: Callable[..., Node]) -> None:
    node = make()
    node.hint([0])
    node.open(0, 1, 1, 2)

    node.hint([1, 2])

    wait_until(lambda: {1, 2} <= set(node.ready()), "both")


def test_a_new_order_replaces_the_former_one(make: Callable[..., Node]) -> None:
    node = make()
    node.hint(range(20))
    node.sees(range(AHEAD))

    node.hint(range(30, 40))

    wait_until(lambda: set(range(30, 30 + AHEAD)) <= set(node.ready()), "the new ones")
    assert node.engine.hints().left == 10 - AHEAD


def test_programs_take_turns(make: Callable[..., Node]) -> None:
    node = make()
    node.hint(range(AHEAD))  # so that the first does not run ahead of the second
    node.sees(range(AHEAD))

    node.hint(range(10, 20), program=1)
    node.hint(range(20, 30), program=2)
    node.hint([], program=PROGRAM)

    wait_until(lambda: {10, 11, 20, 21} <= set(node.ready()), "two for each")
    time.sleep(PAUSE_S)
    assert not {14, 24} & set(node.ready())


def test_an_empty_order_cancels_the_former_one(make: Callable[..., Node]) -> None:
    node = make()
    node.hint(range(20))
    node.sees(range(AHEAD))

    node.hint([])

    assert node.engine.hints() == (0, 0, 0, 0)


def test_a_file_that_programs_leave_out_does_not_stop_the_others(
    make: Callable[..., Node],
) -> None:
    node = make()
    order = [0, *[1 + n % (FILES - 1) for n in range(2 * LEFT_OUT)]]
    node.hint(order)

    for file in order[1:]:
        wait_until(partial(node.has, file), f"file {file}")
        node.open(file)

    wait_until(lambda: node.engine.hints().unopened == 0, "the end")
    assert node.engine.hints().given_up_files == 1


def test_files_too_large_for_the_pool_are_skipped(
    make: Callable[..., Node],
) -> None:
    sizes = [PAGE - 1] * FILES
    sizes[1] = (POOL_FILES + 1) * PAGE
    node = make(sizes)

    node.hint([0, 1, 2])

    node.sees([0, 2])


def test_hints_are_skipped_without_a_pool(make: Callable[..., Node]) -> None:
    node = make(pool_bytes=0)

    node.hint(range(20))

    wait_until(lambda: node.engine.hints().left == 0, "the end of the order")
    assert node.ready() == []


def test_a_file_that_no_tier_had_room_for_is_read_ahead(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.engine.demand(5)
    assert node.state(5) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)

    node.hint([5])

    node.sees([5])


def test_hints_take_precedence_over_fill(make: Callable[..., Node]) -> None:
    node = make(pool_bytes=FILES * PAGE, shared=True)
    order = [31, 17, 25, 3]
    node.hint([*order, *range(4, 10)])

    node.engine.fill(np.arange(FILES, dtype=np.uint32), np.zeros(0, np.uint32))

    wait_until(lambda: set(order) <= set(node.ready()), "the hinted files")
    assert node.table.tally()["hinted_files"] >= len(order)


def test_an_order_with_a_file_that_does_not_exist_is_refused(
    make: Callable[..., Node],
) -> None:
    with pytest.raises(OSError, match="hints") as refused:
        make().hint([0, FILES])

    assert refused.value.errno == errno.EINVAL


def test_too_many_programs_are_refused(make: Callable[..., Node]) -> None:
    node = make()
    for program in range(CONSTANTS["HINT_ORDERS_MAX"]):
        node.hint(range(20), program=program)

    with pytest.raises(OSError, match="hints") as refused:
        node.hint(range(20), program=1 << 20)

    assert refused.value.errno == errno.ENOSPC


def test_written_files_are_not_read_ahead(make: Callable[..., Node]) -> None:
    node = make()
    flags: Any = node.job.board.flags
    marks: npt.NDArray[np.uint8] = flags[DTYPES["flags"].itemsize :]
    marks[1] = CONSTANTS["MARKED_ALL"]

    node.hint([0, 1, 2])

    node.sees([0, 2])


def test_hints_have_a_share_where_fill_has_none(make: Callable[..., Node]) -> None:
    node = make()
    node.engine.set_background(0, 0)

    node.hint([4, 2, 7])

    node.sees([2, 4, 7])
