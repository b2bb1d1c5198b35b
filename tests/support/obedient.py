"""A program under the Shim that evaluates lines sent by a test."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from support.agents import AgentProcess

# Evaluates each line; a forked child continues with the next.
OBEDIENT = "import os, sys\nfor line in sys.stdin: print(eval(line), flush=True)\n"


@dataclass
class Program:
    """A program under the Shim that a test controls."""

    process: subprocess.Popen[str]

    @classmethod
    def run(cls, environ: Mapping[str, str]) -> Self:
        """Start one in this environment."""
        return cls(
            subprocess.Popen(
                [sys.executable, "-c", OBEDIENT],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    def do(self, expression: str) -> str:
        """Let it evaluate an expression; return what it prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(expression, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().rstrip("\n")

    def read(self, path: Path) -> str:
        """Return the first bytes of a file, as it sees them, and its size."""
        return self.do(
            f"open({str(path)!r}, 'rb').read(3), os.stat({str(path)!r}).st_size"
        )

    def write(self, path: Path) -> None:
        """Let it replace the content of a file."""
        assert self.do(f"open({str(path)!r}, 'w').write('NEW')") == "3"

    def start(self, script: str) -> None:
        """Let it start a shell as its `child`, which reads lines from it."""
        start = f"Popen(['sh', '-c', {script!r}], stdin=-1)"
        self.do(f"globals().update(child=__import__('subprocess').{start})")

    def tell_child(self) -> None:
        """Let the child go on to its end."""
        assert self.do("child.communicate(b'go')") == "(None, None)"

    def end(self) -> None:
        """Let it end, and with it the child that continues in its place."""
        self.process.communicate()


Begin = Callable[[], AgentProcess]
"""Starts an agent of the same job, one after the other."""
Run = Callable[[AgentProcess], Program]
"""Runs a program beside an agent."""
