"""Programs read right bytes when the origin's files were zeroed after staging."""

import shlex
import subprocess
from pathlib import Path

from support.programs import Outcome, Runner, finish, read_report, stage, start
from support.readers import READERS, STATIC
from support.richtree import zero


def reading_job(readers: list[str], results: Path, root: Path) -> str:
    """A shell script that stages, waits for a line on stdin, then runs all readers."""
    lines = ["set -e", stage(root), "echo staged", "read answer", "set +e"]
    for number, line in enumerate(readers):
        result = shlex.quote(str(results / str(number)))
        lines.append(f"({line}) >{result} 2>&1; echo $? >>{result}")
    return "\n".join(lines)


def test_programs_read_right_bytes_from_a_zeroed_origin(
    runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path
) -> None:
    places = (rich_tree, tmp_path / "out", programs)
    lines = [reader.filled(*places) for reader in READERS]
    right = [answer(runner, line) for line in lines]
    report = tmp_path / "zeroed.json"
    command = runner.line([rich_tree], report, ["--set", "retain=job"])

    script = reading_job(lines, tmp_path, rich_tree)
    job = start([*command, "sh", "-c", script], stdin=subprocess.PIPE)
    assert job.stdout
    zeroed = zero(rich_tree) if job.stdout.readline() == b"staged\n" else 0
    outcome = finish(job, answer=b"zeroed\n").succeed()

    assert zeroed > 0
    for number in range(len(READERS)):
        found = (tmp_path / str(number)).read_bytes()
        assert found == right[number], READERS[number].name
    assert Outcome(*outcome.words, read_report(report, outcome)).redirected_opens > 0


def answer(runner: Runner, line: str) -> bytes:
    """What a job writes about a reader that it has run."""
    outcome = runner.plain(["sh", "-c", f"({line}) 2>&1"])
    return outcome.stdout + b"%d\n" % outcome.status


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
