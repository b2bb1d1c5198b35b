"""The states of Replicas: the transition table, and that nothing else writes them."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest

from monarch.native import Reason, ReplicaState, state_word, word_parts
from monarch.stager import Event, FileTable, Replicas, WrittenMarks
from monarch.stager.replicas import (
    PASSING,
    REASONS,
    TRANSITIONS,
    IllegalTransition,
    advance,
)
from support import pysource

SOURCES = Path(__file__).parents[2] / "monarch"
OWNER = SOURCES / "stager" / "replicas.py"
# The names under which the shared arrays of state words and marks are known.
NAMES = ("words", "marks", "written", "roots")
ARRAYS = {*NAMES, *(f"_{name}" for name in NAMES)}

# What may happen to a Replica, and where it leads; everything else is a fault.
TABLE = {
    ("ABSENT", "ORDERED"): "STAGING",
    ("ABSENT", "REFUSED"): "ABSENT",
    ("ABSENT", "RETRIED"): "ABSENT",
    ("ABSENT", "ENDED"): "ABSENT",
    ("STAGING", "MOVED"): "STAGING",
    ("STAGING", "PUBLISHED"): "READY",
    ("STAGING", "FAILED"): "ABSENT",
    ("STAGING", "RESTARTED"): "ABSENT",
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
        self.published: list[int] = []
        self.marks = WrittenMarks(self.roots, self.written, lambda: None)
        self.replicas = Replicas(
            FileTable(
                sizes=np.full(count, 10, np.uint64),
                words=self.words,
                marks=self.marks,
                publish=self.publish,
                name_of=str,
                inodes_of=lambda files, tier: [],
                inodes_in=lambda tier: [],
                bases=bases,
            )
        )

    def publish(self, file: int, word: int) -> None:
        self.words[file] = word
        self.published.append(file)

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


@pytest.mark.parametrize("event", [Event.ORDERED, Event.RETRIED])
def test_a_file_that_is_absent_for_good_is_neither_ordered_nor_tried_again(event):
    for reason in (Reason.CHANGED, Reason.ERROR, Reason.MEMORY, Reason.STOPPING):
        with pytest.raises(IllegalTransition):
            advance(ReplicaState.ABSENT, event, reason)


def test_a_change_is_stored_in_the_state_word():
    memory = Memory()

    memory.replicas.change(3, Event.ORDERED, tier=2)

    assert memory.state(3) == (ReplicaState.STAGING, 2, Reason.NONE)
    assert memory.published == [], "programs that wait go on waiting"
    memory.replicas.change(3, Event.FAILED, reason=Reason.ERROR)
    assert memory.state(3) == (ReplicaState.ABSENT, 0, Reason.ERROR)
    assert memory.published == [3], "programs that wait look again"


def test_an_illegal_change_leaves_the_state_as_it_was():
    memory = Memory()
    memory.words[1] = state_word(ReplicaState.READY, 1)

    with pytest.raises(IllegalTransition):
        memory.replicas.change(1, Event.ORDERED)
    with pytest.raises(IllegalTransition):
        memory.replicas.change_all(np.arange(3), Event.LOST)

    assert memory.state(1) == (ReplicaState.READY, 1, Reason.NONE)


def test_files_whose_reason_has_passed_can_be_asked_for_and_others_cannot():
    memory = Memory(6, bases=(0, 3))
    for file in (1, 4):
        memory.replicas.change(file, Event.REFUSED, reason=Reason.BUSY)
    memory.replicas.change(2, Event.REFUSED, reason=Reason.NO_ROOM)

    memory.replicas.retry_root(0, Reason.BUSY)

    assert [memory.replicas.is_absent(file) for file in (1, 2, 4)] == [1, 0, 0]
    assert not memory.replicas.retry(2, Reason.BUSY)
    memory.replicas.retry_all(np.array([2, 4]), Reason.NO_ROOM)
    assert memory.replicas.is_absent(2)


def test_the_end_leaves_every_file_absent_whatever_its_state():
    memory = Memory(len(ReplicaState))
    memory.words[:] = [state_word(state, 1) for state in ReplicaState]

    memory.replicas.end()

    states = {memory.state(file) for file in range(len(ReplicaState))}
    assert states == {(ReplicaState.ABSENT, 0, Reason.STOPPING)}


def test_a_written_file_is_never_due_again_and_nobody_else_is_concerned():
    memory = Memory(4, bases=(0, 2))

    memory.replicas.mark_written(0)
    memory.marks.add_to_roots(np.array([1]), np.array([4], np.uint8))

    assert [memory.replicas.is_due(file) for file in range(4)] == [0, 1, 0, 0]
    assert memory.replicas.unwritten(np.arange(4)).tolist() == [1, 2, 3]


def test_the_arrays_that_others_see_cannot_be_written():
    memory = Memory()

    for array in (memory.replicas.words, memory.marks.marks, memory.marks.roots):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def writes(path: Path) -> list[str]:
    """Where a file stores into an array of states or marks, or publishes a word."""
    found = []
    for node in ast.walk(pysource.parse(path)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
            name = getattr(target, "attr", getattr(target, "id", ""))
            if name in ARRAYS:
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
        name = getattr(node, "attr", getattr(node, "id", ""))
        if name in ("state_store", "marks_set"):
            line = getattr(node, "lineno", 0)
            found.append(f"{path}:{line}: {ast.unparse(node)}")
    return found


def test_no_other_module_writes_state_words_or_marks():
    others = {path for path in SOURCES.rglob("*.py") if path != OWNER}
    found = [place for path in sorted(others) for place in writes(path)]

    assert writes(OWNER), "the search finds nothing"
    # The one place where the native store is given to the owner.
    assert [place for place in found if "agent/namespace.py" not in place] == []
    assert len(found) == 1
