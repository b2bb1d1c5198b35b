"""Runs a program plain and under Monarch, and returns the result of each run."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monarch.report.causes import CAUSES
from support import compiler

CONSUMERS = Path(__file__).parents[1] / "frameworks" / "consumers"
PROGRAM_TIMEOUT_S = 100
EMPTY: Mapping[str, str] = {}
READY = ("opens_hit_", "opens_unpacked")
"""Opens of what a Tier holds: plain, or packed, which is then decoded into the Pool."""
TRIED_TIMES = 3
"""So often, at most, it is read to choose a codec where each open of a file drops what
the kernel has cached of it."""

Words = Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a program's run, and the report of Monarch if it ran under it."""

    status: int
    stdout: bytes
    stderr: bytes
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> tuple[int, bytes, bytes]:
        """The status and output of the program: the same plain and under Monarch."""
        return self.status, self.stdout, self.stderr

    @property
    def redirected_opens(self) -> int:
        """The opens that a Tier has answered, by the report."""
        counters = self.report["counters"]
        return ready_opens(counters) + int(counters["opens_miss"])

    def counter(self, name: str) -> int:
        """One total of the programs' counters, by the report."""
        return int(self.report["counters"][name])

    @property
    def origin_bytes(self) -> int:
        """The bytes that the agent has read from the origin, by the report."""
        return int(self.report["origin"]["agent_read_bytes"])

    @property
    def copied_bytes(self) -> int:
        """The same without the bytes read to choose the codec of a packed Tier."""
        return self.origin_bytes - tried_bytes(self.report)

    def succeed(self) -> "Outcome":
        """Check that it was a success, and return the outcome itself."""
        assert self.status == 0, self.stderr.decode()
        return self


def ready_opens(counters: Mapping[str, int]) -> int:
    """The opens of files that a Tier held."""
    return sum(value for name, value in counters.items() if name.startswith(READY))


def tried_bytes(report: Mapping[str, Any]) -> int:
    """The bytes that were read from the origin to choose codecs, by a report."""
    return int(report["agent"]["tried_bytes"])


def stalled_opens(report: Mapping[str, Any]) -> int:
    """The opens that read the origin as the machine stood still, by a report.

    Their waits ended by a time limit: the agent, or the copy, got no processor.
    """
    counters = report["counters"]
    return int(counters["origin_silent"]) + int(counters["origin_timeout"])


def origin_causes(report: Mapping[str, Any]) -> dict[str, int]:
    """The opens of programs that read the origin by cause, for a failed test's text."""
    names = (cause.counter for cause in CAUSES)
    return {
        name: report["counters"][name] for name in names if report["counters"][name]
    }


def consumer(name: str, *words: str | os.PathLike[str]) -> list[str]:
    """The command line of one of the Python consumers, with this interpreter."""
    return [sys.executable, str(CONSUMERS / name), *map(str, words)]


def stage(*roots: str | os.PathLike[str]) -> str:
    """A shell command that ends when every file of the roots is staged."""
    return shlex.join(consumer("stage_all.py", *roots))


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs programs; `command` is the installed monarch."""

    command: Path
    folder: Path
    tier: str = "ram:256MiB"

    def plain(self, words: Words) -> Outcome:
        """Runs a program without Monarch."""
        return finish(start(words))

    def under_monarch(
        self,
        words: Words,
        *,
        roots: Words,
        environment: Mapping[str, str] = EMPTY,
        timeout: float = PROGRAM_TIMEOUT_S,
        options: Words = (),
    ) -> Outcome:
        """Runs a program under Monarch with dataset roots, and reads the report."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        line = [*self.line(roots, report, options), *words]
        outcome = finish(start(line, environment), timeout)
        return Outcome(*outcome.words, report=read_report(report, outcome))

    def line(self, roots: Words, report: Path, options: Words = ()) -> list[str]:
        """`monarch run ... --`, quiet, and ending as an error where it cannot start."""
        line = [str(self.command), "run", "-q", "--strict", "--report", str(report)]
        line += ["--tier", self.tier]
        for root in roots:
            line += ["--data", str(root)]
        return [*line, *map(str, options), "--"]


def start(
    words: Words, environment: Mapping[str, str] = EMPTY, **options: Any
) -> subprocess.Popen[bytes]:
    """Starts a program in a session of its own, with its output in pipes."""
    return subprocess.Popen(
        [os.fspath(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        start_new_session=True,
        **options,
    )


def finish(
    process: subprocess.Popen[bytes],
    timeout: float = PROGRAM_TIMEOUT_S,
    answer: bytes | None = None,
) -> Outcome:
    """Waits for a program and returns its outcome; kills its session if it is late."""
    try:
        stdout, stderr = process.communicate(answer, timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Outcome(process.returncode, stdout, stderr)


def read_report(path: Path, outcome: Outcome) -> Mapping[str, Any]:
    """The JSON report, which a run under Monarch must have left."""
    assert path.exists(), f"no report; {outcome.status} {outcome.stderr.decode()}"
    report: Mapping[str, Any] = json.loads(path.read_bytes())
    return report


def compile_program(name: str, source: str, *flags: str) -> Path:
    """Compiles one of the consumers in C or C++."""
    cc = ["c++", "-std=c++17"] if source.endswith(".cc") else ["cc", "-std=gnu11"]
    command = [*cc, "-D_GNU_SOURCE", "-O1", *compiler.WARNINGS, *flags]
    return compiler.build(name, *command, CONSUMERS / source)
