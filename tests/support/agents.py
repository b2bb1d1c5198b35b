"""Agents driven without a launcher: the test holds the other end of their notices."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from monarch.agent.control import ask
from support import tier_codecs
from support.processes import WAIT_S


@dataclass
class AgentProcess:
    """A running agent, its notices so far, and programs under its Shim."""

    run: Path
    process: subprocess.Popen[bytes]
    notices: TextIO
    heard: list[str] = field(default_factory=list)

    def listen(self, word: str) -> str:
        """Return the next notice of this kind; fails at the end of the pipe."""
        for line in self.notices:
            self.heard.append(line.rstrip("\n"))
            if line.split(" ", 1)[0].strip() == word:
                return self.heard[-1].removeprefix(word).strip()
        raise AssertionError(f"no notice {word!r}: {self.heard} {self.log()}")

    def status(self) -> dict[str, Any]:
        """Return the agent's answer to a status request."""
        return ask(self.run, {"op": "status"})

    def figures(self) -> dict[str, int]:
        """Return the agent's own figures."""
        figures: dict[str, int] = self.status()["report"]["agent"]
        return figures

    def await_figure(self, name: str, least: int) -> dict[str, int]:
        """Return the figures as soon as one of them has come this far."""
        end_s = time.monotonic() + WAIT_S
        while (figures := self.figures())[name] < least:
            assert time.monotonic() < end_s, (name, self.status()["report"])
            time.sleep(0.01)
        return figures

    def await_staged(self, count: int) -> None:
        """Wait until so many Replicas lie in the Tiers."""
        while True:
            tiers = self.status()["report"]["tiers"]
            if sum(tier["files"] for tier in tiers) >= count:
                return
            time.sleep(0.01)

    def environ(self) -> dict[str, str]:
        """The environment of a program under the Shim."""
        return {
            **os.environ,
            "LD_PRELOAD": str(self.run / "shim.so"),
            "MONARCH_STAGING_RUN": str(self.run),
        }

    def read(self, *paths: Path) -> bytes:
        """Return the bytes that a program under the Shim reads from these files."""
        command = ["cat", *map(str, paths)]
        done = subprocess.run(
            command, env=self.environ(), stdout=subprocess.PIPE, check=True
        )
        return done.stdout

    def begin_read(self, *paths: Path) -> "subprocess.Popen[bytes]":
        """Start a program under the Shim that reads these files."""
        command = ["cat", *map(str, paths)]
        return subprocess.Popen(command, env=self.environ(), stdout=subprocess.DEVNULL)

    def stop(self) -> int:
        """Let the agent end in order; return its exit code."""
        ask(self.run, {"op": "stop"})
        return self.ended()

    def ended(self) -> int:
        """Hear the last notices and return the exit code."""
        self.heard += [line.rstrip("\n") for line in self.notices]
        self.notices.close()
        return self.process.wait()

    def kill(self) -> None:
        """End the agent as a crash would, if it has not ended by itself."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.notices.close()

    def log(self) -> str:
        """Return the agent's log, if it has left one."""
        path = self.run / "agent.log"
        return path.read_text() if path.exists() else ""


def start_agent(run: Path, options: Sequence[str]) -> AgentProcess:
    """Start an agent as the launcher does, and return without waiting for it."""
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    reading, writing = os.pipe()
    python = os.environ.get(tier_codecs.PYTHON, sys.executable)
    command = [python, "-P", "-m", "monarch", "agent", "--run-dir", str(run)]
    command += ["--notify-fd", str(writing), "--", *options, "--", "true"]
    log = os.open(run / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            command,
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    finally:
        os.close(writing)
        os.close(log)
    return AgentProcess(run, process, os.fdopen(reading, errors="surrogateescape"))


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content
