"""The first bytes of a large file tell whether to wait for it, and what comes next."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.countfs import CountFs
from support.programs import TRIED_TIMES, Outcome, Runner, tried_bytes

Mount = Callable[..., CountFs]

BLOCK = 256 << 10
PAGE = 4 << 10
SIZE = (9 << 20) + 5
NO_FILL = ("--set", "fill.enabled=false")
HDF5 = b"\x89HDF\r\n\x1a\n"
MAPPED = {
    "npy": b"\x93NUMPY\x01\x00",
    "arrow": b"ARROW1\0\0",
    "safetensors": (100).to_bytes(8, "little") + b'{"a":',
    "lmdb": bytes(16) + b"\xde\xc0\xef\xbe\x01\0\0\0",
}

# Reads a few bytes, and some time later opens the file once more and maps it.
READ_THEN_MAP = """
import hashlib, mmap, os, sys
with open(sys.argv[1], "rb", 0) as file:
    print(os.pread(file.fileno(), 20, 0))
with open(sys.argv[1], "rb", 0) as file:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        print(hashlib.sha256(mapped).hexdigest())
"""
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
    """Runs a program plain and under Monarch, which must give the same."""
    line = [sys.executable, "-c", text, str(view.root / "data.bin")]
    plain = runner.plain(line).succeed()
    view.reset()
    options = (*NO_FILL, *options)
    outcome = runner.under_monarch(line, roots=[view.root], options=options)
    assert outcome.words == plain.words
    return outcome


def make(folder: Path, magic: bytes) -> Path:
    """A dataset of one large file without an extension that tells anything."""
    folder.mkdir()
    rest = random.Random(1).randbytes(SIZE - len(magic))
    (folder / "data.bin").write_bytes(magic + rest)
    return folder


def waits(outcome: Outcome) -> int:
    """How many opens have waited for the whole file."""
    return int(outcome.report["waits"]["whole"])


@pytest.mark.parametrize("name", MAPPED)
def test_a_format_that_is_mapped_is_known_by_its_first_bytes(
    runner: Runner, mount_counted: Mount, tmp_path: Path, name: str
) -> None:
    view = mount_counted(make(tmp_path / "data", MAPPED[name]), cached=1)

    outcome = run(runner, view, READ_THEN_MAP)

    assert waits(outcome) == 1
    tried_most = TRIED_TIMES * tried_bytes(outcome.report)
    assert view.counts().read_bytes <= SIZE + BLOCK + tried_most


@pytest.mark.parametrize("magic", [b"", HDF5, bytes(64)])
def test_other_bytes_let_nobody_wait(
    runner: Runner, mount_counted: Mount, tmp_path: Path, magic: bytes
) -> None:
    view = mount_counted(make(tmp_path / "data", magic), cached=1)

    assert waits(run(runner, view, READ_THEN_MAP)) == 0


def test_a_file_that_is_too_large_to_wait_for_is_read_in_pages(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data", MAPPED["npy"]))
    small = ("--set", "cold_open.wait_max_whole=9MiB")

    outcome = run(runner, view, READ_BEGIN + READ_BEGIN, options=small)

    assert waits(outcome) == 0
    assert outcome.report["counters"]["origin_whole"] == 0
    assert view.counts().read_bytes == PAGE + tried_bytes(outcome.report)


def test_of_hdf5_the_first_mib_and_the_end_are_read_ahead(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data", HDF5))

    outcome = run(runner, view, READ_BEGIN)

    ahead_bytes = 4 * BLOCK + SIZE % BLOCK
    assert view.counts().read_bytes == ahead_bytes + tried_bytes(outcome.report)


def test_of_others_nothing_is_read_ahead(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data", b""))

    outcome = run(runner, view, READ_BEGIN)

    assert view.counts().read_bytes == PAGE + tried_bytes(outcome.report)
