"""Files postponed for a while: an origin hangs, or the node lacks resources."""

import errno
from collections.abc import Callable
from functools import partial

import pytest

from monarch.native import Health, Reason, ReplicaState, Step
from monarch.placement import Mode
from support import stages
from support.stages import FILL, Stage, owned_by

BUSY = (ReplicaState.ABSENT, 0, Reason.BUSY)
ABSENT = (ReplicaState.ABSENT, 0, Reason.NONE)
STAGING = (ReplicaState.STAGING, 0, Reason.NONE)
WELL = Health(0, 0, 0)
FIRST_HANGS = Health(1, 1, 0)


@pytest.fixture
def make_stage(tmp_path, monkeypatch) -> Callable[..., Stage]:
    """A function that makes a Stager of two roots with four Files each."""

    def make(settings=stages.NO_FILL) -> Stage:
        return stages.make_stage(tmp_path, [[10] * 4] * 2, settings=settings)

    return make


def test_programs_do_not_wait_for_a_root_that_does_not_answer(make_stage):
    stage = make_stage()
    stage.ask(0)
    stage.engine.found = FIRST_HANGS

    stage.ask(1)
    stage.ask(2, 3, 4)

    assert [stage.state(file) for file in (2, 3)] == [BUSY] * 2
    assert (4, 0) in stage.ordered(), "a File of the other root"
    assert stage.counters.transfers_failed == 0


def test_one_file_a_second_is_tried_of_a_root_that_does_not_answer(make_stage):
    stage = make_stage()
    stage.engine.found = FIRST_HANGS
    stage.ask(0, 1, 2, 3)

    first = stage.ordered()
    others = [file for file in range(4) if (file, 0) not in first]
    for _ in range(5):
        stage.pass_time(0.9)
        stage.ask(*others)

    assert len(first) == 1
    assert stage.ordered() == first, "the one that is tried has not come back"


def test_a_root_that_answers_again_is_staged_as_before(make_stage):
    stage = make_stage()
    stage.engine.found = FIRST_HANGS
    stage.ask(0, 1, 2, 3)

    stage.engine.found = WELL
    stage.stager.turn()

    assert sum(stage.state(file) == ABSENT for file in range(4)) == 3
    stage.ask(0, 1, 2, 3)
    assert len(stage.ordered()) == 4


def test_fill_skips_a_root_that_does_not_answer_and_returns_to_it(make_stage):
    stage = make_stage(FILL)
    stage.engine.found = FIRST_HANGS
    stage.stager.start()

    for _ in range(8):
        stage.stager.turn()
        for file, _ in stage.ordered():
            stage.end(file)

    assert [stage.state(file)[0] for file in range(8)] == [
        *[ReplicaState.ABSENT] * 4,
        *[ReplicaState.READY] * 4,
    ]
    stage.engine.found = WELL
    for _ in range(8):
        stage.stager.turn()
        for file, _ in stage.ordered():
            stage.end(file)
    assert {stage.state(file)[0] for file in range(8)} == {ReplicaState.READY}


def test_files_that_peers_have_are_fetched_although_the_origin_hangs(tmp_path):
    stage = stages.make_shared(tmp_path, [60, 60], Mode.PARTITION)
    stage.engine.found = FIRST_HANGS

    ours, theirs = owned_by(stage, 0)[:2], owned_by(stage, 1)[0]
    stage.ask(*ours, theirs)

    assert [file for file, _, _ in stage.fetching()] == [theirs]
    assert len(stage.ordered()) == 1


@pytest.mark.parametrize("step", [Step.OPEN, Step.CREATE])
@pytest.mark.parametrize("cause", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_file_is_never_given_up_for_lack_of_resources(make_stage, cause, step):
    stage = make_stage()
    stage.ask(0)

    for _ in range(12):
        stage.end(0, -cause, step)
        assert stage.state(0) == BUSY
        stage.pass_time(0.1)
        assert stage.ordered() == [], "it is tried again at once"
        stage.pass_time(30)
        assert stage.ordered() == [(0, 0)]

    stage.end(0)
    assert stage.state(0)[0] is ReplicaState.READY
    assert stage.account(0).in_service
    assert stage.account(0).reserved_bytes == 0


def test_the_pauses_between_tries_grow_to_a_bound(make_stage):
    stage = make_stage()
    stage.ask(0)
    pauses = []
    for _ in range(9):
        stage.end(0, -errno.EMFILE, Step.OPEN)
        began_s = stage.clock.now_s
        while not stage.ordered():
            stage.pass_time(0.25)
        pauses.append(stage.clock.now_s - began_s)

    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_replica_that_arrives_in_a_withdrawn_tier_is_not_served(make_stage):
    stage = make_stage()
    stage.ask(0, 1)
    stage.end(0)

    stage.stager.losses.withdraw(0, "no answer")
    assert stage.state(0) == ABSENT
    stage.end(1)

    assert stage.state(1) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    assert stage.engine.kept == [(0, 1000)]
    account = stage.account(0)
    assert (account.used_bytes, account.reserved_bytes) == (0, 0)
    warnings = stage.stager.losses.take_warnings()
    assert warnings == ["tier tier0 is no longer used: no answer"]


def test_a_tier_is_withdrawn_at_the_first_error_of_a_transfer(make_stage):
    stage = make_stage()
    stage.ask(0)
    stage.end(0)
    stage.ask(1)

    stage.end(1, -errno.EIO, Step.WRITE)

    assert stage.counters.tiers_lost == 1
    assert stage.state(0) == ABSENT
    assert stage.state(1) == (ReplicaState.ABSENT, 0, Reason.NO_ROOM)
    assert "Input/output error" in stage.stager.losses.take_warnings()[0]


def test_no_replica_is_inspected_on_the_event_loop(make_stage, monkeypatch):
    stage = make_stage()
    stage.ask(0)
    stage.end(0)
    looked = partial(pytest.fail, "looked")
    monkeypatch.setattr("monarch.stager.removal.inspect", looked)

    stage.engine.asked.append(0)
    stage.stager.turn()

    assert stage.stager.losses.take_doubtful() == {0: 0}
