"""An index of an earlier job: data of a file are returned once confirmed."""

import os

import pytest

from support.shim_fixtures import Board, python

CALLS = {
    "stat": "os.stat(p).st_size",
    "lstat": "os.lstat(p).st_size",
    "by a link": "os.stat('latest').st_size",
    "fstatat": "os.stat('two.bin', dir_fd=os.open('.', os.O_RDONLY)).st_size",
    "access": "os.access(p, os.F_OK) and os.stat(p).st_size",
    "pathlib": "__import__('pathlib').Path(p).stat().st_size",
}


@pytest.fixture
def provisional(board: Board) -> Board:
    """A board whose index is from before two.bin was rewritten in its place."""
    (board.root / "latest").symlink_to("two.bin")
    board.start("-i")
    path = board.root / "two.bin"
    before = path.stat()
    with path.open("r+b") as file:
        file.truncate(10)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return board


def size(board: Board, call: str) -> int:
    """The size of two.bin by a call of a program."""
    return int(python(board, f"p = D + '/two.bin'\nprint({call})"))


@pytest.mark.parametrize("call", CALLS)
def test_file_not_yet_compared_in_this_job_is_read_from_the_origin(
    provisional: Board, call: str
) -> None:
    assert size(provisional, CALLS[call]) == 10


@pytest.mark.parametrize("way", ["publish", "confirm"])
def test_file_that_this_job_has_staged_or_compared_is_answered(
    board: Board, way: str
) -> None:
    board.start("-i")
    path = board.root / "two.bin"
    before = board.counters()["stats_answered"]
    assert size(board, CALLS["stat"]) == path.stat().st_size
    assert board.counters()["stats_answered"] == before

    board.ask(f"{way} two.bin")

    assert size(board, CALLS["stat"]) == path.stat().st_size
    assert board.counters()["stats_answered"] > before


def test_directories_and_links_are_answered(board: Board) -> None:
    """They were compared with the origin when the index was loaded."""
    board.start("-i")
    before = board.counters()["stats_answered"]

    python(board, "os.stat(D + '/a/b'), os.lstat(D + '/a/link.bin')")

    assert board.counters()["stats_answered"] == before + 2


def test_index_of_this_job_is_answered_at_once(board: Board) -> None:
    board.start()
    before = board.counters()["stats_answered"]

    assert size(board, CALLS["stat"]) == (board.root / "two.bin").stat().st_size

    assert board.counters()["stats_answered"] > before


def test_times_of_a_file_that_was_written_to_are_the_origins(
    provisional: Board,
) -> None:
    provisional.ask("publish one.bin")
    python(provisional, "open('one.bin', 'w').write('NEW')")

    shown = python(provisional, "print(os.stat(D + '/one.bin').st_size)")

    assert shown == "3\n"
