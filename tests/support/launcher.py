"""The native launcher, built for tests, beside an agent that follows a script."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import compiler, segments
from support.processes import wait_until

NATIVE = Path(__file__).parents[2] / "monarch" / "native"
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Wformat=2", "-Werror"]

SANITIZED = bool(os.environ.get("MONARCH_TEST_SANITIZE"))

Step = Sequence[object]

# The steps of a healthy agent from its start to its end.
START: list[Step] = [["take_lock"], ["make_segments"], ["beat"], ["state", 1]]
HEALTHY: list[Step] = [
    *START,
    ["write", "ready staging nothing to ram\n"],
    ["follow"],
    ["write", "say the report\n"],
    ["remove"],
]


def build(*flags: str) -> Path:
    """Compiles the launcher; returns the command."""
    folders = ("launcher", "job", "shared")
    sources = [path for folder in folders for path in NATIVE.glob(f"{folder}/*.c")]
    return compile_c("monarch", *sorted(sources), *flags)


def compile_c(name: str, *words: str | Path) -> Path:
    """Compiles a C program with the warnings of the project."""
    standard = ["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{NATIVE}", "-g", "-O1"]
    return compiler.build(name, *standard, *WARNINGS, *words)


def layout() -> dict[str, Any]:
    """The layout of segments for the fake agent, and a Shim that does nothing."""
    source = Path(__file__).with_name("empty_shim.c")
    shim = compile_c("shim.so", "-shared", "-fPIC", source)
    return {**segments.described(), "shim": str(shim)}


@dataclass(frozen=True)
class Launch:
    """Where the launcher is tested: its command, run root and scripted agent."""

    command: Path
    folder: Path
    layout: Mapping[str, Any]
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def run_root(self) -> Path:
        """The root of run directories."""
        return self.folder / "monarch-0"

    @property
    def journal(self) -> Path:
        """The notes of the agents."""
        return self.folder / "journal"

    def prepare(self) -> None:
        """Makes the wrapper that replaces Python, and a healthy script."""
        agent = Path(__file__).with_name("fake_agent.py")
        python = self.folder / "python"
        python.write_text(
            "#!/bin/sh\n"
            'if [ "$4" = agent ]; then\n'
            f'  exec {sys.executable} -S -E {agent} "$@"\n'
            "fi\n"
            'for word in "$@"; do printf "<%s>" "$word"; done\n'
            'echo "preload=$LD_PRELOAD"\n'
        )
        python.chmod(0o755)
        self.environ.update(
            {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        )
        self.environ["MONARCH_STAGING_RUN_DIR"] = str(self.run_root)
        self.environ["MONARCH_STAGING_PYTHON"] = str(python)
        self.environ["FAKE_AGENT_SCRIPT"] = str(self.folder / "script.json")
        self.script(HEALTHY)

    def script(self, steps: Sequence[Step]) -> None:
        """Sets the script of agents that start from now on."""
        script = {
            "steps": [*steps],
            "layout": dict(self.layout),
            "journal": str(self.journal),
        }
        (self.folder / "script.json").write_text(json.dumps(script))

    def argv(self, *words: str | bytes) -> list[str | bytes]:
        """The words of `monarch run`."""
        return [str(self.command), "run", *words]

    def popen(self, *words: str | bytes, **options: Any) -> subprocess.Popen[bytes]:
        """Starts `monarch run`."""
        options.setdefault("env", self.environ)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.argv(*words), **options)

    def run(
        self, *words: str | bytes, **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Does `monarch run` and waits for it."""
        options.setdefault("env", self.environ)
        options.setdefault("timeout", 60)
        return subprocess.run(self.argv(*words), capture_output=True, **options)

    def events(self, word: str) -> list[dict[str, Any]]:
        """The journal's lines of one kind."""
        if not self.journal.exists():
            return []
        lines = map(json.loads, self.journal.read_text().splitlines())
        return [line for line in lines if line["event"] == word]

    def start_agent(self, gate: Path, *options: str) -> subprocess.Popen[bytes]:
        """Starts a run of job `j`, whose program lives until the gate exists."""
        program = f"while ! [ -e {gate} ]; do sleep 0.02; done; exit 11"
        first = self.popen("--job", "j", *options, "sh", "-c", program)
        wait_until(lambda: list(self.run_root.glob("j.*/requests")))
        return first
