"""The Stager with an engine scripted by the test."""

import errno
from collections.abc import Callable
from functools import partial

import pytest

from monarch.native import OrderKind, Reason, ReplicaState, Step
from monarch.tiers.tier import PAGE_BYTES
from support import stages
from support.fake_engine import FILL_MAX
from support.stages import FILL, Stage


def ready(tier=0):
    return ReplicaState.READY, tier, Reason.NONE


def staging(tier=0):
    return ReplicaState.STAGING, tier, Reason.NONE


def absent(reason=Reason.NONE):
    return ReplicaState.ABSENT, 0, reason


@pytest.fixture
def make_stage(tmp_path) -> Callable[..., Stage]:
    return partial(stages.make_stage, tmp_path)


def test_a_request_becomes_one_transfer_however_often_it_is_repeated(make_stage):
    stage = make_stage([10, 20])

    stage.ask(1, 1)
    stage.ask(1)

    assert stage.ordered() == [(1, 0)]
    assert stage.state(1) == staging()
    assert stage.tally("demand_transfers") == 1


def test_a_published_replica_is_settled_and_counted(make_stage):
    stage = make_stage([10])
    stage.ask(0)

    stage.end(0)

    account = stage.account(0)
    assert (account.used_bytes, account.reserved_bytes) == (PAGE_BYTES, 0)
    assert (stage.tally("staged_files"), stage.tally("staged_bytes")) == (1, 10)
    assert stage.stager.in_flight == 0
    assert stage.tally("busy_ns") > 0


def test_the_time_of_a_transfer_counts_while_it_runs(make_stage):
    stage = make_stage([10])
    stage.ask(0)

    first, later = stage.tally("busy_ns"), stage.tally("busy_ns")

    assert 0 < first < later
    stage.end(0)
    assert stage.tally("busy_ns") == stage.tally("busy_ns") > later


def test_files_overflow_into_the_next_tier_and_then_stay_on_the_origin(make_stage):
    stage = make_stage([10] * 3, capacities=(PAGE_BYTES, PAGE_BYTES))

    stage.ask(0, 1, 2)

    assert stage.ordered() == [(0, 0), (1, 1)]
    assert stage.state(2) == absent(Reason.NO_ROOM)


def test_a_file_that_does_not_fit_never_stops_smaller_ones(make_stage):
    stage = make_stage([100_000, 10], capacities=(PAGE_BYTES,))

    stage.ask(0, 1)

    assert stage.state(0) == absent(Reason.NO_ROOM)
    assert stage.ordered() == [(1, 0)]


def test_a_written_file_is_not_staged(make_stage):
    stage = make_stage([10])
    stage.written[0] = 1

    stage.ask(0)

    assert stage.ordered() == []
    assert stage.state(0) == absent(Reason.CHANGED)


def test_nothing_of_a_root_that_passes_through_is_staged(make_stage):
    stage = make_stage([[10], [10]], settings=FILL)
    stage.roots[1] = 1
    stage.stager.start()

    stage.ask(1)

    assert stage.ordered() == [(0, 0)]
    assert stage.state(1) == absent(Reason.CHANGED)
    assert stage.stager.changed == []


def test_a_changed_origin_marks_the_file_written_and_lists_it(make_stage):
    stage = make_stage([10])
    stage.ask(0)

    stage.end(0, -errno.ESTALE, Step.STAT)

    assert stage.written[0] != 0
    assert stage.state(0) == absent(Reason.CHANGED)
    assert stage.stager.changed == [0]
    assert stage.account(0).reserved_bytes == 0


def test_a_failed_transfer_can_be_requested_once_more(make_stage):
    stage = make_stage([10])
    stage.ask(0)

    stage.end(0, -errno.EIO, Step.READ)
    first = stage.state(0)
    stage.ask(0)
    stage.end(0, -errno.EIO, Step.READ)

    assert first == absent()
    assert stage.state(0) == absent(Reason.ERROR)
    assert stage.account(0).reserved_bytes == 0
    assert stage.counters.transfers_failed == 2


def test_a_full_tier_takes_no_more_and_the_file_is_placed_in_the_next(make_stage):
    stage = make_stage([10, 10, 10], capacities=(1 << 20, 1 << 20))
    stage.ask(0)
    stage.end(0)
    stage.ask(1)

    stage.end(1, -errno.ENOSPC, Step.WRITE)
    stage.ask(2)

    assert stage.ordered() == [(1, 1), (2, 1)]
    assert stage.account(0).capacity_bytes == PAGE_BYTES
    assert stage.counters.tiers_full == 1


def test_a_vanished_tier_loses_its_replicas_and_they_are_staged_elsewhere(make_stage):
    stage = make_stage([10, 10], capacities=(1 << 20, 1 << 20))
    stage.ask(0)
    stage.end(0)
    stage.ask(1)

    stage.end(1, -errno.ENOENT, Step.CREATE)
    stage.ask(0)

    assert stage.ordered() == [(1, 1), (0, 1)]
    assert stage.counters.tiers_lost == stage.counters.replicas_lost == 1
    assert stage.engine.kept == [(0, 1000)]


def test_a_ready_replica_that_is_there_stays_when_a_program_could_not_open_it(
    make_stage,
):
    stage = make_stage([10])
    stage.ask(0)
    stage.end(0)

    stage.ask(0)

    assert stage.state(0) == ready()
    assert stage.ordered() == []


def test_a_lost_replica_is_staged_again_at_most_twice(make_stage):
    stage = make_stage([10])
    stage.ask(0)
    for _ in range(3):
        stage.end(0)
        stage.path(0, 0).unlink()
        stage.ask(0)

    assert stage.state(0) == absent(Reason.ERROR)
    assert stage.engine.kept == [(0, 1000)] * 3
    assert stage.account(0).used_bytes == 0


def test_a_truncated_replica_counts_as_lost_and_is_removed(make_stage):
    stage = make_stage([10])
    stage.ask(0)
    stage.end(0)
    stage.path(0, 0).write_bytes(b"x")

    stage.ask(0)

    assert not stage.path(0, 0).exists()
    assert stage.state(0) == staging()


def test_background_fill_visits_all_files_once(make_stage):
    stage = make_stage([10] * 20, settings=FILL)

    stage.stager.start()
    assert not stage.stager.idle
    while stage.engine.orders:
        stage.end(stage.engine.orders[0].file)

    assert [stage.state(file) for file in range(20)] == [ready()] * 20
    assert stage.tally("background_transfers") == 20
    assert stage.stager.idle


def test_fill_does_not_begin_before_programs_run(make_stage):
    stage = make_stage([10] * 20, settings=FILL)

    stage.stager.turn()

    assert stage.engine.orders == []


def test_a_large_file_without_waiting_programs_is_copied_in_the_background(make_stage):
    stage = make_stage([2 << 20], capacities=(1 << 30,))

    stage.ask(0)

    [order] = stage.engine.orders
    assert order.kind == OrderKind.BACKGROUND | OrderKind.ASKED
    assert stage.tally("background_transfers") == 1


def test_a_file_that_the_engine_rejects_can_be_requested_again(make_stage):
    stage = make_stage([10] * 4)
    stage.engine.room = 1
    stage.ask(0, 1, 2, 3)
    assert [stage.state(file) for file in (1, 2, 3)] == [absent()] * 3
    assert stage.account(0).reserved_bytes == PAGE_BYTES
    stage.engine.room = 10

    stage.ask(1, 2, 3)

    assert [order.file for order in stage.engine.orders] == [0, 1, 2, 3]


def test_memory_pressure_evicts_ram_replicas_for_good(make_stage):
    stage = make_stage([4096] * 10, capacities=(1 << 20,), settings=FILL)
    stage.stager.start()
    while stage.engine.orders:
        stage.end(stage.engine.orders[0].file)

    freed = stage.stager.relieve(used_bytes=100_000, limit_bytes=100_000)
    stage.ask(9)

    assert freed == 3 * 4096
    assert stage.state(9) == absent(Reason.MEMORY)
    assert not stage.path(9, 0).exists()
    assert stage.state(6) == ready()
    assert stage.account(0).free_bytes == 0


def test_ram_replicas_use_the_admitted_memory_at_once(make_stage):
    stage = make_stage([4096] * 4, capacities=(1 << 20, 1 << 20))
    stage.stager.admit(2 * 4096)

    stage.ask(0, 1, 2)

    assert stage.ordered() == [(0, 0), (1, 0), (2, 1)]
    assert stage.account(0).free_bytes == 0


def test_a_replica_whose_success_is_not_yet_reported_is_evicted_as_any_other(
    make_stage,
):
    stage = make_stage([4096] * 4)
    stage.ask(0, 1)
    stage.engine.end(next(o for o in stage.engine.orders if o.file == 1))

    freed = stage.stager.relieve(used_bytes=100_000, limit_bytes=100_000)

    assert freed == 4096
    assert (stage.state(0), stage.state(1)) == (staging(), absent(Reason.MEMORY))
    account = stage.account(0)
    assert (account.used_bytes, account.reserved_bytes) == (0, 4096)


def test_partial_replicas_are_freed_after_the_whole_ones(make_stage):
    stage = make_stage([4096] * 2)
    stage.engine.partial = {0: 7000}
    stage.ask(0, 1)
    stage.end(0)
    stage.end(1)

    assert stage.stager.relieve(used_bytes=91_000, limit_bytes=100_000) == 4096
    assert stage.stager.relieve(used_bytes=100_000, limit_bytes=100_000) == 4096 + 7000


@pytest.mark.parametrize("kind", [OrderKind.ASKED, OrderKind.BACKGROUND])
def test_blocks_that_find_no_room_are_no_reason_to_copy_the_whole_file(
    make_stage, kind
):
    """Programs ask again for what they need; what fill has begun goes on elsewhere."""
    stage = make_stage([10] * 3, capacities=(1 << 20, 1 << 20))
    stage.ask(0)
    order = stage.engine.orders[0]
    stage.engine.orders[0] = order._replace(kind=kind | OrderKind.PARTLY)

    stage.end(0, -errno.ENOSPC, Step.WRITE)

    if kind is OrderKind.ASKED:
        assert (stage.ordered(), stage.state(0)) == ([], absent())
    else:
        assert stage.ordered() == [(0, 1)]


def test_a_copy_that_ends_after_the_loss_of_its_tier_is_staged_anew(make_stage):
    stage = make_stage([10] * 3, capacities=(1 << 20, 1 << 20))
    stage.ask(0, 1)
    stage.stager.storage.tiers[0].directory.rmdir()

    stage.end(0, -errno.ENOENT, Step.CREATE)
    stage.engine.end(next(o for o in stage.engine.orders if o.file == 1))
    stage.stager.turn()

    assert stage.ordered() == [(0, 1), (1, 1)]
    assert stage.state(1) == staging(1)
    assert stage.account(0).reserved_bytes == 0


def test_an_adopted_replica_is_verified_before_anything_is_read(make_stage):
    stage = make_stage([10, 10])
    assert stage.stager.offer(1, 0)

    stage.ask(1)

    [order] = stage.engine.orders
    assert (order.file, order.tier, order.is_adoption) == (1, 0, True)
    stage.end(1)
    assert (stage.tally("adopted_files"), stage.tally("staged_files")) == (1, 0)


def test_a_leftover_requested_before_its_turn_is_verified_at_once_and_stays(
    make_stage,
):
    count = 3 * FILL_MAX
    stage = make_stage([10] * count)
    for file in range(count):
        assert stage.stager.offer(file, 0)
        stage.path(file, 0).write_bytes(b"x" * 10)
    stage.stager.start()
    last = count - 1

    stage.ask(last)
    stage.end(last)
    while orders := stage.engine.orders:
        stage.end(orders[0].file)

    assert stage.tally("adopted_files") == count
    assert stage.path(last, 0).exists()
    assert stage.account(0).used_bytes == count * PAGE_BYTES
    assert stage.stager.idle


def test_a_leftover_that_does_not_verify_is_removed_and_staged_anew(make_stage):
    stage = make_stage([10])
    assert stage.stager.offer(0, 0)
    stage.path(0, 0).write_bytes(b"corrupted!")

    stage.stager.start()
    stage.end(0, -errno.EBADMSG, Step.VERIFY)

    assert not stage.path(0, 0).exists()
    [order] = stage.engine.orders
    assert (order.file, order.kind) == (0, OrderKind.BACKGROUND)
    assert stage.counters.adoptions_refused == 1


def test_a_leftover_of_a_written_file_frees_its_room(make_stage):
    stage = make_stage([10, 10])
    for file in range(2):
        assert stage.stager.offer(file, 0)
        stage.path(file, 0).write_bytes(b"x" * 10)
    stage.written[0] = 1

    stage.stager.start()
    stage.stager.turn()

    [order] = stage.engine.orders
    assert (order.file, order.is_adoption) == (1, True)
    assert stage.account(0).reserved_bytes == PAGE_BYTES
    assert not stage.path(0, 0).exists()


def test_a_fault_in_one_request_does_not_stop_the_next(make_stage, caplog):
    stage = make_stage([10, 10])
    stage.ask(0)
    stage.end(0)
    stage.path(0, 0).unlink()

    def broken(file, tier):
        raise RuntimeError("broken table")

    stage.engine.keep = broken
    stage.ask(0, 1)

    assert stage.ordered() == [(1, 0)]
    assert stage.counters.agent_errors == 1
    assert "broken table" in caplog.text


def test_transfers_in_flight_at_the_stop_end_and_no_new_ones_begin(make_stage):
    stage = make_stage([10] * 4)
    stage.ask(0, 1, 2)

    stage.stager.stop()
    stage.end(0)
    stage.end(1, -errno.EIO, Step.READ)
    stage.end(2, -errno.EMFILE, Step.OPEN)
    stage.ask(1, 3)

    assert [stage.state(file) for file in range(4)] == [ready(), *[absent()] * 3]
    account = stage.account(0)
    assert (account.used_bytes, account.reserved_bytes) == (PAGE_BYTES, 0)
    assert repr(stage.stager).startswith("<Stager 0 in flight")


def test_a_file_that_is_written_while_it_is_copied_is_no_fault_of_its_tier(
    make_stage,
):
    stage = make_stage([10] * 20)
    stage.ask(*range(20))

    for file in range(20):
        stage.end(file, -errno.ESTALE, Step.PUBLISH)

    assert stage.account(0).in_service
    assert [stage.state(file) for file in range(20)] == [absent(Reason.CHANGED)] * 20
