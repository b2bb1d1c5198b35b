"""Jobs that run beside each other on one node, each with a report of its own."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.processes import wait_until
from support.programs import Outcome, Runner, finish, read_report, start

# Waits for a file, reads all twice, prints digests of both, stays while one exists.
READ = """
import hashlib, os, sys, time
root, stays, goes = sys.argv[1:]
while not os.path.exists(goes):
    time.sleep(0.05)
for epoch in range(2):
    digest = hashlib.sha256()
    for name in sorted(os.listdir(root)):
        with open(f"{root}/{name}", "rb") as file:
            digest.update(file.read())
    print(digest.hexdigest(), flush=True)
while os.path.exists(stays):
    time.sleep(0.05)
"""


class Job:
    """A job whose program may stay after its reading."""

    def __init__(
        self,
        runner: Runner,
        root: Path,
        name: str,
        *options: str,
        waits: bool = False,
    ) -> None:
        self.report = runner.folder / f"{name}.json"
        self.stays = runner.folder / f"{name}.stays"
        self.stays.touch()
        self.goes = runner.folder / f"{name}.goes"
        if not waits:
            self.goes.touch()
        line = runner.line([root], self.report, options)
        words = [str(root), str(self.stays), str(self.goes)]
        self.process: subprocess.Popen[bytes] = start(
            [*line, sys.executable, "-c", READ, *words]
        )

    def wait_for_pass(self) -> bytes:
        """Return the digest of the next pass over all files."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> Outcome:
        """Let the program end; return the result of the job."""
        self.stays.unlink(missing_ok=True)
        outcome = finish(self.process).succeed()
        return Outcome(*outcome.words, report=read_report(self.report, outcome))


def read_when_staged(runner: Runner, *jobs: Job) -> None:
    """Let jobs read that wait, once fill has staged all that each of them keeps."""
    line = [str(runner.command), "status", "--json"]

    def are_staged() -> bool:
        shown = subprocess.run(line, capture_output=True, text=True)
        agents = [json.loads(one) for one in shown.stdout.splitlines()]
        shares = [one["staged"] for one in agents if one.get("staged")]
        done = [staged for staged in shares if staged.get("share") == 1]
        return len(done) >= len(jobs)

    wait_until(are_staged, "all is staged")
    for job in jobs:
        job.goes.touch()


def shared(report: Mapping[str, Any]) -> int:
    """How many files were linked, by a report."""
    return int(report["staging"]["shared_files"])


def make_files(folder: Path, count: int, size: int) -> Path:
    """A folder of files of random bytes."""
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number:04}"
        path.write_bytes(random.Random(number).randbytes(size))
        os.utime(path, (10**9, 10**9))
    return folder
