"""The circuit breaker: its table, its bounds, and its recovery."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.stager.breaker import (
    FAILURES_MAX,
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    TRANSITIONS,
    TRIAL_MAX_S,
    WELL,
    Breaker,
    PeerEvent,
    State,
    after,
    ask,
)


def opened(now_s: float = 0.0) -> Breaker:
    return after(Breaker(), PeerEvent.GONE, now_s)


def on_trial(now_s: float = PAUSE_FIRST_S) -> Breaker:
    allowed, breaker = ask(opened(now_s - PAUSE_FIRST_S), now_s)
    assert allowed
    return breaker


def test_the_table_answers_every_event_in_every_state():
    assert set(TRANSITIONS) == set(product(State, PeerEvent))


def test_failures_in_a_row_open_it_and_fewer_do_not():
    breaker = Breaker()
    for _ in range(FAILURES_MAX - 1):
        breaker = after(breaker, PeerEvent.FAILURE, 5.0)
    assert ask(breaker, 5.0) == (True, breaker)

    breaker = after(breaker, PeerEvent.FAILURE, 6.0)

    assert (breaker.state, breaker.since_s) == (State.OPEN, 6.0)
    assert ask(breaker, 6.0) == (False, breaker)


def test_a_success_between_them_forgives_failures():
    breaker = Breaker()
    for _ in range(10 * FAILURES_MAX):
        breaker = after(breaker, PeerEvent.FAILURE, 0.0)
        breaker = after(breaker, PeerEvent.SUCCESS, 0.0)

    assert breaker == Breaker()


def test_a_failed_peer_is_not_asked_again_at_once():
    assert ask(opened(), PAUSE_FIRST_S / 2)[0] is False


def test_one_request_tries_after_the_pause_and_the_others_use_other_sources():
    first, breaker = ask(opened(), PAUSE_FIRST_S)
    second, breaker = ask(breaker, PAUSE_FIRST_S)

    assert (first, second) == (True, False)
    assert breaker.state is State.HALF_OPEN


def test_a_trial_that_succeeds_closes_it_as_if_nothing_had_been():
    assert after(on_trial(), PeerEvent.SUCCESS, 2.0) == Breaker()


@pytest.mark.parametrize("event", [PeerEvent.FAILURE, PeerEvent.GONE])
def test_a_trial_that_fails_doubles_the_pause_up_to_a_bound(event):
    now_s, pauses = PAUSE_FIRST_S, []
    breaker = on_trial()
    for _ in range(8):
        breaker = after(breaker, event, now_s)
        pauses.append(breaker.pause_s)
        now_s += breaker.pause_s
        allowed, breaker = ask(breaker, now_s)
        assert allowed

    assert pauses == [2.0, 4.0, 8.0, 16.0, *4 * [PAUSE_MAX_S]]


@pytest.mark.parametrize("make", [opened, on_trial])
def test_a_new_connection_closes_it_but_only_an_answer_forgets_the_pauses(make):
    back = after(make(), PeerEvent.BACK, 2.0)
    again = after(back, PeerEvent.GONE, 3.0)

    assert (back.state, back.failures) == (State.CLOSED, 0)
    assert again.pause_s == 2 * PAUSE_FIRST_S
    assert after(back, PeerEvent.SUCCESS, 3.0) is WELL


def test_a_connection_more_changes_nothing():
    breaker = after(Breaker(), PeerEvent.FAILURE, 1.0)

    assert after(breaker, PeerEvent.BACK, 2.0) is breaker


def test_a_trial_without_an_end_counts_as_failed():
    breaker = on_trial(now_s=10.0)

    allowed, breaker = ask(breaker, 10.0 + TRIAL_MAX_S)

    assert not allowed
    assert (breaker.state, breaker.pause_s) == (State.OPEN, 2 * PAUSE_FIRST_S)


@pytest.mark.parametrize(
    "event", [PeerEvent.SUCCESS, PeerEvent.FAILURE, PeerEvent.GONE]
)
def test_late_answers_neither_close_nor_lengthen_an_open_breaker(event):
    breaker = opened()

    assert after(breaker, event, 0.5) == breaker


@given(st.lists(st.tuples(st.sampled_from(PeerEvent), st.floats(0, 100)), max_size=60))
def test_any_history_keeps_the_bounds_and_a_way_back(history):
    breaker, now_s = Breaker(), 0.0
    for event, passed_s in history:
        now_s += passed_s
        breaker = after(breaker, event, now_s)
        assert breaker.failures < FAILURES_MAX
        assert PAUSE_FIRST_S <= breaker.pause_s <= PAUSE_MAX_S

    for _ in range(2):  # an endless trial, then the pause that it costs
        now_s += max(PAUSE_MAX_S, TRIAL_MAX_S) + 1e-6  # sums of floats are rounded
        allowed, breaker = ask(breaker, now_s)
        if allowed:
            break

    assert allowed
    assert after(breaker, PeerEvent.SUCCESS, now_s).state is State.CLOSED


@given(st.lists(st.floats(0.001, 5), min_size=1, max_size=300))
def test_a_dead_peer_is_tried_ever_more_seldom(gaps_s):
    breaker, now_s, tries = opened(), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        allowed, breaker = ask(breaker, now_s)
        if allowed:
            tries.append(now_s)
            breaker = after(breaker, PeerEvent.FAILURE, now_s)

    apart = [later - earlier for earlier, later in pairwise(tries)]
    for number, gap_s in enumerate(apart):
        assert gap_s >= min(PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** (number + 1)) - 1e-9
