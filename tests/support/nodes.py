"""A node of a job on this machine, and the records of the programs of its nodes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import processes
from support.commands import Command
from support.processes import wait_until

JOB_LIMIT_S = 110.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The reads of the programs of a job.

    Args:
        epochs: of each node, which is a single number where they are all the same.
        sharding: "everything" on each node, "dealt" over all processes by one
            permutation of each epoch, "together": each process all, in one order, or
            "parts": each process a part of each file, another one in each epoch.
        reading: "stream" to the end, or by preads: of Blocks in "order", or of pieces
            that are no Blocks in "random" order.
        pause_s: what a program does with a file besides reading it.
    """

    epochs: int | tuple[int, ...] = 1
    workers: int = 2
    sharding: str = "everything"
    reading: str = "stream"
    pause_s: float = 0.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Open:
    """One open of a program: when, how long it took, and whether it met the origin."""

    node: int
    epoch: int
    file: str
    begin_s: float
    delay_s: float
    at_origin: bool


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its directories, and the words before a command that runs on it."""

    number: int
    name: str
    folder: Path
    prefix: tuple[str, ...] = ()
    interface: str = "127.0.0.1"

    @property
    def run_root(self) -> Path:
        """The root of this node's run directories."""
        return self.folder / "run"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of commands on this node."""
        return {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "MONARCH_STAGING_NODE": self.name,
            "MONARCH_STAGING_RUN_DIR": str(self.run_root),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def agents(self) -> list[int]:
        """The pids of this node's agents, of which a job has one."""
        return processes.agents(f"{self.run_root}/")

    def agent(self) -> int | None:
        """The pid of this node's agent, if any."""
        return next(iter(self.agents()), None)

    def hurt(self, blow: signal.Signals) -> float:
        """Send the agent a signal; return when."""
        pid = self.agent()
        assert pid is not None, f"no agent on {self.name}"
        os.kill(pid, blow)
        return time.monotonic()

    def log(self) -> str:
        """The logs of the agents of this node."""
        logs = sorted(self.run_root.glob("*/agent.log"))
        return "".join(log.read_text(errors="replace") for log in logs)

    def kill(self) -> None:
        """Kill all remaining processes on this node."""
        processes.kill_marked(f"{self.run_root}/")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The notes of the programs of all nodes, and the job's report.

    Attributes:
        spans: of each epoch, the first begin and the last end of each node.
        longest_s: of each process, its longest pread.
    """

    opens: list[Open]
    wrong: list[str]
    spans: list[dict[int, tuple[float, float]]]
    report: Mapping[str, Any]
    said: Mapping[int, str]
    longest_s: list[float]

    def right(self, opens: int) -> "Outcome":
        """Gives itself: all bytes were right, and so many files were read.

        An error that an agent has survived is a mistake in it all the same.
        """
        assert not self.wrong, self.wrong[:5]
        assert not self.report.get("agent", {}).get("agent_errors")
        assert len(self.opens) == opens
        return self

    def epoch_s(self, epoch: int, nodes: Sequence[int] | None = None) -> float:
        """The seconds that an epoch took, on all nodes or on some."""
        spans = [s for n, s in self.spans[epoch].items() if nodes is None or n in nodes]
        return max(end for _, end in spans) - min(begin for begin, _ in spans)

    def longest(self, node: int | None = None) -> Open:
        """The open that took longest, on all nodes or on one."""
        of = [o for o in self.opens if node is None or o.node == node]
        return max(of, key=lambda o: o.delay_s)


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs: usually one command on each node.

    Attributes:
        running: by its number, which is usually that of its node.
        line: the words of the command.
    """

    folder: Path
    nodes: tuple[Node, ...]
    workers: int
    running: dict[int, Command]
    line: list[str]

    def hold(self, epoch: int) -> None:
        """Let no program begin an epoch until it is released."""
        (self.folder / "meetings" / f"hold-{epoch}").touch()

    def release(self, epoch: int) -> None:
        """Let the programs begin an epoch that they were held from."""
        (self.folder / "meetings" / f"hold-{epoch}").unlink()

    def await_epoch(self, epoch: int, parties: int | None = None) -> None:
        """Wait until all processes, or so many, are where an epoch begins."""
        here = self.folder / "meetings" / f"at-{epoch}"
        count = len(self.nodes) * self.workers if parties is None else parties

        def there() -> bool:
            assert self._all_well(), self._words()
            return here.is_dir() and len(os.listdir(here)) >= count

        wait_until(there, f"begin of epoch {epoch}")

    def kill(self, number: int) -> None:
        """Kill all that runs on a node, as a power failure would."""
        command = self.running.pop(number)
        command.kill()
        self.nodes[number].kill()
        command.process.wait()

    def finish(self, limit_s: float = JOB_LIMIT_S) -> Outcome:
        """Wait for the good end of the commands of all nodes."""
        end_s = time.monotonic() + limit_s
        for number, command in self.running.items():
            try:
                command.process.wait(max(0.1, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(
                    f"command {number} goes on: {self._words()}"
                ) from None
        assert self._all_well(), self._words()
        return self.notes()

    def notes(self) -> Outcome:
        """The notes of the programs that have ended."""
        files = json.loads((self.folder / "plan.json").read_text())["files"]
        said = {number: self._said(number) for number in self.running}
        outcome = Outcome([], [], [], self._report(), said, [])
        for number in self.running:
            for notes in (self.folder / "notes").glob(f"{number}.*.json"):
                _add(outcome, number, json.loads(notes.read_text()), files)
        return outcome

    def _all_well(self) -> bool:
        return not any(one.process.poll() for one in self.running.values())

    def _words(self) -> str:
        """What a failed test wants to read of all nodes."""
        parts = [
            f"-- command {number}: exit {one.process.poll()}\n{self._said(number)}"
            for number, one in self.running.items()
        ]
        parts += [f"-- log of {node.name}\n{node.log()[-4000:]}" for node in self.nodes]
        return "\n".join(parts)

    def _said(self, number: int) -> str:
        return self.running[number].stderr.read_text(errors="replace")

    def _report(self) -> Mapping[str, Any]:
        place = self.folder / "report.json"
        return dict(json.loads(place.read_text())) if place.exists() else {}


def _add(
    outcome: Outcome, node: int, notes: Mapping[str, Any], files: Sequence[str]
) -> None:
    """Add the notes of one process."""
    outcome.wrong.extend(f"node {node}: {words}" for words in notes["wrong"])
    outcome.longest_s.append(notes["longest_s"])
    for epoch, number, begin_s, delay_s, at_origin in notes["opens"]:
        outcome.opens.append(
            Open(node, epoch, files[number], begin_s, delay_s, at_origin)
        )
    for epoch, (begin_s, end_s) in enumerate(notes["spans"]):
        if epoch == len(outcome.spans):
            outcome.spans.append({})
        first_s, last_s = outcome.spans[epoch].get(node, (begin_s, end_s))
        outcome.spans[epoch][node] = min(first_s, begin_s), max(last_s, end_s)
