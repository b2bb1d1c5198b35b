"""Background fill of one of several nodes: owned files first, then those of others."""

import errno
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monarch.native import ReplicaState
from monarch.placement import Mode, Node
from monarch.stager import Policy
from monarch.stager.fill import Fill
from support.placements import EXTENT_BYTES, place_sizes
from support.stages import (
    ABSENT,
    FILL,
    PAGE,
    Stage,
    followed_by,
    make_shared,
    owned_by,
)


@pytest.fixture
def make(tmp_path):
    return partial(make_shared, tmp_path)


def finish(stage: Stage, files: set[int]) -> None:
    """Let everything that is under way succeed until nothing is."""
    while stage.engine.orders or stage.fetching():
        for order in list(stage.engine.orders):
            stage.end(order.file)
        for fetch in list(stage.receiver.fetches):
            files.add(fetch.file)
            stage.arrive(fetch.file)


def test_fill_reads_owned_files_and_fetches_the_other_kept_ones(make):
    stage = make([60, 60], mode=Mode.REPLICATE, settings=FILL)
    fetched: set[int] = set()

    first = [order.file for order in stage.engine.orders]
    finish(stage, fetched)

    assert first == owned_by(stage, 0)[: stage.engine.fill_max]
    assert fetched == set(owned_by(stage, 1))
    assert stage.stager.idle
    assert stage.tally("staged_files") == len(owned_by(stage, 0))


def test_fill_fetches_nothing_while_no_program_runs_here(make):
    stage = make([60, 60], mode=Mode.REPLICATE, settings=FILL)
    fetched: set[int] = set()

    stage.stager.pause_fetching(paused=True)
    stage.stager.turn()
    finish(stage, fetched)

    assert fetched == set()
    assert len(stage.replicas.ready_in(0)) == len(owned_by(stage, 0))

    stage.stager.pause_fetching(paused=False)
    stage.stager.turn()
    finish(stage, fetched)

    assert fetched == set(owned_by(stage, 1))


def test_fill_copies_only_kept_files(make):
    stage = make([60, 60], settings=FILL)
    fetched: set[int] = set()

    stage.stager.turn()
    finish(stage, fetched)

    assert fetched == set()
    assert len(stage.replicas.ready_in(0)) == len(owned_by(stage, 0))


def test_fill_never_reads_for_another_node_and_resumes_when_it_returns(make):
    stage = make([60, 60], mode=Mode.REPLICATE, settings=FILL)
    stage.sources.lost(1)
    fetched: set[int] = set()
    stage.stager.turn()
    finish(stage, fetched)
    assert stage.stager.idle
    assert stage.tally("staged_files") == len(owned_by(stage, 0))

    stage.clock.now_s += 10
    assert stage.sources.due(1)
    stage.sources.connected(1)
    stage.stager.turn()
    finish(stage, fetched)

    assert fetched == set(owned_by(stage, 1))


def test_fill_does_not_make_a_third_node_read_files_of_an_owner(make):
    stage = make([60, 60, 60], mode=Mode.REPLICATE, settings=FILL)
    file = followed_by(stage, 1, 2, 0)
    stage.sources.lost(1)
    fetched: set[int] = set()
    stage.stager.turn()
    finish(stage, fetched)
    before = set(fetched)

    stage.sources.gone(1)
    stage.stager.turn()
    finish(stage, fetched)

    assert before == set(owned_by(stage, 2))
    assert file in fetched
    assert len(stage.replicas.ready_in(0)) == 60


@pytest.mark.parametrize("cause", [errno.ECONNRESET, errno.ENOENT])
def test_an_unrequested_file_stays_absent_when_its_owner_fails(make, cause):
    stage = make([60, 60], mode=Mode.REPLICATE, settings=FILL)
    stage.stager.turn()
    while not stage.fetching():
        stage.end(stage.engine.orders[0].file)
    file = stage.fetching()[0][0]

    stage.arrive(file, -cause)

    assert stage.state(file) == ABSENT
    assert file not in [order.file for order in stage.engine.orders]
    stage.ask(file)
    assert stage.state(file)[0] is ReplicaState.STAGING


def test_fill_retries_failed_files_once_their_owner_is_known_to_have_left(make):
    stage = make([60, 60, 60], mode=Mode.REPLICATE, settings=FILL)
    stage.stager.turn()
    while not any(peer == 1 for _, _, peer in stage.fetching()):
        for order in list(stage.engine.orders):
            stage.end(order.file)
    stage.sources.gone(1)

    for file, _, peer in stage.fetching():
        if peer == 1:
            stage.arrive(file, -errno.ECANCELED)
    finish(stage, set())

    assert len(stage.replicas.ready_in(0)) == 60


def test_partly_kept_large_files_are_visited_again_with_the_fetched_files():
    sizes = np.array([*[PAGE] * 20, *[5 * EXTENT_BYTES] * 3], np.uint64)
    nodes = [Node(f"n{number}", 9 * EXTENT_BYTES) for number in range(2)]
    policy = Policy.cluster(place_sizes(nodes, sizes), 0)
    lists: list[list[int]] = []
    engine: Any = SimpleNamespace(
        fill=lambda *files: lists.extend(each.tolist() for each in files),
        fill_left=lambda: (0, 0),
    )

    Fill(engine, FILL).check_news(policy, 1, 1)

    assert lists == [[20, 21, 22], policy.to_fetch.tolist()]


def test_files_without_room_are_retried_once_for_each_packed_file():
    policy = Policy.cluster(place_sizes([Node("a", 20 * PAGE)], np.full(9, PAGE)), 0)
    looks: list[int] = []
    engine: Any = SimpleNamespace(
        fill=lambda read, fetch: looks.append(len(read)), fill_left=lambda: (0, 0)
    )
    fill = Fill(engine, FILL)

    for crowded, packed in ((0, 0), (0, 3), (2, 3), (3, 3), (3, 4), (4, 4)):
        fill.check_room(policy, crowded, packed)

    # At (2, 3), and at (3, 4): no frame arrived before that.
    assert looks == [9, 9]


def test_refused_files_are_retried_when_fill_has_ended():
    policy = Policy.cluster(place_sizes([Node("a", 20 * PAGE)], np.full(9, PAGE)), 0)
    looks: list[int] = []
    left = [0]
    engine: Any = SimpleNamespace(
        fill=lambda read, fetch: looks.append(len(read)), fill_left=lambda: (left[0], 0)
    )
    fill = Fill(engine, FILL)

    for left[0], again in ((0, 0), (4, 2), (1, 3), (0, 3), (0, 3)):
        fill.check_again(policy, again, 0)

    assert looks == [9]


def test_a_tier_that_stays_full_is_retried_ever_more_rarely():
    policy = Policy.cluster(place_sizes([Node("a", 20 * PAGE)], np.full(9, PAGE)), 0)
    looks: list[int] = []
    engine: Any = SimpleNamespace(
        fill=lambda read, fetch: looks.append(len(read)), fill_left=lambda: (0, 0)
    )
    fill = Fill(engine, FILL)

    for again in range(1, 1001):
        fill.check_again(policy, again, 7)
    in_vain = len(looks)
    for again in range(1001, 1011):
        fill.check_again(policy, again, again)

    assert in_vain < 20
    assert len(looks) == in_vain + 10
