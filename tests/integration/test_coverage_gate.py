"""By the kernel's own account, readers open no staged file at its origin."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import Runner, stage
from support.readers import READERS, STATIC, Reader

# strace -y says behind a returned descriptor which file it is, links resolved.
OPENED = re.compile(
    r"^(?:\d+ +)?open(?:at2?)?\(.*?\b(?P<flags>O_\w+(?:\|O_\w+|\|0x\w+)*).*\)"
    r" = \d+<(?P<path>.*)>$"
)
WRITING = {"O_WRONLY", "O_RDWR"}
NOT_FILES = {"O_DIRECTORY", "O_PATH", "O_TMPFILE"}


def traced(line: str, traces: Path) -> str:
    """A shell command that runs `line` and writes one trace per process."""
    traces.mkdir()
    # -ff gives each process a file of its own, in which no call is cut in two.
    words = ["strace", "-ff", "-y", "-s", "4096", "-o", str(traces / "of")]
    return shlex.join([*words, "-e", "trace=open,openat,openat2", "sh", "-c", line])


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


def gate(runner: Runner, reader: Reader, places: tuple[Path, Path, Path]) -> list[str]:
    """Stages, then traces a reader; gives its opens of files at their origin."""
    root, out, _ = places
    traces = out.with_name("traces")
    line = traced(reader.filled(*places), traces)
    words = ["sh", "-c", f"{stage(root)} && {line}"]
    runner.under_monarch(words, roots=[root]).succeed()
    return list(origin_opens(traces, root))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_reader_opens_no_staged_file_at_its_origin(
    reader: Reader,
    runner: Runner,
    rich_tree: Path,
    programs: Path,
    tmp_path: Path,
    tool,
) -> None:
    tool("strace")

    assert gate(runner, reader, (rich_tree, tmp_path / "out", programs)) == []


def test_the_gate_sees_what_goes_to_the_origin(
    runner: Runner, rich_tree: Path, programs: Path, tmp_path: Path, tool
) -> None:
    tool("strace")
    places = (rich_tree, tmp_path / "out", programs)
    files = [p for p in rich_tree.rglob("*") if p.is_file() and not p.is_symlink()]

    static = gate(runner, STATIC, places)
    runner.plain(["sh", "-c", traced(READERS[0].filled(*places), tmp_path / "bare")])
    bare = list(origin_opens(tmp_path / "bare", rich_tree))

    assert len(bare) == len(files)
    assert len(static) >= len(files)
