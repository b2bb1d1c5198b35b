"""The working places of commands under real launchers, and their leftovers."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support import processes
from support.commands import LIMIT_S, Command, Ended, Words
from support.countfs import CountFs
from support.processes import wait_until

TESTS = Path(__file__).parents[1]
# Time from the end of a command to the end of its children: launchers end their daemons
# asynchronously.
GONE_S = 10.0
# Maximum cost of one reading of the dataset; see the budgets.
ONCE = 1.02
# This daemon of Open MPI 5.0.11 sometimes waits for ever for its own lock, in
# PMIx_server_finalize.
ENDLESS = "/prted"


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

    def start(self, words: Words, **environ: str) -> Command:
        """Start a command in a session of its own."""
        number = len(list(self.folder.glob("*.out")))
        surroundings = {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_STATE_HOME": str(self.folder / "state"),
            **self.environ,
            **environ,
        }
        place = self.folder / str(number)
        return Command.start(words, place, surroundings, self.folder)

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
        """Wait until no processes, run directories or RAM tiers of jobs are left."""

        def gone() -> bool:
            return not self.leftovers()

        try:
            wait_until(gone, "the end of all that was started", GONE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.leftovers()}") from None

    def leftovers(self) -> list[str]:
        """The leftovers: directories by their names, processes by their words."""
        found = [path.name for path in self.run_root.iterdir()]
        for pid, words in processes.marked(self.run_root, environ=True).items():
            if not words[0].endswith(ENDLESS):
                found.append(f"{pid}: {' '.join(words)[:200]}")
        return found

    def kill(self) -> None:
        """Kill each process of the jobs, agents included."""
        processes.kill_marked(self.run_root, environ=True)
