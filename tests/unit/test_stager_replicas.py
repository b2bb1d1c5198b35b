"""The state table of a Replica."""

import itertools

import pytest

from monarch.replica import TRANSITIONS, Event, IllegalTransition, State, advance


def test_a_replica_goes_from_absent_to_ready_and_back():
    state = State.ABSENT
    for event in (Event.ORDERED, Event.PUBLISHED, Event.EVICTED, Event.REMOVED):
        state = advance(state, event)

    assert state is State.ABSENT


def test_a_failed_transfer_leaves_the_replica_absent():
    assert advance(State.STAGING, Event.FAILED) is State.ABSENT


def test_every_pair_outside_the_table_is_refused():
    others = set(itertools.product(State, Event)) - set(TRANSITIONS)

    for state, event in others:
        with pytest.raises(IllegalTransition, match=f"{event.name}.*{state.name}"):
            advance(state, event)


def test_only_a_verified_copy_becomes_ready():
    ways = [pair for pair, after in TRANSITIONS.items() if after is State.READY]

    assert ways == [(State.STAGING, Event.PUBLISHED)]
