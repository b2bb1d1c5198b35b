"""Commands that run beside a test: started, awaited, killed, with their output."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 60.0
# As reported by monarch run, an agent on its pipe, and monarch config check.
TIER_DOUBT = re.compile(
    r"(monarch: (\S+: )?|warn |warning: )tier \S+ (is of kind|\(.*\) is on)"
)

Words = Sequence[str | os.PathLike[str]]

# Started by the launcher with `-I -m monarch` in front of the arguments.
PYTHON_WITHOUT = """#!{python} -I
import runpy, sys
sys.modules[{module!r}] = None
sys.argv[1:] = sys.argv[4:]
runpy.run_module("monarch", run_name="__main__", alter_sys=True)
"""


def without_doubts(text: str) -> list[str]:
    """The lines without those about tiers, which lie where a user's should not."""
    return [line for line in text.splitlines() if not TIER_DOUBT.match(line)]


def python_without(module: str, folder: Path) -> str:
    """A Python for MONARCH_STAGING_PYTHON in which a module is not installed."""
    path = folder / f"python-without-{module}"
    path.write_text(PYTHON_WITHOUT.format(python=sys.executable, module=module))
    path.chmod(0o755)
    return str(path)


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command."""

    status: int
    stdout: str
    stderr: str

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """The output of the ranks, in their order; all of it must be right."""
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
        """Check that it has ended with this status, and return itself."""
        assert self.status == status, f"exit {self.status}\n{self.stdout}{self.stderr}"
        return self


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs, with its words in files: whoever keeps them open hurts no
    one."""

    process: "subprocess.Popen[bytes]"
    stdout: Path
    stderr: Path

    @classmethod
    def start(
        cls,
        words: Words,
        place: Path,
        environ: Mapping[str, str],
        folder: Path | None = None,
    ) -> "Command":
        """Start a command in a session of its own.

        Args:
            place: of the files of its words, without .out and .err.
            folder: where it runs, if not here.
        """
        out, err = Path(f"{place}.out"), Path(f"{place}.err")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [os.fspath(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=folder,
                env=environ,
                start_new_session=True,
            )
        return cls(process, out, err)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def end(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for its end, or kill it and fail with its output."""
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
            raise AssertionError(f"no end in {limit_s} s:\n{self.words()}") from None
        return Ended(status, self.stdout.read_text(), self.stderr.read_text())

    def kill(self) -> None:
        """Kill it and its children, if it runs."""
        if self.is_running:
            os.killpg(self.process.pid, signal.SIGKILL)

    def words(self) -> str:
        """Its output so far."""
        return self.stdout.read_text() + self.stderr.read_text()
