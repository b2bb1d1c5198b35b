"""Proof that programs read Replicas: strace shows what they open at the origin, or the
origin is zeroed under them."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.programs import Outcome, Runner, Words, finish, read_report, stage, start
from support.richtree import zero

# strace -y prints the file of a returned descriptor behind it, links resolved.
OPENED = re.compile(
    r"^(?:\d+ +)?open(?:at2?)?\(.*?\b(?P<flags>O_\w+(?:\|O_\w+|\|0x\w+)*).*\)"
    r" = \d+<(?P<path>.*)>$"
)
WRITING = {"O_WRONLY", "O_RDWR"}
NOT_FILES = {"O_DIRECTORY", "O_PATH", "O_TMPFILE"}


def traced(words: Words, traces: Path) -> str:
    """A shell command that runs a program and writes one trace per process."""
    traces.mkdir()
    # -ff writes one file per process, in which no call is split.
    trace = ["strace", "-ff", "-y", "-s", "4096", "-o", str(traces / "of")]
    trace += ["-e", "trace=open,openat,openat2"]
    return shlex.join([*trace, *map(str, words)])


def origin_opens(traces: Path, root: Path) -> Iterator[str]:
    """The read-only opens of regular files below `root` that have succeeded."""
    for trace in sorted(traces.iterdir()):
        for line in trace.read_text(errors="surrogateescape").splitlines():
            found = OPENED.match(line)
            if not found or {*found["flags"].split("|")} & (WRITING | NOT_FILES):
                continue
            path = unescaped(found["path"])
            if path.startswith(os.fsencode(root) + b"/") and not os.path.isdir(path):
                yield line


def unescaped(text: str) -> bytes:
    """The bytes of a path that strace has printed."""
    octal = re.sub(
        rb"\\([0-7]{1,3})",
        lambda digits: bytes([int(digits[1], 8)]),
        os.fsencode(text),
    )
    return octal.replace(b"\\n", b"\n")


def gate(runner: Runner, root: Path, words: Words) -> list[str]:
    """Stages, then traces a program; returns its opens of files at their origin."""
    traces = runner.folder / "traces"
    script = f"{stage(root)} && {traced(words, traces)}"
    runner.under_monarch(["sh", "-c", script], roots=[root]).succeed()
    return list(origin_opens(traces, root))


def run_zeroed(runner: Runner, root: Path, words: Words) -> Outcome:
    """Stages, zeroes the origin from outside the job, then lets the program run.

    The program must have made redirected opens of its own, beside those of staging.
    """
    report = runner.folder / "zeroed.json"
    script = f'{stage(root)} && read answer && exec "$@"'
    line = runner.line([root], report, ["--set", "retain=job"])
    job = start([*line, "sh", "-c", script, "sh", *words], stdin=subprocess.PIPE)
    assert job.stdout
    said = job.stdout.readline().split()
    zeroed = zero(root) if said[:1] == [b"staged"] else 0
    found = finish(job, answer=b"zeroed\n").succeed()
    outcome = Outcome(*found.words, read_report(report, found))
    assert zeroed > 0
    # Staging opens of a large file that was not whole yet were served by Block.
    served = outcome.redirected_opens + outcome.counter("origin_blocks")
    assert served > int(said[1])
    return outcome
