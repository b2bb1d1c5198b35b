"""Jobs of one node under `monarch run`: started, found, disturbed and checked."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from support import processes
from support.commands import Command
from support.processes import WAIT_S, wait_until

CERTIFIED = Path(__file__).with_name("certified.py")


@dataclass(frozen=True, slots=True)
class Jobs:
    """The shared parts of all jobs of a test: command, dataset and run root.

    Args:
        extra: options of every job.
    """

    command: Path
    data: Path
    run_root: Path
    ram: Path
    extra: tuple[str, ...] = ()

    def line(self, options: list[str], program: list[str]) -> list[str]:
        """The command line of a job."""
        data = ["--data", str(self.data)]
        if "--tier" not in options:
            data += ["--tier", f"ram:64MiB:{self.ram}"]
        words = [*data, *options, *self.extra]
        return [str(self.command), "run", *words, "--", *program]

    def reader(self, epochs: int, workers: int, stop: Path | None = None) -> list[str]:
        """A program that reads the certified files and judges them."""
        last = [str(stop)] if stop else []
        words = [str(self.data), str(epochs), str(workers), *last]
        return [sys.executable, str(CERTIFIED), *words]

    def start(self, options: list[str], program: list[str]) -> Command:
        """Start a job in a session of its own."""
        folder = self.run_root.parent
        place = folder / f"job{len(list(folder.glob('job*.out')))}"
        return Command.start(self.line(options, program), place, os.environ)

    def run(self, options: list[str], program: list[str]) -> str:
        """Run a job to its end, which must be good, and return its stderr."""
        return self.start(options, program).end(WAIT_S).well().stderr

    def report(self, options: list[str], program: list[str]) -> dict[str, object]:
        """Run a job to its good end and return its report."""
        file = self.run_root.parent / "report.json"
        self.run([*options, "--report", str(file)], program)
        return dict(json.loads(file.read_text()))

    def agent(self) -> int | None:
        """The pid of the running agent, if any."""
        return next(iter(processes.agents(self.run_root)), None)

    def wait_for_agent(self) -> int:
        """Wait until the agent has published its Catalog and return its pid."""
        wait_until(lambda: list(self.run_root.glob("*/catalog")), "a Catalog")
        pid = self.agent()
        assert pid is not None
        return pid

    def kill(self) -> None:
        """Kill each process of the jobs, agents and programs."""
        processes.kill_marked(f"{self.run_root.parent}/")

    def leftovers(self) -> list[str]:
        """Run directories that are still there."""
        return sorted(p.name for p in self.run_root.iterdir())
