"""The native launcher, built for tests, beside an agent that follows a script."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parents[2] / "monarch" / "native"
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Wformat=2", "-Werror"]

SANITIZED = bool(os.environ.get("MONARCH_TEST_SANITIZE"))

Step = Sequence[object]

# What a healthy agent does from its start to its end.
START: list[Step] = [["take_lock"], ["make_segments"], ["beat"], ["state", 1]]
HEALTHY: list[Step] = [
    *START,
    ["write", "ready staging nothing to ram\n"],
    ["follow"],
    ["write", "say the report\n"],
    ["remove"],
]

LAYOUT = """
#include <stddef.h>
#include <stdio.h>
#include "shared/layout.h"
int main(void)
{
    printf("{\\"requests\\": %zu, \\"counters\\": %zu, \\"process\\": %zu, "
           "\\"process_size\\": %zu, \\"used\\": %zu, \\"version\\": %u}",
           sizeof(struct requests), sizeof(struct counters),
           offsetof(struct counters, process), sizeof(struct process),
           offsetof(struct counters, slots_used_max), LAYOUT_VERSION);
}
"""


def build(folder: Path, *flags: str) -> Path:
    """Compiles the launcher; returns the command."""
    command = folder / "monarch"
    folders = ("launcher", "job", "shared")
    sources = [path for folder in folders for path in NATIVE.glob(f"{folder}/*.c")]
    compile_c(command, *map(str, sources), *flags)
    return command


def compile_c(target: Path, *words: str) -> None:
    """Compiles a C program with the warnings of the project."""
    standard = ["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{NATIVE}", "-g", "-O1"]
    subprocess.run([*standard, *WARNINGS, *words, "-o", target], check=True)


def layout(folder: Path) -> dict[str, Any]:
    """The sizes and offsets that the fake agent needs, and a Shim that does nothing."""
    source, program = folder / "layout.c", folder / "layout"
    source.write_text(LAYOUT)
    compile_c(program, str(source))
    shim_source, shim = folder / "shim.c", folder / "shim.so"
    shim_source.write_text("extern int shim_is_here; int shim_is_here = 1;\n")
    compile_c(shim, "-shared", "-fPIC", str(shim_source))
    sizes: dict[str, Any] = json.loads(subprocess.check_output([program]))
    return sizes | {"shim": str(shim)}


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
        return self.folder / "run-root"

    @property
    def journal(self) -> Path:
        """What the agents have noted."""
        return self.folder / "journal"

    def prepare(self) -> None:
        """Makes the wrapper that stands for Python, and a healthy script."""
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
        """Says what agents that start from now on do."""
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


def wait_until(holds: Callable[[], object], limit_s: float = 30) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
