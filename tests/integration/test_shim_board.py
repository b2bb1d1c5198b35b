"""The Shim is inert if it is disabled, filtered, or without valid segments."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.segments import write_field
from support.shim_fixtures import Board

SEGMENTS = ("catalog", "flags", "requests", "counters", "inodes")


def answers(board: Board, **environ: str) -> bool:
    """Whether the Shim serves the staged File; the bytes are right either way."""
    before = board.counters()["opens_hit_tier0"]
    shown = board.run("/bin/cat", board.root / "two.bin", env=board.environ(**environ))
    assert shown.startswith("two.bin")
    return board.counters()["opens_hit_tier0"] > before


@pytest.fixture
def ready(board: Board) -> Board:
    """A board with one File ready, that the Shim serves."""
    board.start()
    board.ask("publish two.bin")
    assert answers(board)
    return board


def test_disable_switches_the_shim_off(ready: Board) -> None:
    assert not answers(ready, MONARCH_STAGING_DISABLE="1")
    assert answers(ready, MONARCH_STAGING_DISABLE="0")


def test_filtered_program_is_left_alone(board: Board) -> None:
    board.start("-f", "cat")
    board.ask("publish two.bin")

    assert not answers(board)


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", b"MONARCX"),
        ("version", 999),
        ("kind", 77),
        ("length", 1 << 40),
        ("generation", 7),
    ],
    ids=["magic", "version", "kind", "length", "generation"],
)
def test_segment_that_does_not_fit_makes_the_shim_inert(
    ready: Board, segment: str, field: str, value: int | bytes
) -> None:
    write_field(ready.run_dir / segment, f"seg.{field}", value)

    assert not answers(ready)


def replace_by_link(path: Path) -> None:
    """The segment becomes a link to itself under another name."""
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


SPOILS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.rename(path.with_suffix(".gone")),
    "readable by others": lambda path: path.chmod(0o644),
    "link": replace_by_link,
}


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("segment", SEGMENTS)
def test_segment_that_is_not_ours_makes_the_shim_inert(
    ready: Board, segment: str, spoil: str
) -> None:
    SPOILS[spoil](ready.run_dir / segment)

    assert not answers(ready)


@pytest.mark.root
@pytest.mark.parametrize("name", ["", "catalog"])
def test_segment_of_another_user_makes_the_shim_inert(ready: Board, name: str) -> None:
    os.chown(ready.run_dir / name, 12, 12)

    assert not answers(ready)


def test_truncated_segment_makes_the_shim_inert(ready: Board) -> None:
    shortened = (ready.run_dir / "catalog").read_bytes()[:4096]
    (ready.run_dir / "catalog").rename(ready.run_dir / "kept")
    (ready.run_dir / "catalog").write_bytes(shortened)
    (ready.run_dir / "catalog").chmod(0o600)

    assert not answers(ready)


def test_run_directory_open_to_others_makes_the_shim_inert(ready: Board) -> None:
    ready.run_dir.chmod(0o750)

    assert not answers(ready)


def test_removed_run_directory_makes_the_shim_inert(ready: Board) -> None:
    assert not answers(ready, MONARCH_STAGING_RUN="/nowhere")
    assert not answers(ready, MONARCH_STAGING_RUN="relative")
    assert not answers(ready, MONARCH_STAGING_RUN="/" + "x" * 5000)


def test_process_takes_a_slot_at_load(ready: Board) -> None:
    ready.run("/bin/true")

    names = [name for _, _, name in ready.processes()]
    assert os.path.realpath("/bin/true") in names
