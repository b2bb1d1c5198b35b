"""The states of Replicas: the transition table, and that nothing else writes them."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest

from monarch import native
from monarch.native import (
    CONSTANTS,
    Reason,
    ReplicaState,
    Source,
    state_word,
    word_parts,
)
from monarch.stager import Event, FileTable, Replicas, WrittenMarks
from monarch.stager.replicas import (
    NATIVE,
    PASSING,
    REASONS,
    TRANSITIONS,
    IllegalTransition,
    advance,
)
from support import pysource

SOURCES = Path(__file__).parents[2] / "monarch"
OWNER = SOURCES / "stager" / "replicas.py"
# The names of the shared arrays of state words and marks.
NAMES = ("words", "marks", "written", "roots")
ARRAYS = {*NAMES, *(f"_{name}" for name in NAMES)}

FIXED = CONSTANTS["STATE_FIXED"]
GENERATION = FIXED + 1
CONFIRMED = 1 << 31

# The possible events of a Replica and the resulting states; all others are faults.
TABLE = {
    ("ABSENT", "BEGUN"): "STAGING",
    ("ABSENT", "REFUSED"): "ABSENT",
    ("ABSENT", "RETRIED"): "ABSENT",
    ("ABSENT", "ENDED"): "ABSENT",
    ("STAGING", "PUBLISHED"): "READY",
    ("STAGING", "FAILED"): "ABSENT",
    ("STAGING", "ENDED"): "ABSENT",
    ("READY", "LOST"): "ABSENT",
    ("READY", "EVICTED"): "EVICTING",
    ("READY", "REMOVED"): "ABSENT",
    ("READY", "ENDED"): "ABSENT",
    ("EVICTING", "REMOVED"): "ABSENT",
    ("EVICTING", "ENDED"): "ABSENT",
}


class Memory:
    """Replicas over memory that the data plane and programs would share."""

    def __init__(self, count: int = 6, bases: tuple[int, ...] = (0,)) -> None:
        self.words = np.zeros(count, np.uint32)
        self.written = np.zeros(count, np.uint8)
        self.roots = np.zeros(len(bases), np.uint8)
        self.marks = WrittenMarks(self.roots, self.written, lambda: None)
        self.replicas = Replicas(
            FileTable(
                sizes=np.full(count, 10, np.uint64),
                words=self.words,
                marks=self.marks,
                name_of=str,
                inodes_of=lambda files, tier: [],
                inodes_in=lambda tier: [],
                bases=bases,
            )
        )

    def state(self, file: int) -> tuple[ReplicaState, int, Reason]:
        return word_parts(int(self.words[file]))


def some_reason(event: Event) -> Reason:
    """A Reason with which an event may leave a File absent."""
    return min(REASONS.get(event, {Reason.NONE}))


def test_the_table_is_the_documented_one():
    found = {
        (state.name, event.name): after.name
        for (state, event), after in TRANSITIONS.items()
    }

    assert found == TABLE


def test_every_pair_outside_the_table_is_refused():
    others = set(itertools.product(ReplicaState, Event)) - set(TRANSITIONS)

    assert others
    for state, event in others:
        with pytest.raises(IllegalTransition, match=rf"{event.name}.*{state.name}"):
            advance(state, event, min(PASSING.get(event, {Reason.NONE})))


def test_only_a_verified_copy_becomes_ready():
    ways = [pair for pair, after in TRANSITIONS.items() if after is ReplicaState.READY]

    assert ways == [(ReplicaState.STAGING, Event.PUBLISHED)]


@pytest.mark.parametrize("event", Event)
def test_an_event_leaves_a_file_absent_for_its_own_reasons_only(event):
    state = next(state for state, known in TRANSITIONS if known is event)
    before = min(PASSING.get(event, {Reason.NONE}))

    for reason in Reason:
        if reason in REASONS.get(event, {Reason.NONE}):
            advance(state, event, before, reason)
        else:
            with pytest.raises(IllegalTransition, match=reason.name):
                advance(state, event, before, reason)


@pytest.mark.parametrize("event", [Event.BEGUN, Event.RETRIED])
def test_a_file_that_is_absent_for_good_is_neither_ordered_nor_tried_again(event):
    for reason in (Reason.CHANGED, Reason.ERROR, Reason.MEMORY, Reason.STOPPING):
        with pytest.raises(IllegalTransition):
            advance(ReplicaState.ABSENT, event, reason)


def test_a_change_is_stored_in_the_state_word_and_keeps_its_generation():
    memory = Memory()
    memory.words[3] = CONFIRMED + 5 * GENERATION + state_word(ReplicaState.READY, 2)

    assert memory.replicas.change(3, Event.EVICTED, tier=2)
    assert memory.state(3) == (ReplicaState.EVICTING, 2, Reason.NONE)
    assert memory.replicas.change(3, Event.REMOVED, reason=Reason.MEMORY)

    assert memory.state(3) == (ReplicaState.ABSENT, 0, Reason.MEMORY)
    assert int(memory.words[3]) & ~FIXED == CONFIRMED + 5 * GENERATION


def test_a_replica_from_a_peer_changes_as_any_other():
    memory = Memory()
    memory.words[3] = state_word(ReplicaState.READY, 1, source=Source.PEER)

    assert memory.replicas.change(3, Event.LOST)

    assert memory.state(3) == (ReplicaState.ABSENT, 0, Reason.NONE)


@pytest.mark.parametrize(
    ("event", "reason", "before", "wakes"),
    [
        (Event.REFUSED, Reason.BUSY, state_word(ReplicaState.ABSENT), True),
        (Event.EVICTED, Reason.NONE, state_word(ReplicaState.READY), True),
        (Event.LOST, Reason.NONE, state_word(ReplicaState.READY), False),
    ],
)
def test_waiting_programs_are_woken_by_the_right_events(
    monkeypatch, event, reason, before, wakes
):
    memory, woken = Memory(), []

    def change(words, file, seen, following, *, wake):
        woken.append((file, wake))
        return native.state_change(words, file, seen, following, wake=wake)

    monkeypatch.setattr("monarch.stager.replicas.state_change", change)
    memory.words[2] = before

    assert memory.replicas.change(2, event, reason=reason)

    assert woken == [(2, wakes)]


def test_an_impossible_event_changes_nothing():
    memory = Memory()
    memory.words[1] = state_word(ReplicaState.STAGING, 1)

    assert not memory.replicas.change(1, Event.LOST)
    assert not memory.replicas.change(1, Event.REFUSED, reason=Reason.BUSY)

    assert memory.state(1) == (ReplicaState.STAGING, 1, Reason.NONE)


def test_a_change_that_races_with_another_one_uses_its_result(monkeypatch):
    memory = Memory()
    memory.words[1] = state_word(ReplicaState.READY)

    def meet(words, file, seen, following, *, wake):
        monkeypatch.undo()
        memory.words[file] = state_word(ReplicaState.STAGING)
        return native.state_change(words, file, seen, following, wake=wake)

    monkeypatch.setattr("monarch.stager.replicas.state_change", meet)

    assert not memory.replicas.change(1, Event.LOST), "it is being staged by then"
    assert memory.state(1) == (ReplicaState.STAGING, 0, Reason.NONE)


@pytest.mark.parametrize("event", sorted(NATIVE))
def test_results_of_transfers_are_set_by_the_data_plane_only(event):
    with pytest.raises(AssertionError):
        Memory().replicas.change(1, event)


def test_of_many_files_only_those_ready_in_the_tier_are_lost():
    memory = Memory()
    memory.words[:] = [
        state_word(ReplicaState.READY, 1, source=Source.PEER),
        state_word(ReplicaState.READY, 1),
        state_word(ReplicaState.READY, 0),
        state_word(ReplicaState.STAGING, 1),
        *[state_word(ReplicaState.ABSENT)] * 2,
    ]
    assert memory.replicas.ready_in(1).tolist() == [0, 1]

    assert memory.replicas.change_ready(np.arange(6), 1) == 2

    states = [memory.state(file)[:2] for file in range(4)]
    absent = (ReplicaState.ABSENT, 0)
    kept = [(ReplicaState.READY, 0), (ReplicaState.STAGING, 1)]
    assert states == [absent, absent, *kept]


def test_a_replica_that_the_data_plane_has_just_removed_is_not_lost_too(monkeypatch):
    memory = Memory()
    memory.words[1] = state_word(ReplicaState.READY, 1)

    def meet(words, files, where, fixed):
        memory.words[1] = state_word(ReplicaState.ABSENT)  # and its space is freed
        return native.states_change(words, files, where, fixed)

    monkeypatch.setattr("monarch.stager.replicas.states_change", meet)

    assert memory.replicas.change_ready(np.array([1]), 1) == 0


def test_only_files_whose_reason_has_passed_can_be_requested():
    memory = Memory(6, bases=(0, 3))
    for file in (1, 4):
        memory.replicas.change(file, Event.REFUSED, reason=Reason.BUSY)
    memory.replicas.change(2, Event.REFUSED, reason=Reason.NO_ROOM)

    memory.replicas.retry_root(0, Reason.BUSY)

    assert [memory.replicas.is_absent(file) for file in (1, 2, 4)] == [1, 0, 0]
    assert not memory.replicas.retry(2, Reason.BUSY)
    memory.replicas.retry_all(np.array([2, 4]), Reason.NO_ROOM)
    assert memory.replicas.is_absent(2)


def test_the_end_leaves_every_file_absent():
    memory = Memory(len(ReplicaState))
    memory.words[:] = [state_word(state, 1) for state in ReplicaState]

    memory.replicas.end()

    states = {memory.state(file) for file in range(len(ReplicaState))}
    assert states == {(ReplicaState.ABSENT, 0, Reason.STOPPING)}


def test_a_written_file_is_never_due_again_and_others_are_unaffected():
    memory = Memory(4, bases=(0, 2))

    memory.replicas.mark_written(0)
    memory.marks.add_to_roots(np.array([1]), np.array([4], np.uint8))

    assert [memory.replicas.is_due(file) for file in range(4)] == [0, 1, 0, 0]
    assert memory.replicas.unwritten(np.arange(4)).tolist() == [1, 2, 3]


def test_arrays_visible_to_others_are_read_only():
    memory = Memory()

    for array in (memory.replicas.words, memory.marks.marks, memory.marks.roots):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def writes(path: Path) -> list[str]:
    """Where a file stores into an array of states or marks, or has it stored."""
    found = []
    for node in ast.walk(pysource.parse(path)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
            name = getattr(target, "attr", getattr(target, "id", ""))
            if name in ARRAYS:
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
        name = getattr(node, "attr", getattr(node, "id", ""))
        if name in ("state_change", "states_change", "marks_set"):
            line = getattr(node, "lineno", 0)
            found.append(f"{path}:{line}: {ast.unparse(node)}")
    return found


def test_no_other_module_writes_state_words_or_marks():
    others = {path for path in SOURCES.rglob("*.py") if path != OWNER}
    others -= set((SOURCES / "native").iterdir())

    assert writes(OWNER), "the search finds nothing"
    assert [place for path in sorted(others) for place in writes(path)] == []
