"""Jobs under `monarch run`, started, found, hurt and judged by tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CERTIFIED = Path(__file__).with_name("certified.py")
WAIT_S = 60.0


def wait_until(true: Callable[[], object], what: str, limit_s: float = WAIT_S) -> None:
    """Wait for something observable, or fail with what did not happen."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"did not happen within {limit_s} s: {what}"
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Jobs:
    """What all jobs of a test share: the command, the dataset and the run root."""

    command: Path
    data: Path
    run_root: Path
    ram: Path

    def line(self, options: list[str], program: list[str]) -> list[str]:
        """The command line of a job."""
        data = ["--data", str(self.data)]
        if "--tier" not in options:
            data += ["--tier", f"ram:64MiB:{self.ram}"]
        return [str(self.command), "run", *data, *options, "--", *program]

    def reader(self, epochs: int, workers: int, stop: Path | None = None) -> list[str]:
        """A program that reads the certified files and judges them."""
        last = [str(stop)] if stop else []
        words = [str(self.data), str(epochs), str(workers), *last]
        return [sys.executable, str(CERTIFIED), *words]

    def start(self, options: list[str], program: list[str]) -> subprocess.Popen[str]:
        """Start a job in a session of its own."""
        return subprocess.Popen(
            self.line(options, program),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, options: list[str], program: list[str]) -> str:
        """Run a job to its end, which must be good, and return its stderr."""
        done = subprocess.run(
            self.line(options, program), capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    def report(self, options: list[str], program: list[str]) -> dict[str, object]:
        """Run a job to its good end and return its report."""
        file = self.run_root.parent / "report.json"
        self.run([*options, "--report", str(file)], program)
        return dict(json.loads(file.read_text()))

    def processes(self) -> Iterator[tuple[int, list[bytes]]]:
        """Processes of this test's jobs: agents and programs, with their arguments."""
        mark = os.fsencode(self.run_root.parent)
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(place.name) != os.getpid() and any(mark in word for word in words):
                yield int(place.name), words

    def agent(self) -> int | None:
        """The pid of the running agent, if there is one."""
        found = [pid for pid, words in self.processes() if b"--notify-fd" in words]
        return found[0] if found else None

    def wait_for_agent(self) -> int:
        """Wait until the agent has published its Catalog and return its pid."""
        wait_until(lambda: list(self.run_root.glob("*/catalog")), "a Catalog")
        pid = self.agent()
        assert pid is not None
        return pid

    def kill_everything(self) -> None:
        """Kill each process of the jobs with SIGKILL, agents included."""
        for _ in range(20):
            pids = [pid for pid, _ in self.processes()]
            if not pids:
                return
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)

    def leftovers(self) -> list[str]:
        """Run directories that are still there."""
        return sorted(p.name for p in self.run_root.iterdir())


def ended(process: subprocess.Popen[str]) -> None:
    """Wait for the good end of a job, or fail with what it said."""
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
