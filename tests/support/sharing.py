"""Jobs that run beside each other on one node, each with a report of its own."""

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.programs import Outcome, Runner, finish, read_report, start

# Waits, reads all files twice, prints digests of both, stays while a file is there.
READ = """
import hashlib, os, sys, time
root, stays, pause_s = sys.argv[1:]
time.sleep(float(pause_s))
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
        pause_s: float = 0,
    ) -> None:
        self.report = runner.folder / f"{name}.json"
        self.stays = runner.folder / f"{name}.stays"
        self.stays.touch()
        line = runner.line([root], self.report, options)
        words = [str(root), str(self.stays), str(pause_s)]
        self.process: subprocess.Popen[bytes] = start(
            [*line, sys.executable, "-c", READ, *words]
        )

    def wait_for_pass(self) -> bytes:
        """Return the digest of the next pass over all files."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> Outcome:
        """Let the program end; return what the job gave."""
        self.stays.unlink(missing_ok=True)
        outcome = finish(self.process).succeed()
        return Outcome(*outcome.words, report=read_report(self.report, outcome))


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
