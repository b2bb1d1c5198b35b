"""The Pool of the native engine: bytes are freed only when no process can have them."""

import mmap
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from monarch import native
from monarch.native import DTYPES, Reason, ReplicaState, Table
from monarch.stager import Destination
from support.processes import wait_until
from support.stages import memory_directory
from unit.test_native_staging import Job, files_of, make_job

PAGE = 4096
FILES, POOL_FILES = 40, 8
POOL = 0  # behind no Tier at all
LARGE_BYTES = 1 << 20
BUSY_S, WAITERS_S = 0.1, 1.0  # of pool_queue.c and pool.c
READY = (ReplicaState.READY, POOL, Reason.NONE)
ABSENT = (ReplicaState.ABSENT, 0, Reason.NONE)
BUSY = (ReplicaState.ABSENT, 0, Reason.BUSY)


@dataclass(frozen=True, slots=True)
class Node:
    """An engine whose only place for Files is the Pool."""

    job: Job
    table: Table
    engine: native.Engine

    def state(self, file: int) -> tuple[ReplicaState, int, Reason]:
        """The state of a File."""
        return native.word_parts(int(self.job.states[file]))

    def bring(self, *files: int) -> None:
        """Request Files one after another, and wait until each has arrived."""
        for file in files:
            self.engine.demand(file)
            wait_until(partial(self.is_ready, file), f"file {file}")

    def is_ready(self, file: int) -> bool:
        """Whether it can be opened."""
        return self.state(file) == READY

    @property
    def used_bytes(self) -> int:
        """The bytes that the Pool has not freed."""
        return self.table.account(POOL).used_bytes

    @property
    def waiters(self) -> npt.NDArray[np.uint32]:
        """How many programs wait, by File."""
        requests: Any = self.job.board.requests
        found: npt.NDArray[np.uint32] = requests.view(DTYPES["requests"])["waiters"][0]
        return found

    def recognises(self, ino: int) -> bool:
        """Whether descriptors of an inode are known as a Replica's."""
        inodes: Any = self.job.board.inodes
        slots = inodes[DTYPES["inodes"].itemsize :].view(DTYPES["inode"])
        return ino in slots["ino"].tolist()


def table_of(job: Job, sizes: list[int], pool_bytes: int) -> Table:
    """A table by which every File is read from the origin into the Pool."""
    files = files_of(job, sizes)
    table = Table(files, 0, LARGE_BYTES)
    rows = np.zeros(int(files.first[-1]), native.TABLE_ROW)
    rows["destination"], rows["sources"] = Destination.POOL, native.NO_SOURCE
    table.follow(rows, 0, 1, uses_pool=True)
    table.set_capacity(POOL, pool_bytes)
    return table


@pytest.fixture
def make() -> Iterator[Callable[..., Node]]:
    """A function that starts an engine with a Pool on tmpfs."""
    ended: list[Node] = []

    def start(
        sizes: list[int] | None = None, pool_bytes: int = POOL_FILES * PAGE
    ) -> Node:
        sizes = sizes or [PAGE - 1] * FILES
        job = make_job(directory, sizes)
        table = table_of(job, sizes, pool_bytes)
        engine = native.Engine(job.board, replace(job.options, table=table))
        ended.append(Node(job, table, engine))
        return ended[-1]

    with memory_directory() as directory:
        yield start
        for node in ended:
            node.engine.close()
            node.table.close()


def test_transit_files_are_counted(make: Callable[..., Node]) -> None:
    node = make()

    node.bring(0)

    tally = node.table.tally()
    assert (tally["staged_files"], tally["transit_files"]) == (1, 1)
    assert tally["transit_bytes"] == PAGE - 1
    assert node.used_bytes == PAGE


def test_the_oldest_are_evicted_ahead_of_need_and_one_part_stays_free(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.bring(0)
    ino = node.job.replica(0).stat().st_ino

    node.bring(*range(1, POOL_FILES))

    wait_until(lambda: node.used_bytes == (POOL_FILES - 1) * PAGE, "room is made")
    assert node.state(0) == ABSENT
    assert not node.job.replica(0).exists()
    assert not node.recognises(ino)
    assert [node.state(file) for file in range(1, POOL_FILES)] == [READY] * 7


def test_an_awaited_replica_stays_until_it_was_opened(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.waiters[0] = 1

    node.bring(*range(POOL_FILES))

    wait_until(lambda: node.state(1) == ABSENT, "another one has left instead")
    assert node.state(0) == READY
    node.waiters[0] = 0
    node.bring(*range(POOL_FILES, 2 * POOL_FILES + 1))
    wait_until(lambda: node.state(0) == ABSENT, "it leaves")


def test_a_program_that_was_killed_holds_its_replica_for_a_second_only(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.waiters[0] = 1
    node.bring(0)
    time.sleep(WAITERS_S)

    node.bring(*range(1, POOL_FILES))

    wait_until(lambda: node.state(0) == ABSENT, "it leaves")
    assert node.waiters[0] == 0


def hold(path: Path, how: str) -> Callable[[], object]:
    """Keeps a file in use in one of three ways; returns what ends that."""
    fd = os.open(path, os.O_RDONLY)
    if how == "open":
        return lambda: os.close(fd)
    if how == "mapped":
        mapping = mmap.mmap(fd, 10, prot=mmap.PROT_READ)
        os.close(fd)
        return mapping.close
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writes)
        os.read(reads, 1)
        os._exit(0)
    os.close(reads)
    os.close(fd)

    def end() -> None:
        os.close(writes)
        os.waitpid(pid, 0)

    return end


@pytest.mark.parametrize("how", ["open", "mapped", "inherited"])
def test_bytes_are_freed_when_the_last_holder_has_ended(
    make: Callable[..., Node], how: str
) -> None:
    node = make()
    node.bring(0)
    ino = node.job.replica(0).stat().st_ino
    end = hold(node.job.replica(0), how)

    node.bring(*range(1, POOL_FILES))

    # Its name is gone, its space is not, so another one had to leave instead.
    wait_until(lambda: node.state(1) == ABSENT, "another one has left")
    assert node.state(0) == ABSENT
    assert node.recognises(ino)
    before = node.used_bytes
    end()
    wait_until(lambda: not node.recognises(ino), "it is looked at again")
    wait_until(lambda: node.used_bytes == before - PAGE, "its room comes back")


def test_reading_continues_during_and_after_an_eviction(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.bring(0)
    content = (node.job.origin / "file0").read_bytes()
    with node.job.replica(0).open("rb", buffering=0) as held:
        assert held.read(10) == content[:10]
        node.bring(*range(1, POOL_FILES))
        wait_until(lambda: node.state(0) == ABSENT, "it leaves")
        assert held.read(10) == content[10:20]
        node.engine.close()
        assert held.read() == content[20:]


def fill_with_awaited(node: Node) -> None:
    """Let programs wait for all that has room in the Pool."""
    for file in range(POOL_FILES):
        node.waiters[file] = 1
    node.bring(*range(POOL_FILES))


def test_a_file_waits_for_room_and_gets_it_without_a_new_request(
    make: Callable[..., Node],
) -> None:
    node = make()
    fill_with_awaited(node)

    node.waiters[POOL_FILES] = 1
    node.engine.demand(POOL_FILES)
    before = node.state(POOL_FILES)
    node.waiters[3] = 0

    wait_until(lambda: node.state(POOL_FILES) == READY, "it has room")
    assert before == ABSENT
    assert node.state(3) == ABSENT
    assert node.table.tally()["transit_full"] == 0


def test_a_replica_is_evicted_later_if_no_descriptor_is_free(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.bring(*range(POOL_FILES))
    first_free = os.dup(0)
    os.close(first_free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, before[1]))
    try:
        for file in range(POOL_FILES, POOL_FILES + 3):
            node.engine.demand(file)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    node.bring(*range(2 * POOL_FILES, 4 * POOL_FILES))

    assert [node.state(file) for file in range(POOL_FILES)] == [ABSENT] * POOL_FILES


def test_the_evicting_thread_is_woken_for_a_waiting_file(
    make: Callable[..., Node],
) -> None:
    """A peer asks by another thread; the next beat may be a tenth of a second away."""
    node = make()
    fill_with_awaited(node)
    requests: Any = node.job.board.requests
    bell = requests.view(DTYPES["requests"])["bell"]
    before = int(bell[0])

    node.engine.demand(POOL_FILES)

    assert bell[0] == before + 1
    wait_until(lambda: node.state(POOL_FILES) == BUSY, "it has waited")


def test_programs_read_the_origin_if_no_room_is_freed(
    make: Callable[..., Node],
) -> None:
    node = make()
    fill_with_awaited(node)
    began_s = time.monotonic()

    node.engine.demand(POOL_FILES)

    wait_until(lambda: node.state(POOL_FILES) == BUSY, "it is refused")
    assert time.monotonic() - began_s >= BUSY_S
    wait_until(lambda: node.state(POOL_FILES) == ABSENT, "it can be asked for again")
    assert time.monotonic() - began_s >= 2 * BUSY_S
    assert node.table.tally()["transit_full"] == 1
    assert node.used_bytes == POOL_FILES * PAGE


def test_a_file_that_no_pool_of_this_size_can_take_stays_on_the_origin(
    make: Callable[..., Node],
) -> None:
    node = make([9 * PAGE, PAGE])

    node.engine.demand(0)

    assert node.state(0) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)


def test_nothing_is_evicted_for_a_large_file_without_waiting_programs(
    make: Callable[..., Node],
) -> None:
    size = 2 * LARGE_BYTES
    node = make([size] * 4, pool_bytes=7 * LARGE_BYTES)
    node.bring(0, 1, 2)

    node.engine.demand(3)

    # An eighth stays free for Files that programs do wait for.
    assert node.state(3) == ABSENT
    assert [node.state(file) for file in range(3)] == [READY] * 3


def test_python_is_asked_about_a_replica_that_is_missing_at_its_eviction(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.bring(0)
    node.job.replica(0).unlink()

    node.bring(*range(1, POOL_FILES))

    wait_until(lambda: node.engine.requests() == [0], "Python hears of it")
    assert node.state(0) == READY, "it is for Python to say that it is lost"


def test_the_end_closes_every_descriptor(make: Callable[..., Node]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    node = make()
    node.bring(0)
    with node.job.replica(0).open("rb"):
        node.bring(*range(1, POOL_FILES))
        wait_until(lambda: node.state(0) == ABSENT, "it is held")
        node.engine.close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_an_epoch_through_a_small_pool_keeps_to_its_capacity(
    make: Callable[..., Node],
) -> None:
    node = make()

    for file in range(FILES):
        node.bring(file)
        assert node.used_bytes <= POOL_FILES * PAGE
        assert len(list(node.job.tier.iterdir())) <= POOL_FILES

    tally = node.table.tally()
    assert (tally["transit_files"], tally["transit_full"]) == (FILES, 0)
