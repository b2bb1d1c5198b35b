"""According to strace, readers open no staged file at its origin."""

from pathlib import Path

import pytest

from support.programs import Runner
from support.readers import READERS, STATIC, Reader
from support.replica_reads import gate, origin_opens, traced


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_reader_opens_no_staged_file_at_its_origin(
    reader: Reader, runner: Runner, rich_tree: Path, programs: Path, tool
) -> None:
    tool("strace")
    words = reader.words(rich_tree, runner.folder / "out", programs)

    assert gate(runner, rich_tree, words) == []


def test_the_gate_sees_opens_at_the_origin(
    runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path, tool
) -> None:
    tool("strace")
    places = (rich_tree, tmp_path / "out", programs)
    files = [p for p in rich_tree.rglob("*") if p.is_file() and not p.is_symlink()]

    static = gate(runner, rich_tree, STATIC.words(*places))
    runner.plain(["sh", "-c", traced(READERS[0].words(*places), tmp_path / "bare")])
    bare = list(origin_opens(tmp_path / "bare", rich_tree))

    assert len(bare) == len(files)
    assert len(static) >= len(files)
