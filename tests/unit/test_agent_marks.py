"""The table of marks: local marks are sent once, marks of other nodes are set."""

import numpy as np
import pytest

from monarch.agent import written_marks
from monarch.agent.written_marks import MarkTable
from monarch.native import CONSTANTS
from monarch.peers.protocol.marks import KIND_SPAN, KINDS, ROOTS
from monarch.stager import WrittenMarks

# Two roots: of 100 Files and 3 directories, of 50 and 2.
BASES = (0, 100, 150, 153)
COUNT = 155


class Table:
    """A table of marks over memory that programs would share."""

    def __init__(self, bases: tuple[int, ...] = BASES, count: int = COUNT) -> None:
        self.roots = np.zeros(ROOTS, np.uint8)
        self.written = np.zeros(count, np.uint8)
        self.noted = 0
        self.marks = MarkTable(WrittenMarks(self.roots, self.written, self.note), bases)

    def note(self) -> None:
        self.noted += 1

    def sweep(self) -> list[int]:
        """Return all that is new, Files and directories by their own numbers."""
        found = self.marks.new_roots()
        for start in self.marks.pieces:
            found += self.marks.new_in(start)
        return found


def files(*numbers: int) -> list[int]:
    return [ROOTS + number for number in numbers]


def of_kind(kind: int, marks: list[int]) -> list[int]:
    return [kind * KIND_SPAN + mark for mark in marks]


def of_all_kinds(marks: list[int]) -> list[int]:
    return [mark for kind in range(KINDS) for mark in of_kind(kind, marks)]


def test_marks_on_the_wire_have_room_for_all_roots_and_kinds():
    assert CONSTANTS["ROOTS_MAX"] <= ROOTS
    assert CONSTANTS["MARKED_ALL"] == (1 << KINDS) - 1


def test_each_mark_is_found_once():
    table = Table()
    assert table.sweep() == []

    table.written[[5, 154]] = 1
    table.roots[1] = 1

    assert table.sweep() == [1, *files(5, 154)]
    assert table.sweep() == []
    table.written[5] = 1
    table.written[6] = 1
    assert table.sweep() == files(6)
    table.written[5] |= 2
    table.written[6] |= 4
    assert table.sweep() == of_kind(1, files(5)) + of_kind(2, files(6))


def test_a_nonexistent_root_is_not_reported():
    table = Table()

    table.roots[2] = 1

    assert table.sweep() == []


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 20])
def test_pieces_of_any_size_find_all(monkeypatch, piece):
    monkeypatch.setattr(written_marks, "PIECE_BYTES", piece)
    table = Table()
    numbers = [0, 6, 7, 63, 64, 99, 100, 149, 150, 154]

    table.written[numbers] = 1

    assert table.sweep() == files(*numbers)


def test_marks_of_others_are_set_and_not_sent_again():
    table = Table()
    table.written[5] = 1
    table.sweep()

    new = table.marks.set([*files(5, 9, 152), 0])

    assert new.tolist() == [9, 152]
    assert np.flatnonzero(table.written).tolist() == [5, 9, 152]
    assert np.flatnonzero(table.roots).tolist() == [0]
    assert table.sweep() == []


def test_local_marks_are_merged_with_those_of_others():
    table = Table()
    table.written[5] = 1
    table.roots[0] = 1
    table.sweep()

    new = table.marks.set([*of_kind(3, files(5)), *of_kind(2, [0])])

    assert new.tolist() == []
    assert (table.written[5], table.roots[0]) == (9, 5)
    table.written[5] |= 2
    assert table.sweep() == of_kind(1, files(5))


def test_marks_beyond_this_catalog_are_ignored():
    table = Table()

    new = table.marks.set([2, 63, *files(COUNT, COUNT + 1000), *of_kind(3, [63])])

    assert new.tolist() == []
    assert not table.written.any()
    assert not table.roots.any()


def test_a_root_with_too_many_marks_is_reported_as_a_whole(monkeypatch):
    monkeypatch.setattr(written_marks, "SINGLE_MAX", 20)
    table = Table()
    table.written[:20] = 1
    assert table.sweep() == files(*range(20))

    table.written[[30, 110, 150]] = 1

    assert table.sweep() == [*of_all_kinds([0]), *files(110)]
    assert not table.roots.any()  # programs of this node are still served the rest
    table.written[[31, 111]] = 1
    assert table.sweep() == files(111)


def test_files_of_a_root_that_passes_through_are_not_reported(monkeypatch):
    table = Table()
    table.marks.set([0])
    table.written[30] = 1
    assert table.sweep() == files(30)
    table.marks.set(of_all_kinds([0]))

    table.written[[31, 110]] = 1

    assert table.sweep() == files(110)


def test_roots_without_files_or_directories_take_no_marks_of_others():
    table = Table(bases=(0, 0, 5, 5, 6, 6), count=8)

    assert table.marks._roots_of(np.arange(8)).tolist() == [1, 1, 1, 1, 1, 0, 2, 2]
