"""The report states the share of unseen reads of large files."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.report import render
from support.countfs import CountFs
from support.programs import Outcome, Runner

Mount = Callable[..., CountFs]

SIZE = (9 << 20) + 5
NO_FILL = ("--set", "fill.enabled=false")
NO_WAIT = (*NO_FILL, "--set", "cold_open.wait_max_whole=9MiB")
# Reads each file in its way, and prints what it has read.
READER = """
import ctypes, hashlib, mmap, os, sys
libc = ctypes.CDLL(None)
size = ctypes.c_size_t
libc.fopen.restype = libc.fdopen.restype = ctypes.c_void_p
libc.fread.argtypes = [ctypes.c_char_p, size, size, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
def by_pread(path):
    fd = os.open(path, os.O_RDONLY)
    places = range(0, os.fstat(fd).st_size, 1 << 20)
    parts = [os.pread(fd, 1 << 20, at) for at in places]
    os.close(fd)
    return b"".join(parts)
def by_map(path):
    with open(path, "rb", buffering=0) as file:
        head = file.read(100)  # as formats with a header are read
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert mapped[:100] == head
            return mapped[:]
def by_stream(stream):
    buffer = ctypes.create_string_buffer(1 << 24)
    read = libc.fread(buffer, 1, len(buffer), stream)
    libc.fclose(stream)
    return buffer.raw[:read]
def by_fopen(path):
    return by_stream(libc.fopen(path.encode(), b"rb"))
def by_fdopen(path):
    return by_stream(libc.fdopen(os.open(path, os.O_RDONLY), b"rb"))
root, *ways = sys.argv[1:]
for way in ways:
    content = globals()[f"by_{way}"](f"{root}/{way}.bin")
    print(way, len(content), hashlib.sha256(content).hexdigest())
"""


@pytest.fixture
def view(mount_counted: Mount, tmp_path: Path) -> CountFs:
    """An origin with a large file for each way to read it."""
    root = tmp_path / "source"
    root.mkdir()
    for way in ("pread", "map", "fopen", "fdopen"):
        (root / f"{way}.bin").write_bytes(random.Random(way).randbytes(SIZE))
    return mount_counted(root, cached=1)


def both(
    runner: Runner, view: CountFs, ways: list[str], options: tuple[str, ...] = NO_FILL
) -> Outcome:
    """Read plain and under Monarch, with the same result."""
    line = [sys.executable, "-c", READER, str(view.root), *ways]
    plain = runner.plain(line).succeed()
    outcome = runner.under_monarch(line, roots=[view.root], options=options)
    assert outcome.words == plain.words
    return outcome


@pytest.mark.parametrize(
    ("ways", "told"),
    [
        (["pread"], ""),
        (
            ["map"],
            "100.0% of 1 open of large files; 1 open mapped the file, 1 mapping showed "
            "the copy and 0 the origin's file",
        ),
        (
            ["pread", "fdopen", "map"],
            "66.7% of 3 opens of large files; 1 open mapped the file, 1 mapping showed "
            "the copy and 0 the origin's file; 1 open read the origin by a stream or "
            "another call that Monarch does not see, or read nothing",
        ),
    ],
)
def test_the_report_states_the_share_of_unseen_reads(
    runner: Runner, view: CountFs, ways: list[str], told: str
) -> None:
    report = both(runner, view, ways).report

    text = " ".join(render(report).split())
    assert f"unseen reads: {told}" in text if told else "unseen" not in text, text
    reads, found = report["reads"], report["headline"]
    assert reads["opens"] == len(ways)
    assert reads["local_reads"] > 0
    streams = ways.count("fdopen")
    assert found["origin_unseen_opens"] == reads["unused_opens"] == streams
    assert (found["origin_multiple"] is None) == bool(streams)
    assert found["opens"] == found["origin_opens"] == 0


@pytest.mark.parametrize("waits", [True, False])
def test_reads_of_a_stream_are_counted_for_the_file_that_its_open_returned(
    runner: Runner, view: CountFs, waits: bool
) -> None:
    """An open by fopen() waits until the file is staged whole, or reads the origin."""
    report = both(runner, view, ["fopen"], NO_FILL if waits else NO_WAIT).report

    text = " ".join(render(report).split())
    assert "unseen" not in text
    told = "plus, not counted: 1 open by programs (files of 9.0 MiB)"
    assert (told in text) != waits
    assert report["headline"]["opens"] == 1
    assert report["headline"]["origin_opens"] == (0 if waits else 1)


def test_reads_of_a_child_from_an_inherited_descriptor_are_seen(
    runner: Runner, view: CountFs
) -> None:
    """As the workers of a loader do whose dataset has opened its file before."""
    program = (
        READER
        + f"""
fd = os.open(f"{{root}}/pread.bin", os.O_RDONLY)
for _ in range(3):
    if os.fork() == 0:
        os.pread(fd, 1000, {SIZE} // 2)
        os._exit(0)
    os.wait()
"""
    )
    line = [sys.executable, "-c", program, str(view.root)]

    report = runner.under_monarch(line, roots=[view.root], options=NO_FILL).report

    assert report["reads"]["opens"] == 1
    assert report["reads"]["unseen_opens"] == 0
