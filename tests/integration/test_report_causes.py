"""Each cause for which an open reads the origin: provoked, counted, and reported."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.report import render, summarize
from monarch.report.causes import CAUSES
from support.figures import snapshot
from support.shim_fixtures import Board, Compile, python

CAT = "/bin/cat"
LARGE = ("-n", "-w", "100")  # all files of the board are larger
APPEND = "os.read(os.open('two.bin', os.O_RDONLY | os.O_APPEND), 9)"
REWRITE = "f = open('two.bin', 'r+b'); f.write(b'new'); f.close(); read('two.bin')"

Provoke = Callable[[Board], object]


def opened(name: str, *options: str, ask: str = "") -> Provoke:
    """A program reads one name of the dataset; first the agent gets a command."""

    def provoke(board: Board) -> None:
        board.start(*options)
        if ask:
            board.ask(ask)
        board.run(CAT, board.root / name)

    return provoke


def scripted(script: str) -> Provoke:
    """A Python program does something with staged files."""

    def provoke(board: Board) -> None:
        board.start()
        board.ask("publish-all")
        python(board, script)

    return provoke


def created(board: Board) -> None:
    """A program opens a file created after the scan."""
    board.start()
    (board.root / "new.bin").write_bytes(b"new")
    board.run(CAT, board.root / "new.bin")


def moved_in(board: Board) -> None:
    """A program opens an older file that was not there at the scan."""
    older = board.folder / "older.bin"
    older.write_bytes(b"older")
    board.start("-l")  # its scan happens long after
    older.rename(board.root / "older.bin")
    board.run(CAT, board.root / "older.bin")


def covered(board: Board) -> None:
    """A directory of the dataset is another one for this process."""
    other = board.folder / "other"
    (other / "b").mkdir(parents=True)
    (other / "same.bin").write_bytes(b"other")
    board.start()
    words = shlex.join(["mount", "--bind", str(other), str(board.root / "a")])
    shell = f"{words} && exec {CAT} {shlex.quote(str(board.root))}/a/same.bin"
    assert board.run("unshare", "-m", "sh", "-c", shell) == "other"


def lost(board: Board) -> None:
    """A replica was removed from its Tier."""
    board.start("-n")
    board.ask("publish two.bin")
    board.ask("lose two.bin")
    board.run(CAT, board.root / "two.bin")


def slots_taken(board: Board) -> None:
    """All request slots hold requests."""
    for number in range(4000):
        (board.root / f"many-{number}").write_bytes(b"large")
    (board.root / "tiny").write_bytes(b"tiny")
    board.start("-n", "-w", "4")
    python(board, "for n in range(4000): open(f'{D}/many-{n}').close()")
    before = board.counters()["origin_large"]
    board.run(CAT, board.root / "tiny")
    assert before == board.counters()["origin_large"] == 4000


PROVOKED: dict[str, Provoke] = {
    "origin_early": opened("two.bin", "-e"),
    "origin_program": opened("two.bin", "-f", "cat"),
    "origin_link": opened("away"),
    "origin_inside": opened("away", ask="inside"),
    "origin_parent": opened("folder/../same.bin"),
    "origin_covered": covered,
    "origin_new": created,
    "origin_unlisted": moved_in,
    "origin_names": opened("one.bin", "-u"),
    "origin_how": scripted(APPEND),
    "origin_denied": opened("two.bin", "-n", ask="deny two.bin"),
    "origin_written": scripted(REWRITE),
    "origin_refused": opened("two.bin", "-n", ask="fail two.bin"),
    "origin_full": opened("two.bin", "-n", ask="refuse two.bin"),
    "origin_busy": opened("two.bin", "-n", ask="busy two.bin"),
    "origin_whole": opened("two.bin", *LARGE, "-W", "200", ask="whole two.bin"),
    "origin_large": opened("two.bin", *LARGE),
    "origin_timeout": opened("two.bin", "-n", "-t", "300"),
    "origin_silent": opened("two.bin", "-s"),
    "origin_slots": slots_taken,
    "origin_lost": lost,
}
BY_A_CHILD = "origin_vfork"


def check(board: Board, counter: str, opens: int = 1) -> None:
    """The opens at the origin have this cause alone, and the report says so."""
    counters = board.counters()
    caused = {
        cause.counter: counters[cause.counter]
        for cause in CAUSES
        if counters[cause.counter] and cause.counter != "origin_large"
    }
    if counter == "origin_large":
        caused = {counter: counters[counter]}
    assert caused == {counter: opens}
    assert counters["opens_origin"] == opens + (
        counters["origin_large"] if counter != "origin_large" else 0
    )
    counts = {name: counters[name] for name in (counter, "opens_origin")}
    text = " ".join(render(summarize(snapshot(counts))).split())
    (cause,) = [one for one in CAUSES if one.counter == counter]
    verb = "open" if opens == 1 else "opens"
    assert f"{opens} {verb} read the origin {cause.text}" in text


def test_every_cause_is_provoked_here() -> None:
    assert {*PROVOKED, BY_A_CHILD} == {cause.counter for cause in CAUSES}


@pytest.mark.parametrize(
    "counter",
    [
        pytest.param(name, marks=[pytest.mark.root] * (name == "origin_covered"))
        for name in PROVOKED
    ],
)
def test_an_open_is_reported_with_its_cause(board: Board, counter: str) -> None:
    PROVOKED[counter](board)

    check(board, counter)


def test_an_open_of_a_vfork_child_is_reported_with_its_cause(
    board: Board, compiled: Compile
) -> None:
    behave: Path = compiled("behave.c")
    board.start("-n")

    board.run(behave, "vfork", board.root / "two.bin")

    check(board, BY_A_CHILD)


@pytest.mark.parametrize("name", ["absent.bin", "a/b", "one.bin/", "fifo"])
def test_an_open_of_no_dataset_file_has_no_cause(board: Board, name: str) -> None:
    board.start()
    board.ask("publish-all")

    python(
        board,
        "try: os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK))\n"
        "except OSError: pass".replace("sys.argv[1]", repr(name)),
    )

    counters = board.counters()
    assert counters["opens_origin"] == 0
    assert not [cause for cause in CAUSES if counters[cause.counter]]


def test_a_file_that_the_program_may_not_read_has_no_cause(board: Board) -> None:
    board.start("-n")
    board.ask("deny two.bin")
    (board.root / "two.bin").chmod(0)
    if os.access(board.root / "two.bin", os.R_OK):
        pytest.skip("root may read every file")

    python(board, "try: open('two.bin')\nexcept PermissionError: pass")

    assert board.counters()["opens_origin"] == 0
