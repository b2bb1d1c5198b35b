"""Programs produce byte-identical results plain and under Monarch."""

import sqlite3
import sys
from pathlib import Path

import pytest

from support.programs import Outcome, Runner, consumer
from support.readers import LISTERS, READERS, STATIC, Reader


def same_result(
    reader: Reader, places: tuple[Path, Path, Path], runner: Runner
) -> Outcome:
    words = reader.words(*places)
    plain = runner.plain(words)

    outcome = runner.under_monarch(words, roots=[places[0]])

    assert plain.stdout
    assert outcome.words == plain.words
    return outcome


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_reading_program_produces_the_same_result(
    reader: Reader, runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path
) -> None:
    outcome = same_result(reader, (rich_tree, tmp_path / "out", programs), runner)

    assert outcome.redirected_opens > 0


@pytest.mark.parametrize("reader", LISTERS, ids=lambda reader: reader.name)
def test_a_listing_program_produces_the_same_result(
    reader: Reader, runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path
) -> None:
    outcome = same_result(reader, (rich_tree, tmp_path / "out", programs), runner)

    assert outcome.counter("stats_answered") > 0


def test_a_static_program_produces_the_same_result_from_the_origin(
    runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path
) -> None:
    outcome = same_result(STATIC, (rich_tree, tmp_path / "out", programs), runner)

    assert outcome.redirected_opens == 0


@pytest.mark.parametrize("name", ["python_archives.py", "numpy_arrays.py"])
def test_a_library_of_formats_reads_the_same(
    name: str, runner: Runner, tmp_path: Path
) -> None:
    root = tmp_path / "formats"
    runner.plain(consumer(name, "make", root)).succeed()
    words = consumer(name, "read", root)
    plain = runner.plain(words).succeed()

    outcome = runner.under_monarch(words, roots=[root])

    assert outcome.words == plain.words
    assert outcome.redirected_opens > 0


SQLITE = (
    "import os, sqlite3, sys\n"
    "path = os.path.join(sys.argv[1], 'rows.' + sys.argv[2])\n"
    "open(path, 'rb').read()\n"
    "reader = sqlite3.connect(f'file:{path}?mode=ro', uri=True)\n"
    "print(reader.execute('select count(*) from rows').fetchall())\n"
    "writer = sqlite3.connect(path)\n"
    "with writer:\n"
    "    writer.executemany('insert into rows values (?)', [(n,) for n in range(9)])\n"
    "print(reader.execute('select count(*) from rows').fetchall())\n"
)


@pytest.mark.parametrize("suffix", ["sqlite", "sqlite3", "db"])
def test_a_reader_of_a_live_database_sees_new_writes(
    suffix: str, runner: Runner, tmp_path: Path
) -> None:
    root = tmp_path / "rows"
    root.mkdir()
    with sqlite3.connect(root / f"rows.{suffix}") as made:
        made.execute("create table rows (n)")
    made.close()

    words = [sys.executable, "-c", SQLITE, str(root), suffix]
    outcome = runner.under_monarch(words, roots=[root])

    assert outcome.stdout == b"[(0,)]\n[(9,)]\n"
