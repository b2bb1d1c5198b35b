"""Runs a program whose dataset is zeroed at the origin once it is staged."""

import subprocess
from pathlib import Path

from support.programs import Outcome, Runner, Words, finish, read_report, stage, start
from support.richtree import zero


def run_zeroed(runner: Runner, root: Path, words: Words) -> Outcome:
    """Stages, zeroes the origin from outside the job, then lets the program run.

    The program must have made redirected opens of its own, beside those of staging.
    """
    report = runner.folder / "zeroed.json"
    script = f'{stage(root)} && read answer && exec "$@"'
    line = runner.line([root], report, ["--set", "retain=job"])
    job = start([*line, "sh", "-c", script, "sh", *words], stdin=subprocess.PIPE)
    assert job.stdout
    said = job.stdout.readline().split()
    zeroed = zero(root) if said[:1] == [b"staged"] else 0
    found = finish(job, answer=b"zeroed\n").succeed()
    outcome = Outcome(*found.words, read_report(report, found))
    assert zeroed > 0
    assert outcome.redirected_opens > int(said[1])
    return outcome
