"""Mappings of large files show the staged copy, once all that they need is there."""

import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.compiler import ADDRESS
from support.countfs import CountFs
from support.programs import Outcome, Runner, tried_bytes
from support.shim_fixtures import Compile

Mount = Callable[..., CountFs]

SIZE = (20 << 20) + 5
OVERREAD_MAX = 1.05
NO_FILL = ("--set", "fill.enabled=false")
# The Shim sees no mapping behind a tcmalloc in LD_PRELOAD, which replaces mmap().
ALLOCATORS = {"libjemalloc.so.2": "served", "libtcmalloc_minimal.so.4": "origin"}

# Each program gets the path first. Under Monarch local() prints if it was served.
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
def died(address):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        ctypes.string_at(address, 1)
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(pid, 0)[1]))
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
OVER = """
at = libc.mmap(None, size, READ, SHARED, fd, 0)
local(not at_origin())
middle = at + (4 << 20)
last = size // PAGE * PAGE - (1 << 20)
print(libc.mmap(middle, 1 << 20, READ, SHARED | FIXED, fd, last) == middle)
print(digest(at, size))
print(libc.mmap(middle, 2 << 20, READ | WRITE, PRIVATE | FIXED | 32, -1, 0) == middle)
ctypes.memset(middle + PAGE, 7, 50)
print(digest(at, size))
os.close(fd)
print(digest(at, size), libc.munmap(at, size))
"""
MIDDLE = """
at = libc.mmap(None, size, READ, SHARED, fd, 0)
local(not at_origin())
middle, n = at + (8 << 20), 4 << 20
print(libc.munmap(middle, n), digest(at, 8 << 20))
print(digest(middle + n, size - (12 << 20)))
for address in at, middle, middle + n - 1, middle + n:
    died(address)
"""
MOVED = """
at = libc.mmap(None, size, READ, SHARED, fd, 0)
local(not at_origin())
at = libc.mremap(at, size, size + 8 * PAGE, MAYMOVE)
print(digest(at, size))
last = -(-size // PAGE) * PAGE
died(at + last - 1)
died(at + last)
at = libc.mremap(at, size + 8 * PAGE, 1 << 20, 0)
print(digest(at, 1 << 20))
died(at + (1 << 20))
print(libc.mremap(at, 1 << 20, size, MAYMOVE) != FAILED)
"""
WIDE = """
libc.mmap64.restype, libc.mmap64.argtypes = libc.mmap.restype, libc.mmap.argtypes
at = libc.mmap64(None, size - (16 << 20), READ, PRIVATE, fd, 16 << 20)
print(digest(at, size - (16 << 20)))
local(not at_origin())
print(libc.mmap64(None, PAGE, READ, SHARED, fd, 1) == FAILED, ctypes.get_errno())
"""
PROTECT = """
for kind in SHARED, PRIVATE:
    at = libc.mmap(None, size, READ, kind, fd, 0)
    local(not at_origin())
    refused = libc.mprotect(ctypes.c_void_p(at), word(size), READ | WRITE)
    print(refused, ctypes.get_errno())
"""
LISTED = """
def listed(first, last):
    found, inside = [], False
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0]:
            start, end = (int(x, 16) for x in words[0].split("-"))
            inside = first <= start < last
            if inside:
                found.append((start - first, end - start, *words[1:3], len(words)))
        elif inside and words[0] == "VmFlags:":
            found.append(words)
    return found
for kind in SHARED, PRIVATE:
    at = libc.mmap(None, size, READ, kind, fd, 0)
    local(not at_origin())
    libc.munmap(at + (2 << 20), 1 << 20)
    print(listed(at, at + size))
"""
# The kernel chooses how much of each mapping a core contains, by the kind of its file.
CORE = """
import resource, struct, tempfile
os.chdir(tempfile.mkdtemp())
most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
shared = libc.mmap(None, size, READ, SHARED, fd, 0)
local(not at_origin())
clean = libc.mmap(None, 4 << 20, READ, PRIVATE, fd, 0)
written = libc.mmap(None, 4 << 20, READ | WRITE, PRIVATE, fd, 0)
ctypes.memset(written + 100, 7, 50)
sums = digest(shared, size), digest(clean, 4 << 20), digest(written, 4 << 20)
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    os.abort()
print(os.WCOREDUMP(os.waitpid(pid, 0)[1]))
[name] = os.listdir(".")
with open(name, "rb") as core:
    head = core.read(64)
    [place] = struct.unpack_from("<Q", head, 32)
    entry, number = struct.unpack_from("<HH", head, 54)
    for at in range(place, place + number * entry, entry):
        core.seek(at)
        kind, _, offset, start, _, kept, n = struct.unpack("<IIQQQQQ", core.read(48))
        for what, first in (("shared", shared), ("clean", clean), ("written", written)):
            if kind == 1 and first <= start < first + n:
                core.seek(offset)
                sum = hashlib.sha256(core.read(kept)).hexdigest()
                print(what, start - first, n, kept, sum)
print(sums)
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
at = libc.mmap(None, size + 8 * PAGE, READ, SHARED, fd, 0)
last = -(-size // PAGE) * PAGE
print(digest(at, last))
local(not at_origin())
died(at + last)
"""
WRITES = """
with open(path, "r+b") as file:
    with mmap.mmap(file.fileno(), 0) as mapped:
        mapped[5:9] = b"Here"
        mapped.flush()
print(os.pread(fd, 20, 0))
"""


def make(folder: Path) -> Path:
    """A dataset of one large file without a meaningful name."""
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


PLAIN = {
    "private": PRIVATE,
    "fixed": FIXED,
    "over": OVER,
    "middle": MIDDLE,
    "moved": MOVED,
    "mmap64": WIDE,
    "mprotect": PROTECT,
    "listed": LISTED,
    "errors": ERRORS,
    "end": END,
}


@pytest.mark.parametrize("name", PLAIN)
def test_mappings_behave_as_plain(
    runner: Runner, mount_counted: Mount, tmp_path: Path, name: str
) -> None:
    view = mount_counted(make(tmp_path / "data"), cached=1)

    assert "origin" not in served(run(runner, view, PLAIN[name]))


def test_core_dump_has_the_same_mappings_as_a_plain_one(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith(("|", "/")):
        pytest.skip("cores do not come into the working directory here")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("cores are switched off here")
    view = mount_counted(make(tmp_path / "data"), cached=1)

    outcome = run(runner, view, CORE, TMPDIR=str(tmp_path))

    assert served(outcome) == ["served"]
    assert {"shared", "clean", "written"} <= set(outcome.stdout.decode().split())


def allocator(name: str) -> str:
    """The path of a library, or a skip."""
    found = next(Path("/usr/lib").rglob(name), None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return str(found)


@pytest.mark.parametrize("name", ALLOCATORS)
def test_allocators_that_map_memory_themselves_are_unaffected(
    runner: Runner, mount_counted: Mount, tmp_path: Path, name: str
) -> None:
    library = allocator(name)
    view = mount_counted(make(tmp_path / "data"), cached=1)

    outcome = run(runner, view, WHOLE, LD_PRELOAD=library)

    assert served(outcome) == [ALLOCATORS[name]] * 2


EARLY = ("bare", "address", *ALLOCATORS)


@pytest.mark.parametrize("mode", EARLY)
def test_programs_map_files_in_and_before_constructors(
    runner: Runner, mount_counted: Mount, tmp_path: Path, compiled: Compile, mode: str
) -> None:
    """Bare, with AddressSanitizer, or linked with an allocator of their own."""
    flags = {"bare": (), "address": ADDRESS}.get(mode)
    if flags is None:
        flags = ("-Wl,--no-as-needed", allocator(mode))
    program = compiled("map_early.c", *flags, name=f"map_early-{mode}")
    view = mount_counted(make(tmp_path / "data"), cached=1)
    asan = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}

    outcome = runner.under_monarch(
        [str(program), str(view.root / "data.bin")],
        roots=[view.root],
        options=NO_FILL,
        environment=asan,
    ).succeed()

    assert outcome.stdout.split() == [b"1"] * 6
    assert outcome.stderr.split() == [b"2"], "those before the Shim's own constructor"
