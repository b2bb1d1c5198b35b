"""Opens of large Files that are not staged: which of them wait, and how long."""

import subprocess
import time
from pathlib import Path

import pytest

from support.shim_fixtures import Board

CAT = "/bin/cat"
STREAMS = ["fopen", "fopen64", "_IO_fopen", "freopen", "freopen64"]
OPENS = ["open", "open64", "openat", "__open_2"]
LARGE = ("-w", "100")  # all Files of the board are larger
WHOLE = (*LARGE, "-W", "1000000")
TIMEOUT_S = 0.6


def read(board: Board) -> None:
    """Reads a file with a program that opens it by open()."""
    assert board.run(CAT, board.root / "two.bin").startswith("two.bin")


def whole(board: Board) -> tuple[int, int]:
    """How many opens have waited for a whole File, and how many of them got it."""
    counters = board.counters()
    return counters["whole_waits"], counters["whole_served"]


def test_an_open_of_a_flagged_file_waits_until_it_is_staged(board: Board) -> None:
    board.start(*WHOLE, "-d", "20")
    board.ask("whole two.bin")

    read(board)
    read(board)

    counters = board.counters()
    assert (counters["opens_miss"], counters["opens_hit_tier0"]) == (1, 1)
    assert whole(board) == (1, 1)
    assert counters["origin_large"] == 0


def test_an_open_of_another_large_file_does_not_wait(board: Board) -> None:
    board.start(*WHOLE, "-n")
    board.ask("whole one.bin")

    read(board)

    assert board.counters()["origin_large"] == 1
    assert whole(board) == (0, 0)


@pytest.mark.parametrize("function", STREAMS)
def test_a_stream_waits_because_its_reads_are_not_seen(
    board: Board, probe: Path, function: str
) -> None:
    board.start(*WHOLE, "-d", "20")

    shown = board.run(probe, "open", function, board.root / "two.bin")

    assert shown.startswith(str(board.tier))
    assert whole(board) == (1, 1)


@pytest.mark.parametrize("function", OPENS)
def test_an_open_whose_reads_are_seen_does_not_wait(
    board: Board, probe: Path, function: str
) -> None:
    board.start(*WHOLE, "-n")

    shown = board.run(probe, "open", function, board.root / "two.bin")

    assert shown.startswith(str(board.root))
    assert whole(board) == (0, 0)


def test_a_file_above_the_limit_is_left_to_the_origin_and_not_requested(
    board: Board, probe: Path
) -> None:
    size = (board.root / "two.bin").stat().st_size
    board.start(*LARGE, "-W", str(size - 1), "-n")
    board.ask("whole two.bin")

    read(board)
    shown = board.run(probe, "open", "fopen", board.root / "two.bin")

    assert shown.startswith(str(board.root))
    assert board.counters()["origin_whole"] == 2
    assert board.ask("pending") == "0"
    assert whole(board) == (0, 0)


@pytest.mark.parametrize(
    ("mode", "way"), [("through", "origin_large"), ("wait", "opens_miss")]
)
def test_other_modes_are_not_changed_by_a_flag(
    board: Board, mode: str, way: str
) -> None:
    board.start(*WHOLE, "-m", mode)
    board.ask("whole two.bin")

    read(board)

    assert board.counters()[way] == 1
    assert whole(board) == (0, 0)


def waiting(board: Board) -> "subprocess.Popen[bytes]":
    """A program that waits for a File whose Transfer has begun."""
    board.start(*WHOLE, "-n", "-t", str(int(TIMEOUT_S * 1000)))
    board.ask("whole two.bin")
    program = subprocess.Popen(
        [CAT, str(board.root / "two.bin")], env=board.environ(), stdout=subprocess.PIPE
    )
    while board.counters()["whole_waits"] == 0:
        time.sleep(0.01)
    board.ask("staging two.bin")
    return program


def keep_moving(board: Board, verb: str, seconds: float) -> None:
    """Lets a Transfer make progress, as often as an agent would."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        board.ask(f"{verb} two.bin")
        time.sleep(0.05)


def test_the_time_out_counts_from_the_last_progress(board: Board) -> None:
    with waiting(board) as program:
        keep_moving(board, "moves", 4 * TIMEOUT_S)
        assert program.poll() is None
        board.ask("publish two.bin")
        out, _ = program.communicate(timeout=30)

    assert out.startswith(b"two.bin")
    assert whole(board) == (1, 1)


def test_a_stalled_transfer_is_abandoned(board: Board) -> None:
    with waiting(board) as program:
        keep_moving(board, "moves", TIMEOUT_S)
        begun_s = time.monotonic()
        out, _ = program.communicate(timeout=30)

    assert time.monotonic() - begun_s > TIMEOUT_S / 2
    assert out.startswith(b"two.bin")
    assert board.counters()["origin_timeout"] == 1
    assert whole(board) == (1, 0)


def test_the_progress_of_another_file_does_not_count(board: Board) -> None:
    """Both are noted in the same word."""
    with waiting(board) as program:
        keep_moving(board, "othermoves", 4 * TIMEOUT_S)
        assert program.poll() == 0
        out, _ = program.communicate(timeout=30)

    assert out.startswith(b"two.bin")
    assert board.counters()["origin_timeout"] == 1
