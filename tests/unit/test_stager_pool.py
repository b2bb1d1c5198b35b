"""Python's part of the Pool: its room, its loss, and lost Replicas."""

import errno

import numpy as np
import pytest

from monarch.native import Reason, ReplicaState, Step
from monarch.placement import Mode, Placement
from monarch.tiers.probe import grants_leases
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


@pytest.fixture
def files(stage: Stage) -> list[int]:
    return remote(stage.placement)


def fetch(stage: Stage, *files: int) -> None:
    stage.ask(*files)
    for file in files:
        stage.arrive(file)


def test_a_file_that_is_not_kept_is_stored_in_the_pool(stage, files):
    stage.ask(files[0])

    assert stage.fetching() == [(files[0], POOL, 1)]
    stage.arrive(files[0])

    assert stage.state(files[0])[:2] == (ReplicaState.READY, POOL)
    assert (stage.tally("peer_files"), stage.tally("peer_bytes")) == (1, PAGE)
    assert (stage.tally("transit_files"), stage.tally("transit_bytes")) == (1, PAGE)
    assert stage.account(0).used_bytes == 0


def test_the_pool_is_used_by_nodes_of_a_cluster_only(tmp_path):
    stage = make_stage(tmp_path, [PAGE] * 20, (4 * PAGE,))
    stage.ask(*range(6))

    assert stage.state(5) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    assert stage.stager.pool_account is None
    stage.join(place(20, [4 * PAGE] * 2), 0)
    assert stage.stager.pool_account == stage.account(POOL)


def test_a_removed_replica_is_lost_and_not_served(stage, files):
    fetch(stage, files[0])
    stage.path(files[0], POOL).unlink()

    stage.ask(files[0])

    assert stage.fetching() == [(files[0], POOL, 1)]
    assert stage.counters.replicas_lost == 1
    account = stage.account(POOL)
    assert (account.used_bytes, account.reserved_bytes) == (0, PAGE)


def test_a_replica_that_was_evicted_meanwhile_is_not_lost_too(stage, files):
    fetch(stage, *files[:POOL_FILES])
    stage.engine.asked.append(files[0])
    stage.stager.turn()
    stage.ask(files[POOL_FILES])  # the oldest is evicted for it
    assert stage.state(files[0])[0] is ReplicaState.ABSENT

    assert stage.counters.replicas_lost == 0
    assert stage.account(POOL).used_bytes == (POOL_FILES - 1) * PAGE


def test_a_pool_whose_directory_has_vanished_is_no_longer_used(stage, files):
    fetch(stage, files[0])
    for path in stage.pool.directory.iterdir():
        path.unlink()
    stage.pool.directory.rmdir()
    stage.ask(files[1])

    stage.arrive(files[1], -errno.ENOENT, Step.CREATE)

    assert stage.state(files[0])[0] is ReplicaState.ABSENT
    assert stage.state(files[1]) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    account = stage.account(POOL)
    assert (account.used_bytes, account.reserved_bytes) == (0, 0)
    assert stage.account(0).in_service


def test_a_file_system_in_memory_grants_leases_and_none_is_left_behind():
    with memory_directory() as directory:
        assert grants_leases(directory)
        assert list(directory.iterdir()) == []
        assert not grants_leases(directory / "missing")


def test_without_leases_there_is_no_transit(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("monarch.stager.capacity.grants_leases", lambda place: False)
    stage = make_stage(tmp_path, [PAGE] * 50, pool_bytes=POOL_FILES * PAGE)
    stage.join(place(50, [1 << 20] * 2), 0)
    file = remote(stage.placement)[0]

    stage.ask(file)

    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    assert "no leases" in caplog.text


def test_in_partition_mode_spare_room_is_not_used_for_files_of_others(stage, files):
    assert stage.placement.mode is Mode.PARTITION
    fetch(stage, *files[:3])

    assert stage.account(0).used_bytes == 0


def test_hints_take_the_pool_from_the_memory_that_the_tier_may_have_at_most():
    """However little of it is admitted just now, and what lies there gives way."""
    with memory_directory() as directory:
        stage = make_stage(directory, [PAGE] * 100, (40 * PAGE,), pool_bytes=10 * PAGE)
        stage.stager.table.set_capacity(POOL, 0)
        stage.stager.admit(36 * PAGE)
        stage.ask(*range(36))
        stage.stager.admit(0)

        stage.stager.reading_ahead.hint(7, np.array([40, 41], np.uint32))

        assert stage.account(POOL).capacity_bytes == 10 * PAGE
        assert stage.account(0).used_bytes <= 30 * PAGE
        assert stage.stager.storage.ledger.limit(0) == 30 * PAGE
        assert stage.stager.storage.tiers[0].capacity_bytes == 30 * PAGE
        assert stage.engine.hints == {7: [40, 41]}
        assert stage.counters.evicted_files == 0  # enough memory was free
