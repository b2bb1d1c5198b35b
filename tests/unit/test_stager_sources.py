"""Which node is asked for a File, and how failing nodes are treated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.metrics import AgentCounters
from monarch.placement import Mode, Placement
from monarch.stager import Opening, Policy, Sources
from monarch.stager.breaker import FAILURES_MAX, PAUSE_FIRST_S, PAUSE_MAX_S
from support.fake_engine import PeerNotes
from support.stages import place

COUNT, NODES = 200, 5


class Clock:
    """Seconds that pass on command of the test."""

    def __init__(self):
        self.now_s = 50.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def make_sources(
    own: int,
    clock: Clock,
    placement: Placement | None = None,
    alive=range(NODES),
    notes: PeerNotes | None = None,
) -> Sources:
    placement = placement or place(COUNT, [1 << 20] * NODES)
    policy = Policy.cluster(placement, own)
    sources = Sources(policy, notes or PeerNotes(), AgentCounters(), clock)
    for peer in alive:
        if peer != own:
            assert sources.due(peer)
            sources.connected(peer)
    return sources


@given(
    st.integers(0, COUNT - 1),
    st.lists(st.sets(st.integers(0, NODES - 1)), min_size=NODES, max_size=NODES),
    st.sets(st.integers(0, NODES - 1)),
)
def test_requests_flow_towards_the_owner_whatever_each_node_sees(file, views, tried):
    placement = place(COUNT, [1 << 20] * NODES)
    order = placement.order(file)

    for own in range(NODES):
        sources = make_sources(own, Clock(), placement, views[own])
        asked = sources.source(file, tried)

        before = order[: order.index(own)]
        possible = [peer for peer in before if peer in views[own] - tried]
        assert asked == (possible[0] if possible else None)


def test_kept_and_owned_files_of_a_node_match_the_placement(clock):
    placement = place(COUNT, [120 * 4096] * NODES, Mode.AUTO)
    sources = make_sources(2, clock, placement)

    policy = sources.policy
    assert policy.kept.tolist() == placement.kept(2).tolist()
    assert [policy.owns(f) for f in range(COUNT)] == (placement.owners == 2).tolist()
    assert policy.placed.all()


def test_a_peer_is_asked_only_when_there_is_a_connection(clock):
    sources = make_sources(0, clock, alive=())
    file = next(f for f in range(COUNT) if sources.policy.owner(f) == 3)

    before = sources.source(file)
    assert sources.due(3)
    assert not sources.due(3), "the trial is under way"
    sources.connected(3)

    assert (before, sources.source(file)) == (None, 3)


def test_failures_in_a_row_open_the_breaker_once_and_are_to_be_announced(clock):
    sources = make_sources(0, clock)

    for _ in range(FAILURES_MAX + 5):
        sources.late(3)

    assert sources.openings() == [Opening(3, known=False)]
    assert sources.openings() == []
    assert not sources.usable(3)
    assert (sources.events(3).late, sources.events(3).opened) == (FAILURES_MAX + 5, 1)


def test_complaints_of_others_open_it_too_but_are_not_passed_on(clock):
    sources = make_sources(0, clock)

    for _ in range(FAILURES_MAX):
        sources.complained(3)

    assert sources.openings() == [Opening(3, known=True)]
    assert sources.events(3).complaints == FAILURES_MAX
    assert sources.events(3).failures == 0


def test_complaints_about_a_peer_on_trial_do_not_count(clock):
    sources = make_sources(0, clock)
    sources.lost(3)
    clock.now_s += PAUSE_MAX_S
    assert sources.due(3)

    sources.complained(3)
    sources.connected(3)

    assert sources.usable(3)


def test_one_ended_connection_is_one_failure_however_often_it_is_reported(clock):
    sources = make_sources(0, clock)

    for _ in range(20):
        sources.lost(3)

    assert sources.openings() == [Opening(3, known=True)]
    assert sources.events(3).failures == 1


def test_the_pause_grows_until_the_peer_has_answered(clock):
    notes = PeerNotes()
    sources = make_sources(0, clock, notes=notes)
    sources.lost(3)
    pauses = []
    for _ in range(8):
        began_s = clock.now_s
        while not sources.due(3):
            clock.now_s += 0.25
        pauses.append(clock.now_s - began_s)
        sources.connected(3)  # it sends a greeting, but then
        sources.lost(3)

    assert pauses[0] == 2 * PAUSE_FIRST_S, "its first greeting proved nothing either"
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_MAX_S

    while not sources.due(3):
        clock.now_s += 0.25
    sources.connected(3)
    notes.answer(3, 10)
    sources.lost(3)
    clock.now_s += PAUSE_FIRST_S

    assert sources.due(3)


def test_a_failed_handshake_lengthens_the_pause(clock):
    sources = make_sources(0, clock, alive=())
    assert sources.due(3)

    sources.failed(3)

    clock.now_s += PAUSE_FIRST_S
    assert not sources.due(3)
    clock.now_s += PAUSE_FIRST_S
    assert sources.due(3)
    assert sources.events(3).failures == 0, "nothing was asked of it"


def test_a_node_that_joins_anew_is_tried_at_once(clock):
    sources = make_sources(0, clock)
    sources.lost(3)

    sources.appeared(3)

    assert sources.due(3)


def test_a_node_that_leaves_in_order_is_no_failure(clock):
    sources = make_sources(0, clock)

    sources.left(3)

    assert not sources.usable(3)
    assert sources.openings() == []
    assert (sources.events(3).failures, sources.events(3).opened) == (0, 0)


def test_the_data_plane_is_notified_of_usable_and_of_departed_peers(clock):
    notes = PeerNotes()
    sources = make_sources(0, clock, notes=notes)
    told = [notes.told[3]]

    for event in (sources.lost, sources.gone, sources.appeared):
        event(3)
        told.append(notes.told[3])
    assert sources.due(3)
    for event in (sources.connected, sources.late, sources.left):
        event(3)
        told.append(notes.told[3])

    usable, away, gone = (True, False), (False, False), (False, True)
    assert told == [usable, away, gone, away, usable, usable, gone]


def test_each_change_of_available_peers_is_news(clock):
    sources = make_sources(0, clock, alive=())
    assert sources.due(3)
    heard = [sources.news]

    for event in (sources.connected, sources.gone, sources.left):
        event(3)
        heard.append(sources.news)
    sources.note_abandoned()
    heard.append(sources.news)
    before = sources.news
    for event in (sources.late, sources.refused, sources.complained):
        event(3)

    assert heard == sorted(set(heard)), "one more with each"
    assert sources.news == before
    assert sources.abandoned == 1


def test_every_opening_and_closing_is_counted(clock):
    sources = make_sources(0, clock)
    sources.lost(3)
    clock.now_s += PAUSE_MAX_S
    assert sources.due(3)
    sources.connected(3)

    events = sources.events(3)
    assert (events.opened, events.closed) == (1, 1)
    assert repr(sources) == "<Sources of node 0, 4 peers usable>"
