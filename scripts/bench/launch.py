"""Launcher budgets: what `monarch run -- true` costs, first and later on a node."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from pathlib import Path

from table import Row

TURNS = 21
FILE_CALLS = re.compile(
    rb"^\d+ +(?:open|openat|stat|lstat|newfstatat|statx|access|faccessat2?|readlink"
    rb"|readlinkat|getdents64|mkdir|unlink|rename|symlink|chdir)\(",
    re.MULTILINE,
)


def elapsed(command: list[str], environ: dict[str, str]) -> float:
    """Run a command and return its wall seconds."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, env=environ, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def file_calls(command: list[str], environ: dict[str, str], trace: Path) -> int:
    """Count the file-system calls of a command and its children."""
    strace = ["strace", "-f", "-o", str(trace), "-e", "trace=%file,getdents64"]
    subprocess.run(
        [*strace, *command], check=True, env=environ, stderr=subprocess.DEVNULL
    )
    return len(FILE_CALLS.findall(trace.read_bytes()))


def measure(monarch: str, work: Path) -> list[Row]:
    """Time the launcher with a running agent, then from nothing."""
    data = work / "tiny"
    data.mkdir()
    (data / "one").write_bytes(b"1")
    environ = {**os.environ, "MONARCH_STAGING_RUN_DIR": str(work / "run")}
    base = [monarch, "run", "-q", "--data", str(data), "--tier", "ram:16MiB"]
    first = [elapsed([*base, "--", "true"], environ) for _ in range(5)]
    held = subprocess.Popen(
        [*base, "--job", "bench", "--", "sleep", "600"],
        env=environ,
        start_new_session=True,
    )
    try:
        joined = [*base, "--job", "bench", "--", "true"]
        while not list((work / "run").glob("bench.*/catalog")):
            time.sleep(0.01)
        turns = [
            (elapsed(joined, environ), elapsed(["true"], environ)) for _ in range(TURNS)
        ]
        plain_calls = file_calls(["true"], environ, work / "trace")
        calls = file_calls(joined, environ, work / "trace") - plain_calls
    finally:
        ended = held.poll()
        os.killpg(held.pid, 15)
        held.wait()
    if ended is not None:
        raise RuntimeError("the job to join has ended too early")
    plain = statistics.median(p for _, p in turns)
    more = statistics.median(s - p for s, p in turns)
    begin = statistics.median(first) - plain
    return [
        Row(
            "`monarch run -- true`, agent runs, ms more",
            f"{1000 * (plain + more):.1f} ms",
            f"{1000 * plain:.1f} ms true",
            1000 * more,
            10,
        ),
        Row(
            "the same, file-system calls more",
            str(calls),
            f"{plain_calls} true",
            calls,
            100,
        ),
        Row("first on a node, s more", f"{begin + plain:.2f} s", "true", begin, 0.6),
    ]
