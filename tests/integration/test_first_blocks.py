"""The first bytes of a large file determine its read-ahead."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

from support.countfs import CountFs
from support.programs import Outcome, Runner, tried_bytes

Mount = Callable[..., CountFs]

BLOCK = 256 << 10
PAGE = 4 << 10
SIZE = (9 << 20) + 5
NO_FILL = ("--set", "fill.enabled=false")
HDF5 = b"\x89HDF\r\n\x1a\n"
# Reads a few bytes, and waits.
READ_BEGIN = """
import os, sys, time
with open(sys.argv[1], "rb", 0) as file:
    print(os.pread(file.fileno(), 20, 0))
    time.sleep(1.5)
"""


def run(
    runner: Runner, view: CountFs, text: str, options: tuple[str, ...] = ()
) -> Outcome:
    """Runs a program plain and under Monarch, with the same result."""
    line = [sys.executable, "-c", text, str(view.root / "data.bin")]
    plain = runner.plain(line).succeed()
    view.reset()
    options = (*NO_FILL, *options)
    outcome = runner.under_monarch(line, roots=[view.root], options=options)
    assert outcome.words == plain.words
    return outcome


def make(folder: Path, magic: bytes) -> Path:
    """A dataset of one large file without a meaningful extension."""
    folder.mkdir()
    rest = random.Random(1).randbytes(SIZE - len(magic))
    (folder / "data.bin").write_bytes(magic + rest)
    return folder


def test_first_mib_and_end_of_hdf5_are_read_ahead(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data", HDF5))

    outcome = run(runner, view, READ_BEGIN)

    ahead_bytes = 4 * BLOCK + SIZE % BLOCK
    assert view.counts().read_bytes == ahead_bytes + tried_bytes(outcome.report)


def test_other_formats_are_not_read_ahead(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data", b""))

    outcome = run(runner, view, READ_BEGIN)

    assert view.counts().read_bytes == PAGE + tried_bytes(outcome.report)
