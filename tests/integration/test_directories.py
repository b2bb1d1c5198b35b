"""Directories are listed from the Catalog while it describes them correctly."""

import os
import random
import sys
from pathlib import Path

import pytest

from support.directories import CALLS, FOLDERS, SCAN, answered, fill_folders, plain
from support.shim_fixtures import Board, python


@pytest.fixture
def listed(board: Board) -> Board:
    """The dataset is catalogued, and its directories may be listed."""
    fill_folders(board)
    board.start("-l")
    return board


def test_a_listing_is_that_of_the_file_system(listed: Board) -> None:
    """Names in their order, inodes and types, and nothing of deeper directories."""
    assert python(listed, SCAN) == plain(listed, SCAN)
    assert answered(listed) == len(FOLDERS)


@pytest.mark.parametrize("seed", range(5))
def test_any_tree_is_listed_as_it_is(board: Board, seed: int) -> None:
    """Also where names sort between that of a directory and what is below it."""
    choose, folders = random.Random(seed), [board.root]
    (board.root / "fifo").unlink()
    for _ in range(300):
        name = "".join(choose.choices("a-.~0\xe4", k=choose.randint(1, 4)))
        path = choose.choice(folders) / f"{name}_"
        if choose.random() < 0.4 and not path.exists():
            path.mkdir()
            folders.append(path)
        elif not path.is_dir():
            path.touch()
    board.start("-l")
    script = "for at, below, names in os.walk('.'): print(at, *below, *names)\n"

    assert python(board, script) == plain(board, script)
    assert answered(board) == len(folders) + 3


def test_a_listing_costs_the_directory_no_reading(
    listed: Board, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    words: list[str | Path] = [
        "strace",
        "-f",
        "-y",
        "-e",
        "trace=getdents64",
        "-o",
        trace,
    ]

    listed.run(
        *words, sys.executable, "-Sc", f"import os; os.listdir({str(listed.root)!r})"
    )

    assert answered(listed) >= 1
    assert str(listed.root) not in trace.read_text()


@pytest.mark.parametrize("read", ["one, 'readdir'", "one, 'readdir64'"])
def test_both_names_of_readdir_return_all_entries(listed: Board, read: str) -> None:
    assert python(listed, CALLS + f"print(rest(many(), {read}) == ALL)") == "True\n"
    assert answered(listed) == 2


@pytest.mark.parametrize("call", ["readdir_r", "readdir64_r"])
def test_both_names_of_readdir_r_return_all_entries(listed: Board, call: str) -> None:
    script = CALLS + f"print(rest(many(), one_r, '{call}') == ALL)"

    assert python(listed, script) == "True\n"
    assert answered(listed) == 2


def test_a_stream_can_seek_to_an_earlier_position(listed: Board) -> None:
    """By telldir() as well as by what readdir() says of the next place."""
    script = CALLS + (
        "d = many(); assert LIBC.telldir(d) == 0\n"
        "before = [one(d) for _ in range(100)]\n"
        "place, off = LIBC.telldir(d), LIBC.readdir(d).contents.off\n"
        "after = rest(d)\n"
        "LIBC.seekdir(d, place); assert len(rest(d)) == len(after) + 1\n"
        "LIBC.seekdir(d, off); assert rest(d) == after\n"
        "LIBC.seekdir(d, 0); assert rest(d) == ALL\n"
        "LIBC.seekdir(d, -5); assert rest(d) == []\n"
        "LIBC.rewinddir(d); print(rest(d) == ALL)\n"
    )

    assert python(listed, script) == "True\n"


def test_a_rewound_stream_shows_new_names(listed: Board) -> None:
    script = CALLS + (
        "d = many(); one(d)\n"
        "open('many/new', 'w').close(); assert 'new' not in rest(d)\n"
        "LIBC.rewinddir(d); print('new' in rest(d))\n"
    )

    assert python(listed, script) == "True\n"


def test_a_partly_read_descriptor_continues_at_its_position(listed: Board) -> None:
    script = CALLS + (
        "fd = os.open('many', os.O_RDONLY)\n"
        "real = REAL.fdopendir(os.dup(fd))\n"
        "assert rest(real, one, 'readdir', REAL) == ALL\n"
        "d = LIBC.fdopendir(fd); print(rest(d))\n"
    )

    assert python(listed, script) == "[]\n"


def test_a_fresh_descriptor_is_listed(listed: Board) -> None:
    script = CALLS + (
        "d = LIBC.fdopendir(os.open('many', os.O_RDONLY)); print(rest(d) == ALL)\n"
    )

    assert python(listed, script) == "True\n"
    assert answered(listed) == 2


def test_a_descriptor_below_a_stream_that_is_replaced_is_read(listed: Board) -> None:
    script = CALLS + (
        "d = many(); one(d)\n"
        "os.dup2(os.open('none', os.O_RDONLY), LIBC.dirfd(d)); print(rest(d))\n"
    )

    assert python(listed, script) == "['.', '..']\n"


def test_a_stream_that_is_closed_unseen_leaves_nothing_behind(listed: Board) -> None:
    """Also where another one gets its address."""
    script = CALLS + (
        "d = many(); one(d); REAL.closedir(d)\n"
        "again = REAL.opendir(b'none'); print(again == d, rest(again))\n"
        "REAL.closedir(again); d = many(); print(d == again, rest(d) == ALL)\n"
    )

    assert python(listed, script) == "True ['.', '..']\nTrue True\n"


def test_a_stream_continues_in_both_processes_after_a_fork(listed: Board) -> None:
    script = CALLS + (
        "d = many(); first = [one(d) for _ in range(50)]\n"
        "child = os.fork()\n"
        "ok = sorted(first + rest(d)) == ALL\n"
        "if not child: os._exit(ok)\n"
        "print(ok, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )

    assert python(listed, script) == "True 1\n"


def test_more_streams_than_are_kept_are_all_listed(listed: Board) -> None:
    script = CALLS + (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))\n"
        "open_ = [many() for _ in range(900)]\n"
        "for d in open_: one(d)\n"
        "print(all(len(rest(d)) == len(ALL) - 1 for d in open_))\n"
        "for d in open_: LIBC.closedir(d)\n"
        "print(rest(many()) == ALL)\n"
    )

    assert python(listed, script) == "True\nTrue\n"
    assert 200 <= answered(listed) <= 260


def test_threads_that_share_a_stream_get_each_name_once(listed: Board) -> None:
    script = CALLS + (
        "import threading\n"
        "d, got = many(), [[] for _ in range(4)]\n"
        "def read(mine): mine += rest(d, one_r, 'readdir_r')\n"
        "threads = [threading.Thread(target=read, args=(g,)) for g in got]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(sorted(sum(got, [])) == ALL)\n"
    )

    assert python(listed, script) == "True\n"


UNSURE = {
    "not settled": ((), "pass"),
    "with unknown names": (("-l", "-x", "many"), "pass"),
    "passed through": (("-l",), "os.chmod('a', 0o700)"),
    "unstable, after a change": (("-l", "-u"), "open('new', 'w').close()"),
}


@pytest.mark.parametrize("why", UNSURE)
def test_a_directory_that_may_differ_is_the_origins(board: Board, why: str) -> None:
    fill_folders(board)
    options, before = UNSURE[why]
    board.start(*options)

    shown = python(board, f"{before}\nprint(len(os.listdir('many')))\n")

    assert shown == "306\n"
    assert answered(board) == 0


def test_directories_are_listed_where_inodes_may_change(board: Board) -> None:
    fill_folders(board)
    board.start("-l", "-u")

    assert python(board, SCAN) == plain(board, SCAN)
    assert answered(board) == len(FOLDERS)


def test_a_saved_index_is_listed(board: Board) -> None:
    """Its directories are compared as those of any other."""
    fill_folders(board)
    board.start("-l", "-i")

    assert python(board, SCAN) == plain(board, SCAN)
    assert answered(board) == len(FOLDERS)


def test_listing_a_path_that_cannot_be_opened_fails(listed: Board) -> None:
    script = (
        "for name in ('missing', 'one.bin'):\n"
        "    try: os.listdir(name)\n"
        "    except OSError as error: print(error.errno)\n"
    )

    assert python(listed, script) == plain(listed, script)


def test_the_status_of_a_changed_directory_is_the_origins(listed: Board) -> None:
    """Once it is known that it has changed."""
    os.utime(listed.root / "many", (1, 1))

    shown = python(listed, "os.listdir('many'); print(os.stat('many').st_mtime)\n")

    assert shown == "1.0\n"
