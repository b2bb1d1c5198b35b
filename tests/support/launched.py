"""Commands of real launchers: run to their end, and what they have left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import processes
from support.countfs import CountFs
from support.processes import wait_until

TESTS = Path(__file__).parents[1]
LIMIT_S = 60.0
# Between the end of a command and that of what it has started: launchers end their
# daemons behind their own back.
GONE_S = 10.0
# What one reading of the dataset may cost; see the budgets.
ONCE = 1.02
# This daemon of Open MPI 5.0.11 has been seen to wait for ever for a lock of its own,
# in PMIx_server_finalize.
ENDLESS = "/prted"

Words = Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Launched:
    """A command that runs, with its words in files: whoever keeps them open hurts no
    one."""

    process: "subprocess.Popen[bytes]"
    stdout: Path
    stderr: Path

    def end(self, limit_s: float = LIMIT_S) -> "Ended":
        """Wait for its end, or kill it and fail with what it said."""
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"no end in {limit_s} s:\n{self.words()}") from None
        return Ended(status, self.stdout.read_text(), self.stderr.read_text())

    def words(self) -> str:
        """All it has said so far."""
        return self.stdout.read_text() + self.stderr.read_text()


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command has given."""

    status: int
    stdout: str
    stderr: str

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """What the ranks have printed, in their order; all of it must be right."""
        lines = [line for line in self.stdout.splitlines() if line.startswith("{")]
        seen = sorted(map(json.loads, lines), key=lambda one: one["rank"])
        assert not any(one["wrong"] for one in seen), self.stdout
        return seen

    def lines(self, mark: str) -> list[str]:
        """The lines of stderr that hold these words."""
        return [line for line in self.stderr.splitlines() if mark in line]

    @property
    def reports(self) -> list[str]:
        """The first line of each summary."""
        return self.lines("monarch: active in ")

    def well(self, status: int = 0) -> "Ended":
        """Gives itself; it has ended with this status."""
        assert self.status == status, f"exit {self.status}\n{self.stdout}{self.stderr}"
        return self


@dataclass(frozen=True, slots=True)
class Site:
    """Where a test's commands run: its folder, its run directories, the dataset."""

    command: Path
    folder: Path
    run_root: Path
    origin: CountFs
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """The root of the dataset."""
        return self.origin.root

    def read_once(self) -> None:
        """The bytes of the dataset have been read from the origin once."""
        files = [path for path in self.origin.source.rglob("*") if path.is_file()]
        size_bytes = sum(path.stat().st_size for path in files)
        counts = self.origin.counts()
        assert size_bytes <= counts.read_bytes <= ONCE * size_bytes, counts

    def monarch(self, program: Words, *options: str) -> list[str]:
        """`monarch run` of a program."""
        tier = () if "--tier" in options else ("--tier", "ram:64MiB")
        line = [str(self.command), "run", "--data", str(self.data), *tier, *options]
        return [*line, "--", *map(str, program)]

    def rank(self, *options: str | Path, python: str = sys.executable) -> list[str]:
        """The program that each rank runs."""
        return [python, "-m", "support.rank", str(self.data), *map(str, options)]

    def start(self, words: Words, **environ: str) -> Launched:
        """Start a command in a session of its own."""
        number = len(list(self.folder.glob("*.out")))
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [os.fspath(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self.folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(TESTS),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "XDG_STATE_HOME": str(self.folder / "state"),
                    **self.environ,
                    **environ,
                },
                start_new_session=True,
            )
        return Launched(process, out, err)

    def run(self, words: Words, **environ: str) -> Ended:
        """Run a command to its end."""
        return self.start(words, **environ).end()

    def agents(self) -> list[int]:
        """The pids of the agents that live."""
        return processes.agents(self.run_root, environ=True)

    def await_ranks(self, file: Path, count: int) -> None:
        """Wait until so many ranks wait for a file."""
        pattern = f"{file.name}.*"
        wait_until(
            lambda: len(list(file.parent.glob(pattern))) >= count,
            f"{count} ranks that wait for {file}",
            LIMIT_S,
        )

    def nothing_left(self) -> None:
        """Everything of the jobs has gone: processes, run directories, RAM tiers."""

        def gone() -> bool:
            return not self.leftovers()

        try:
            wait_until(gone, "the end of all that was started", GONE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.leftovers()}") from None

    def leftovers(self) -> list[str]:
        """What is left: directories by their names, processes by their words."""
        found = [path.name for path in self.run_root.iterdir()]
        for pid, words in processes.marked(self.run_root, environ=True).items():
            if not words[0].endswith(ENDLESS):
                found.append(f"{pid}: {' '.join(words)[:200]}")
        return found

    def kill(self) -> None:
        """Kill each process of the jobs, agents included."""
        processes.kill_marked(self.run_root, environ=True)
