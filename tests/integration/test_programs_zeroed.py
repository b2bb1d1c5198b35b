"""Programs read right bytes after the origin's files were zeroed."""

import shlex
from pathlib import Path

from support.programs import Runner
from support.readers import READERS, STATIC
from support.replica_reads import run_zeroed
from support.richtree import zero


def answer(runner: Runner, line: str) -> bytes:
    """The output of a reader, in both its streams, and its status."""
    outcome = runner.plain(["sh", "-c", f"({line}) 2>&1"])
    return outcome.stdout + b"%d\n" % outcome.status


def all_answers(lines: list[str], results: Path) -> str:
    """A shell script that writes the answer of each reader to a file of its own."""
    script = []
    for number, line in enumerate(lines):
        result = shlex.quote(str(results / str(number)))
        script.append(f"({line}) >{result} 2>&1; echo $? >>{result}")
    return "\n".join(script)


def test_programs_read_right_bytes_from_a_zeroed_origin(
    runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path
) -> None:
    places = (rich_tree, tmp_path / "out", programs)
    lines = [reader.filled(*places) for reader in READERS]
    right = [answer(runner, line) for line in lines]

    run_zeroed(runner, rich_tree, ["sh", "-c", all_answers(lines, tmp_path)])

    found = [(tmp_path / str(number)).read_bytes() for number in range(len(lines))]
    for reader, one, other in zip(READERS, found, right, strict=True):
        assert one == other, reader.name


def test_the_same_programs_without_monarch_see_the_zeros(
    runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path
) -> None:
    places = (rich_tree, tmp_path / "out", programs)
    lines = {reader.name: reader.filled(*places) for reader in (*READERS, STATIC)}
    right = {name: answer(runner, line) for name, line in lines.items()}

    zero(rich_tree)

    fooled = [
        name for name, line in lines.items() if answer(runner, line) == right[name]
    ]
    assert fooled == []
