"""Mappings of large files show the staged copy, once all that they need is there."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.countfs import CountFs
from support.programs import Outcome, Runner, tried_bytes

Mount = Callable[..., CountFs]

SIZE = (20 << 20) + 5
OVERREAD_MAX = 1.05
NO_FILL = ("--set", "fill.enabled=false")
ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")

# Each program gets the path first. local() tells, under Monarch, whether it was served.
COMMON = """
import ctypes, hashlib, mmap, os, sys
path = sys.argv[1]
size = os.stat(path).st_size
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
word = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_void_p, word, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = [ctypes.c_void_p, word, word, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, word]
FAILED, PAGE = ctypes.c_void_p(-1).value, 4096
READ, WRITE, SHARED, PRIVATE, FIXED, MAYMOVE = 1, 2, 1, 2, 16, 1
def at_origin():
    with open("/proc/self/maps") as file:
        return path in file.read()
def digest(address, n):
    return hashlib.sha256(ctypes.string_at(address, n)).hexdigest()
def local(served):
    # What a run without Monarch cannot show.
    if "MONARCH_STAGING_RUN" in os.environ:
        print("served" if served else "origin", file=sys.stderr)
fd = os.open(path, os.O_RDONLY)
"""
WHOLE = """
for _ in range(2):
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as mapped:
        print(hashlib.sha256(mapped).hexdigest())
        local(not at_origin())
"""
TAIL = """
with mmap.mmap(fd, 0, access=mmap.ACCESS_READ, offset=16 << 20) as mapped:
    print(hashlib.sha256(mapped).hexdigest())
    local(not at_origin())
"""
WINDOW = """
at = libc.mmap(None, 1 << 20, READ, SHARED, fd, 1 << 20)
print(digest(at, 1 << 20))
local(not at_origin())
at = libc.mremap(at, 1 << 20, 8 << 20, MAYMOVE)
print(digest(at, 8 << 20))
"""
PRIVATE = """
at = libc.mmap(None, size, READ | WRITE, PRIVATE, fd, 0)
ctypes.memset(at + 100, 7, 50)
print(digest(at, size))
local(not at_origin())
at = libc.mmap(None, size, READ, SHARED, fd, 0)
print(digest(at, size))
"""
FIXED = """
room = libc.mmap(None, 32 << 20, 0, PRIVATE | 32, -1, 0)
at = libc.mmap(room + (1 << 20), size, READ, SHARED | FIXED, fd, 0)
print(at == room + (1 << 20), digest(at, size), libc.munmap(room, 32 << 20))
"""
ERRORS = """
for n, prot, flags, offset in (
    (0, READ, SHARED, 0),
    (PAGE, READ, SHARED, 1),
    (PAGE, READ | WRITE, SHARED, 0),
    (PAGE, READ, 0, 0),
    (PAGE, READ, SHARED, -PAGE),
):
    at = libc.mmap(None, n, prot, flags, fd, offset)
    print(at == FAILED, ctypes.get_errno())
beyond = libc.mmap(None, PAGE, READ, SHARED, fd, (size // PAGE + 9) * PAGE)
print(beyond != FAILED)
"""
END = """
import signal
at = libc.mmap(None, size + 8 * PAGE, READ, SHARED, fd, 0)
last = -(-size // PAGE) * PAGE
print(digest(at, last))
local(not at_origin())
sys.stdout.flush()
if not os.fork():
    ctypes.string_at(at + last, 1)
    os._exit(0)
print(os.WTERMSIG(os.wait()[1]) == signal.SIGBUS)
"""
WRITES = """
with open(path, "r+b") as file:
    with mmap.mmap(file.fileno(), 0) as mapped:
        mapped[5:9] = b"Here"
        mapped.flush()
print(os.pread(fd, 20, 0))
"""


def make(folder: Path) -> Path:
    """A dataset of one large file, whose name says nothing."""
    folder.mkdir()
    (folder / "data.bin").write_bytes(random.Random(3).randbytes(SIZE))
    return folder


def run(
    runner: Runner, view: CountFs, text: str, *options: str, **variables: str
) -> Outcome:
    """Run a program plain and under Monarch, which must print the same."""
    line = [sys.executable, "-c", COMMON + text, str(view.root / "data.bin")]
    plain = runner.plain(line).succeed()
    view.reset()
    options = (*NO_FILL, *options)
    outcome = runner.under_monarch(
        line, roots=[view.root], options=options, environment=variables
    )
    assert outcome.words[:2] == plain.words[:2], outcome.stderr
    return outcome


def served(outcome: Outcome) -> list[str]:
    """Return for each mapping whether it is of the staged copy."""
    return [line for line in outcome.stderr.decode().split() if line in PLACES]


PLACES = ("served", "origin")


def test_a_mapping_is_of_the_copy_and_the_origin_is_read_once(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data"), cached=1)

    outcome = run(runner, view, WHOLE)

    assert served(outcome) == ["served", "served"]
    most = OVERREAD_MAX * SIZE + tried_bytes(outcome.report)
    assert SIZE <= view.counts().read_bytes <= most


def test_a_mapping_of_the_end_waits_for_the_end_only(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data"), cached=1)

    outcome = run(runner, view, TAIL)

    assert served(outcome) == ["served"]
    assert view.counts().read_bytes < SIZE // 2 + tried_bytes(outcome.report)


def test_a_window_that_may_grow_over_missing_pages_is_of_the_origin(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data"), cached=1)

    assert served(run(runner, view, WINDOW)) == ["origin"]
    assert served(run(runner, view, WHOLE + WINDOW)) == ["served"] * 3


@pytest.mark.parametrize("text", [PRIVATE, FIXED, ERRORS, END], ids=len)
def test_mappings_behave_as_plain(
    runner: Runner, mount_counted: Mount, tmp_path: Path, text: str
) -> None:
    view = mount_counted(make(tmp_path / "data"), cached=1)

    assert "origin" not in served(run(runner, view, text))


def test_a_mapping_that_can_write_is_of_the_origin(
    runner: Runner, tmp_path: Path
) -> None:
    folder = make(tmp_path / "data")
    line = [sys.executable, "-c", COMMON + WRITES, str(folder / "data.bin")]

    outcome = runner.under_monarch(line, roots=[folder], options=NO_FILL).succeed()

    expected = (folder / "data.bin").read_bytes()[:20]
    assert expected[5:9] == b"Here"
    assert outcome.stdout.decode().strip() == repr(expected)


def test_a_file_above_the_limit_is_mapped_at_the_origin(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    view = mount_counted(make(tmp_path / "data"), cached=1)
    small = ("--set", "cold_open.wait_max_whole=9MiB")

    assert served(run(runner, view, WHOLE, *small)) == ["origin"] * 2


@pytest.mark.parametrize("name", ALLOCATORS)
def test_allocators_that_map_memory_themselves_notice_nothing(
    runner: Runner, mount_counted: Mount, tmp_path: Path, name: str
) -> None:
    found = next(Path("/usr/lib").rglob(name), None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    view = mount_counted(make(tmp_path / "data"), cached=1)

    outcome = run(runner, view, WHOLE, LD_PRELOAD=str(found))

    assert served(outcome) == ["served", "served"]
