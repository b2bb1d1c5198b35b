"""The Stager as one of several nodes: sources and destinations of Files."""

import errno
from functools import partial

import numpy as np
import pytest

from monarch.native import OrderKind, Reason, ReplicaState, Step
from monarch.placement import Mode, Node
from monarch.stager.breaker import FAILURES_MAX
from support.placements import EXTENT_BYTES, place_sizes
from support.stages import (
    ABSENT,
    PAGE,
    followed_by,
    make_shared,
    make_stage,
    owned_by,
    place,
)

POOL = 1

LINK_ENDS = [errno.ECONNRESET, errno.ENOTCONN, errno.EPROTO]
LATE_OR_WRONG = [(errno.ETIMEDOUT, Step.READ), (errno.EBADMSG, Step.VERIFY)]
REFUSALS = [errno.ENOENT, errno.EAGAIN, errno.ESTALE, errno.EIO]


@pytest.fixture
def make(tmp_path):
    return partial(make_shared, tmp_path)


def test_files_owned_by_this_node_are_copied_from_the_origin_into_its_tier(make):
    stage = make([60, 60])
    file = owned_by(stage, 0)[0]

    stage.ask(file)

    [order] = stage.engine.orders
    assert (order.file, order.tier, order.kind) == (file, 0, OrderKind.ASKED)
    assert stage.fetching() == []
    assert stage.tally("origin_instead_files") == 0


def test_files_owned_by_another_node_are_fetched_from_it_once(make):
    stage = make([60, 60])
    file = owned_by(stage, 1)[0]

    stage.ask(file, file)
    stage.ask(file)

    assert stage.fetching() == [(file, POOL, 1)]
    assert stage.engine.orders == []


def test_a_fetched_file_that_is_kept_is_stored_in_a_tier(make):
    stage = make([60, 60], mode=Mode.REPLICATE)
    file = owned_by(stage, 1)[0]

    stage.ask(file)
    stage.arrive(file)

    assert stage.state(file)[:2] == (ReplicaState.READY, 0)
    assert stage.replicas.ready_in(0).tolist() == [file]
    assert stage.sources.events(1).fetched_files == 1
    assert (stage.tally("peer_files"), stage.tally("staged_files")) == (1, 0)


def test_files_without_room_on_any_node_stay_on_the_origin(make):
    stage = make([2, 2], files=(60, PAGE))
    file = int(np.flatnonzero(~stage.placement.placed)[0])

    stage.ask(file)

    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)


def test_files_of_others_use_spare_room_but_never_that_of_kept_files(make):
    stage = make([80, 80], files=(100, PAGE), mode=Mode.AUTO)
    kept = stage.sources.policy.kept
    others = np.flatnonzero(~kept).tolist()
    spare = 80 - int(kept.sum())
    assert 0 < spare < len(others)

    stage.ask(*others)

    landed = [tier for _, tier, _ in stage.fetching()]
    assert landed.count(0) == spare
    assert landed.count(POOL) == len(others) - spare
    stage.ask(*np.flatnonzero(kept).tolist())
    orders = [*stage.ordered(), *[(f, tier) for f, tier, _ in stage.fetching()]]
    assert all((file, 0) in orders for file in np.flatnonzero(kept).tolist())


@pytest.mark.parametrize("cause", [errno.ETIMEDOUT, errno.ECANCELED])
def test_a_program_that_has_waited_for_one_peer_waits_for_no_other(make, cause):
    stage = make([60, 60, 60])
    file = followed_by(stage, 1, 2, 0)
    stage.ask(file)

    stage.arrive(file, -cause)

    assert stage.fetching() == []
    assert stage.ordered() == [(file, 0)]
    assert stage.counters.origin_instead_files == 1


@pytest.mark.parametrize("cause", LINK_ENDS)
def test_the_next_node_is_asked_at_once_when_a_link_ends(make, cause):
    stage = make([60, 60, 60])
    file = followed_by(stage, 1, 2, 0)
    stage.ask(file)

    stage.arrive(file, -cause)

    assert stage.fetching() == [(file, POOL, 2)]
    assert stage.state(file)[0] is ReplicaState.STAGING
    assert not stage.sources.usable(1)
    assert stage.counters.rehomed_files == 1
    assert stage.counters.peer_failures == 1


@pytest.mark.parametrize(("cause", "step"), LATE_OR_WRONG)
def test_a_late_or_wrong_answer_redirects_the_file_and_three_open_the_breaker(
    make, cause, step
):
    stage = make([60, 60], files=(100, PAGE))
    files = owned_by(stage, 1)[: FAILURES_MAX + 1]
    stage.ask(*files)

    for file in files[:FAILURES_MAX]:
        assert stage.sources.usable(1)
        stage.arrive(file, -cause, step)

    assert [order.file for order in stage.engine.orders] == files[:FAILURES_MAX]
    assert not stage.sources.usable(1)
    assert stage.counters.breakers_opened == 1
    assert stage.counters.origin_instead_files == FAILURES_MAX
    # The agent drops the link, and Transfers in flight continue elsewhere.
    stage.arrive(files[-1], -errno.ECANCELED)
    assert stage.engine.orders[-1].file == files[-1]
    assert stage.sources.events(1).failures == FAILURES_MAX


@pytest.mark.parametrize("cause", REFUSALS)
def test_a_refusal_is_no_failure_and_the_origin_is_read_at_once(make, cause):
    stage = make([60, 60, 60])
    file = followed_by(stage, 1, 2, 0)
    stage.ask(file)

    stage.arrive(file, -cause)

    assert [order.file for order in stage.engine.orders] == [file]
    assert stage.sources.usable(1)
    assert stage.sources.events(1).refused == 1
    stage.end(file)
    assert stage.state(file)[0] is ReplicaState.READY


def test_a_substitute_for_an_owner_keeps_the_file_if_it_has_room(make):
    stage = make([60, 60])
    file = owned_by(stage, 1)[0]
    stage.ask(file)

    stage.arrive(file, -errno.ECONNRESET)

    [order] = stage.engine.orders
    assert (order.file, order.tier) == (file, 0)
    assert stage.state(file)[:2] == (ReplicaState.STAGING, 0)
    assert stage.account(POOL).reserved_bytes == 0
    stage.end(file)
    assert stage.account(0).used_bytes == PAGE


def test_a_large_file_that_its_owner_is_still_reading_is_requested_again(make):
    stage = make([2000, 2000], mode=Mode.REPLICATE, files=(4, 2 << 20))
    file = owned_by(stage, 1)[0]
    stage.ask(file)

    stage.arrive(file, -errno.EAGAIN)

    assert stage.fetching() == [(file, 0, 1)]
    for _ in range(100):
        if stage.fetching():
            stage.arrive(file, -errno.EAGAIN)
    assert [order.file for order in stage.engine.orders] == [file]


@pytest.mark.parametrize(
    ("step", "cause"),
    [(Step.ORDER, errno.ESTALE), (Step.PUBLISH, errno.ESTALE)],
)
def test_a_file_that_is_written_while_it_is_fetched_is_not_served(make, step, cause):
    stage = make([60, 60])
    file = owned_by(stage, 1)[0]
    stage.ask(file)
    stage.written[file] = 1

    stage.arrive(file, -cause, step)

    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.CHANGED)
    assert stage.account(POOL).reserved_bytes == 0
    assert stage.sources.usable(1)
    assert stage.sources.events(1).failures == 0


def test_a_full_tier_under_a_fetch_is_no_failure_of_the_peer(make):
    stage = make([60, 60], mode=Mode.REPLICATE)
    file = owned_by(stage, 1)[0]
    stage.ask(file)

    stage.arrive(file, -errno.ENOSPC, Step.WRITE)

    assert stage.fetching() == [(file, POOL, 1)]
    assert stage.counters.tiers_full == 1
    assert stage.sources.events(1).failures == 0


def test_the_first_failure_of_the_pool_withdraws_it(make):
    stage = make([60, 60])
    file = owned_by(stage, 1)[0]
    stage.ask(file)
    stage.arrive(file, -errno.EIO, Step.WRITE)

    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    assert stage.fetching() == []
    assert stage.counters.tiers_lost == 1


def test_a_file_that_the_receiver_rejects_can_be_requested_again(make):
    stage = make([60, 60])
    files = owned_by(stage, 1)[:4]
    stage.receiver.room = 1
    stage.ask(*files)
    assert [stage.state(file) for file in files[1:]] == [ABSENT] * 3
    assert stage.account(POOL).reserved_bytes == PAGE
    stage.receiver.room = 10

    stage.ask(*files[1:])

    assert [file for file, _, _ in stage.fetching()] == files


def test_redirected_fetches_that_are_rejected_are_submitted_again(make):
    stage = make([60, 60, 60])
    file = followed_by(stage, 1, 2, 0)
    stage.ask(file)
    stage.receiver.room = 0
    stage.arrive(file, -errno.ECONNRESET)
    assert stage.fetching() == []
    assert stage.state(file)[0] is ReplicaState.STAGING
    stage.receiver.room = 10

    stage.stager.turn()

    assert stage.fetching() == [(file, POOL, 2)]


# -- alone before, and the end --------------------------------------------------


def test_a_node_that_joins_late_causes_a_retry_of_files_without_room(tmp_path):
    stage = make_stage(tmp_path, [PAGE] * 20, (4 * PAGE,))
    stage.ask(*range(8))
    for file in range(4):
        stage.end(file)
    assert stage.state(7) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)

    stage.join(place(20, [4 * PAGE, 20 * PAGE]), 0)

    assert stage.state(7) == ABSENT
    stage.ask(7)
    assert stage.state(7)[0] is ReplicaState.STAGING
    with pytest.raises(AssertionError):
        stage.join(place(20, [4 * PAGE, 20 * PAGE]), 0)


def test_a_node_that_joins_causes_a_retry_of_files_that_others_hold_in_part(tmp_path):
    stage = make_stage(tmp_path, [8 * EXTENT_BYTES], (EXTENT_BYTES,))
    stage.ask(0)
    assert stage.state(0)[2] is Reason.NO_ROOM
    nodes = [Node(name, EXTENT_BYTES) for name in ("n0", "n1")]

    stage.join(place_sizes(nodes, np.array([8 * EXTENT_BYTES], np.uint64)), 0)

    assert stage.state(0) == ABSENT


def test_transfers_that_run_while_a_node_joins_end_as_they_began(tmp_path):
    stage = make_stage(tmp_path, [PAGE] * 20, (20 * PAGE,))
    stage.ask(*range(6))

    stage.join(place(20, [20 * PAGE] * 2), 0)
    for file in range(6):
        stage.end(file)

    assert stage.replicas.ready_in(0).tolist() == list(range(6))


def test_replicas_of_an_earlier_job_take_precedence_over_any_source(make, tmp_path):
    stage = make_stage(tmp_path / "other", [PAGE] * 20, (20 * PAGE,))
    for file in range(20):
        assert stage.stager.offer(file, 0)
    placement = place(20, [20 * PAGE] * 2)

    stage.join(placement, 0)
    file = int(np.flatnonzero(placement.owners == 1)[0])
    stage.ask(file)

    [order] = [one for one in stage.engine.orders if one.file == file]
    assert order.is_adoption
    stage.end(file, -errno.EBADMSG, Step.VERIFY)
    assert stage.fetching() == [(file, POOL, 1)]


def test_replicas_of_an_earlier_job_are_dropped_by_whole_pages_and_no_more(tmp_path):
    stage = make_stage(tmp_path, [1] * 30, (20 * PAGE,))
    placement = place(30, [20 * PAGE] * 2)
    kept = placement.kept(0)
    strangers = np.flatnonzero(~kept)[:15].tolist()
    for file in strangers:
        assert stage.stager.offer(file, 0)

    stage.join(placement, 0)

    room_left = 20 - int(kept.sum())
    assert 0 < room_left < 15
    assert np.count_nonzero(stage.stager.unverified >= 0) == room_left


def test_replicas_of_an_earlier_job_are_dropped_for_files_to_keep(tmp_path):
    stage = make_stage(tmp_path, [PAGE] * 40, (20 * PAGE,))
    placement = place(40, [20 * PAGE] * 2)
    kept = placement.kept(0)
    strangers = np.flatnonzero(~kept)[:10].tolist()
    ours = np.flatnonzero(kept)[:5].tolist()
    for file in [*ours, *strangers]:
        assert stage.stager.offer(file, 0)
        stage.path(file, 0).write_bytes(b"x")

    stage.join(placement, 0)

    room_left = 20 - int(kept.sum())
    waiting = set(np.flatnonzero(stage.stager.unverified >= 0).tolist())
    assert waiting >= set(ours)
    assert len(waiting - set(ours)) == room_left
    assert sum(stage.path(file, 0).exists() for file in strangers) == room_left
    stage.ask(*np.flatnonzero(kept).tolist())
    states = [stage.state(file)[0] for file in np.flatnonzero(kept).tolist()]
    assert states == [ReplicaState.STAGING] * len(states)


def test_a_whole_replica_of_a_large_file_to_keep_in_part_is_dropped(tmp_path):
    sizes = [2 * EXTENT_BYTES, *[PAGE] * 40]
    room = 2 * EXTENT_BYTES + 5 * PAGE
    nodes = [Node(name, room) for name in ("n0", "n1")]
    placements = [place_sizes(nodes, np.array(sizes, np.uint64), n) for n in range(40)]
    split = [each for each in placements if len(set(each.owners[:2].tolist())) == 2]
    stage = make_stage(tmp_path, sizes, (room,))
    assert stage.stager.offer(0, 0)
    stage.path(0, 0).touch()

    stage.join(split[0], 0)

    assert not (stage.stager.unverified >= 0).any()
    assert not stage.path(0, 0).exists()


def test_an_order_that_the_engine_rejects_is_submitted_again(make):
    stage = make([60, 60, 60])
    file = followed_by(stage, 1, 2, 0)
    stage.ask(file)
    stage.engine.room = 0
    stage.arrive(file, -errno.ENOENT)
    assert stage.engine.orders == []
    stage.engine.room = 1

    stage.stager.turn()

    assert [order.file for order in stage.engine.orders] == [file]


def test_an_order_that_has_not_begun_ends_with_the_stop(make):
    stage = make([60, 60, 60])
    file = followed_by(stage, 1, 2, 0)
    stage.ask(file)
    stage.engine.room = 0
    stage.arrive(file, -errno.ENOENT)

    stage.stager.stop()

    assert stage.stager.in_flight == 0
    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.STOPPING)


def test_a_fetch_that_waits_for_its_next_source_ends_with_the_stop(make):
    stage = make([60, 60, 60])
    file = followed_by(stage, 1, 2, 0)
    stage.ask(file)
    stage.receiver.room = 0
    stage.arrive(file, -errno.ECONNRESET)

    stage.stager.stop()

    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.STOPPING)
    assert stage.account(POOL).reserved_bytes == 0
    assert stage.stager.in_flight == 0


def test_a_fetch_that_fails_while_the_agent_ends_is_not_redirected(make):
    stage = make([60, 60])
    file = owned_by(stage, 1)[0]
    stage.ask(file)
    stage.stager.stop()

    stage.arrive(file, -errno.ECONNRESET)

    assert stage.engine.orders == []
    assert stage.state(file) == (ReplicaState.ABSENT, 0, Reason.STOPPING)
    assert stage.stager.in_flight == 0


def test_a_file_evicted_for_its_memory_may_still_pass_through(make):
    stage = make([60, 60])
    file = owned_by(stage, 0)[0]
    stage.ask(file)
    stage.end(file)

    assert stage.stager.relieve(used_bytes=100_000, limit_bytes=100_000) == PAGE
    stage.ask(file)

    assert stage.ordered() == [(file, POOL)]
    assert stage.state(file)[0] is ReplicaState.STAGING


def test_a_lost_tier_leaves_the_pool_and_the_peers_as_they_were(make):
    stage = make([60, 60], mode=Mode.REPLICATE)
    own, other = owned_by(stage, 0)[0], owned_by(stage, 1)[0]
    stage.ask(own)

    stage.end(own, -errno.ENOENT, Step.CREATE)
    stage.ask(other)

    assert stage.ordered() == [(own, POOL)]
    assert stage.fetching() == [(other, POOL, 1)]
    assert stage.counters.tiers_lost == 1
