"""The rooms of the native part, a C source with its header: none need each other.

Arrows are includes and calls; calls by function pointers and in macros are not seen.
What a circle holds can only be understood, and tested, together.
"""

from pathlib import Path

import pytest

from support.sourcetree import called, circles, included, native_c, offences

pytestmark = pytest.mark.usefixtures("at_the_root")


def rooms() -> dict[Path, set[Path]]:
    """Each room, with those that it needs."""
    found: dict[Path, set[Path]] = {room(path): set() for path in native_c()}
    for path in native_c():
        found[room(path)] |= {room(there) for there in included(path)} & set(found)
    for path, calls in called().items():
        for places in calls.values():
            found[room(path)] |= set(map(room, places))
    return {one: needed - {one} for one, needed in found.items()}


def room(path: Path) -> Path:
    """The room of a source or of its header."""
    return path.with_suffix("")


def test_no_rooms_need_each_other() -> None:
    found = [", ".join(map(str, sorted(one))) for one in circles(rooms())]

    assert len(rooms()) > 100
    assert not found, offences("Circles", found)


def test_circles_are_found_whole_and_nothing_else() -> None:
    a, b, c, d, e = map(Path, "abcde")
    graph = {a: {b, e}, b: {c}, c: {a, d}, d: {e}, e: {d}}

    found = circles(graph)

    assert sorted(map(sorted, found)) == [[a, b, c], [d, e]]
    assert circles({a: {b}, b: {c}, c: set()}) == []


def test_a_room_needs_what_its_source_and_its_header_do() -> None:
    table = Path("monarch/native/shared/replica_table")
    files = [table.with_suffix(".c"), table.with_suffix(".h")]

    needed = {room(there) for path in files for there in included(path)}

    assert len(needed) > 2
    assert needed - {table} <= rooms()[table]
