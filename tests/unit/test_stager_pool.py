"""The transit pool on a real tmpfs: bytes come back only when nobody can have them."""

import errno
import mmap
import os

import pytest

from monarch.native import Reason, ReplicaState, Step
from monarch.placement import Mode, Placement
from monarch.stager.pool import BUSY_S, HELD_S, OPEN_S, PROOF_S, is_unused
from support.stages import Stage, make_stage, memory_directory, place

PAGE = 4096
POOL_FILES = 8
POOL = 1


def remote(placement: Placement) -> list[int]:
    """The Files that node 0 does not keep."""
    return [f for f in range(len(placement.needs)) if placement.owners[f] != 0]


@pytest.fixture
def stage():
    """Node 0 of two, with room for eight Files in transit."""
    with memory_directory() as directory:
        stage = make_stage(directory, [PAGE] * 200, pool_bytes=POOL_FILES * PAGE)
        stage.join(place(200, [1 << 20] * 2), 0)
        yield stage
        stage.stager.abandon()


@pytest.fixture
def files(stage: Stage) -> list[int]:
    return remote(stage.placement)


def fetch(stage: Stage, *files: int) -> None:
    stage.ask(*files)
    for file in files:
        stage.arrive(file)


def account(stage: Stage):
    return stage.account(POOL)


def leave(stage: Stage) -> None:
    """Let so much time pass that what can leave has left."""
    stage.pass_time(1.1 * OPEN_S)
    stage.pass_time(1.1 * PROOF_S)


def test_a_file_that_is_not_kept_lands_in_the_pool(stage, files):
    stage.ask(files[0])

    assert stage.fetching() == [(files[0], POOL, 1)]
    stage.arrive(files[0])

    assert stage.state(files[0])[:2] == (ReplicaState.READY, POOL)
    assert (stage.counters.peer_files, stage.counters.peer_bytes) == (1, PAGE)
    assert (stage.counters.transit_files, stage.counters.transit_bytes) == (1, PAGE)
    assert stage.account(0).used_bytes == 0


def test_the_oldest_leave_ahead_of_need_and_one_part_stays_free(stage, files):
    fetch(stage, *files[:POOL_FILES])

    leave(stage)

    assert stage.state(files[0]) == (ReplicaState.ABSENT, 0, Reason.NONE)
    assert not stage.path(files[0], POOL).exists()
    assert [stage.state(f)[0] for f in files[1:POOL_FILES]] == [ReplicaState.READY] * 7
    assert account(stage).free_bytes == PAGE
    assert stage.engine.forgotten[0][0] == POOL


def test_nothing_leaves_before_those_who_waited_can_have_opened_it(stage, files):
    fetch(stage, *files[:POOL_FILES])

    stage.pass_time(OPEN_S / 2)

    assert [stage.state(f)[0] for f in files[:POOL_FILES]] == [ReplicaState.READY] * 8


@pytest.mark.parametrize("held", ["open", "mapped", "inherited"])
def test_bytes_are_given_back_when_the_last_holder_has_gone(stage, files, held):
    fetch(stage, *files[:POOL_FILES])
    fd = os.open(stage.path(files[0], POOL), os.O_RDONLY)
    ino = os.fstat(fd).st_ino
    end = hold(fd, held)

    leave(stage)
    stage.pass_time(1.1 * HELD_S)

    # Its name is gone, its room is not, so another one has had to leave instead.
    assert stage.state(files[0])[0] is ReplicaState.ABSENT
    assert (POOL, ino) not in stage.engine.forgotten
    leave(stage)
    assert stage.state(files[1])[0] is ReplicaState.ABSENT
    end()
    stage.pass_time(1.1 * HELD_S)
    assert (POOL, ino) in stage.engine.forgotten
    assert account(stage).used_bytes == (POOL_FILES - 2) * PAGE


def hold(fd: int, how: str):
    """Keeps a file in use in one of three ways; returns what ends that."""
    if how == "open":
        return lambda: os.close(fd)
    if how == "mapped":
        mapping = mmap.mmap(fd, PAGE, prot=mmap.PROT_READ)
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

    def end():
        os.close(writes)
        os.waitpid(pid, 0)

    return end


def test_reading_goes_on_while_and_after_a_replica_leaves(stage, files):
    fetch(stage, *files[:POOL_FILES])
    with open(stage.path(files[0], POOL), "rb") as held:
        leave(stage)
        stage.stager.stop()
        stage.stager.abandon()

        assert held.read() == b"x" * PAGE


def test_a_file_waits_for_room_and_gets_it_without_being_asked_for_again(stage, files):
    stage.ask(*files[: POOL_FILES + 1])
    late = files[POOL_FILES]
    assert stage.state(late) == (ReplicaState.ABSENT, 0, Reason.NONE)
    assert len(stage.fetching()) == POOL_FILES
    for file in files[:POOL_FILES]:
        stage.arrive(file)

    leave(stage)
    stage.pass_time(0.0)

    assert stage.fetching() == [(late, POOL, 1)]
    assert stage.counters.transit_full == 0


def test_programs_are_sent_to_the_origin_when_no_room_comes(stage, files):
    held, late = files[:POOL_FILES], files[POOL_FILES]
    stage.ask(*held, late)

    stage.pass_time(1.1 * BUSY_S)
    busy = stage.state(late)
    stage.pass_time(1.1 * BUSY_S)

    assert busy == (ReplicaState.ABSENT, 0, Reason.BUSY)
    assert stage.state(late) == (ReplicaState.ABSENT, 0, Reason.NONE)
    assert stage.counters.transit_full == 1
    assert account(stage).free_bytes == 0
    stage.ask(late)
    assert len(stage.fetching()) == POOL_FILES, "there is no room still"


def test_a_file_that_no_pool_of_this_size_can_take_stays_on_the_origin(tmp_path):
    stage = make_stage(tmp_path, [100 * PAGE] * 50, pool_bytes=99 * PAGE)
    stage.join(place(50, [1 << 30] * 2, need=100 * PAGE), 0)
    file = remote(stage.placement)[0]

    stage.ask(file)

    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)


def test_a_large_file_that_nobody_waits_for_takes_only_what_nothing_leaves_for(
    tmp_path,
):
    stage = make_stage(tmp_path, [2 << 20] * 60, pool_bytes=7 << 20)
    stage.join(place(60, [1 << 30] * 2, need=2 << 20), 0)
    first, second, third, fourth = remote(stage.placement)[:4]

    stage.ask(first, second, third, fourth)

    assert [file for file, _, _ in stage.fetching()] == [first, second, third]
    for file in (first, second, third):
        stage.arrive(file)
    stage.pass_time(1.1 * BUSY_S)
    stage.ask(fourth)
    assert stage.fetching() == []
    assert stage.state(first)[:2] == (ReplicaState.READY, POOL)
    assert stage.state(fourth) == (ReplicaState.ABSENT, 0, Reason.NONE)


def test_a_replica_that_somebody_removed_is_lost_not_served(stage, files):
    fetch(stage, files[0])
    stage.path(files[0], POOL).unlink()

    stage.ask(files[0])

    assert stage.fetching() == [(files[0], POOL, 1)]
    assert stage.counters.replicas_lost == 1
    stage.arrive(files[0])
    fetch(stage, *files[1:POOL_FILES])
    leave(stage)
    assert account(stage).used_bytes == (POOL_FILES - 1) * PAGE


def test_a_replica_that_is_gone_when_it_is_to_leave_gives_its_room_back(stage, files):
    fetch(stage, *files[:POOL_FILES])
    stage.path(files[0], POOL).unlink()

    leave(stage)

    assert stage.state(files[0])[0] is ReplicaState.ABSENT
    assert account(stage).used_bytes == (POOL_FILES - 1) * PAGE


def test_a_pool_whose_directory_has_vanished_is_used_no_more(stage, files):
    fetch(stage, files[0])
    for path in stage.pool.directory.iterdir():
        path.unlink()
    stage.pool.directory.rmdir()
    stage.ask(files[1])

    stage.arrive(files[1], -errno.ENOENT, Step.CREATE)

    assert stage.state(files[0])[0] is ReplicaState.ABSENT
    assert stage.state(files[1]) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    assert (account(stage).used_bytes, account(stage).reserved_bytes) == (0, 0)
    assert stage.account(0).in_service


def test_the_end_closes_every_descriptor_and_answers_who_waits(stage, files):
    stage.ask(*files[: POOL_FILES + 1])
    for file in files[:POOL_FILES]:
        stage.arrive(file)
    stage.pass_time(1.1 * OPEN_S)
    held = len(os.listdir("/proc/self/fd"))

    stage.stager.stop()
    stage.stager.abandon()

    assert len(os.listdir("/proc/self/fd")) < held
    assert stage.state(files[POOL_FILES])[2] is Reason.STOPPING


def test_an_epoch_through_a_small_pool_keeps_to_its_capacity(stage, files):
    for file in files:
        stage.ask(file)
        assert account(stage).used_bytes <= POOL_FILES * PAGE
        stage.arrive(file)
        leave(stage)

    assert stage.counters.transit_files == len(files)
    assert stage.counters.transit_full == 0
    assert len(list(stage.pool.directory.iterdir())) <= POOL_FILES


def test_a_lease_proves_that_a_file_is_unused_and_leaves_none_behind():
    with memory_directory() as directory:
        (directory / "file").write_bytes(b"x")
        fd = os.open(directory / "file", os.O_RDONLY)
        with open(directory / "file", "rb"):
            assert not is_unused(fd)
        assert is_unused(fd)
        # With the lease still held, this open would wait for its holder to end.
        with open(directory / "file", "rb") as again:
            assert again.read() == b"x"
        os.close(fd)


def test_without_leases_there_is_no_transit(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("monarch.stager.pool.is_unused", lambda fd: False)
    stage = make_stage(tmp_path, [PAGE] * 50, pool_bytes=POOL_FILES * PAGE)
    stage.join(place(50, [1 << 20] * 2), 0)
    file = remote(stage.placement)[0]

    stage.ask(file)

    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    assert "no leases" in caplog.text


def test_in_partition_mode_spare_room_is_not_for_what_others_hold(stage, files):
    assert stage.placement.mode is Mode.PARTITION
    fetch(stage, *files[:3])

    assert stage.account(0).used_bytes == 0
