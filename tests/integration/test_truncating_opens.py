"""An open with O_TRUNC is an open and a truncation: it does what one call would do."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from integration.test_hung_parts import medium, tierfs_program  # noqa: F401
from support.countfs import CountFs
from support.shim_fixtures import Board, begin, python

CASES = """
import ctypes, errno, os, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
W, R, B, T = os.O_WRONLY, os.O_RDONLY, os.O_RDWR, os.O_TRUNC
C, X = os.O_CREAT, os.O_EXCL

def reset():
    for name in os.listdir("."):
        os.rmdir(name) if os.path.isdir(name) else os.unlink(name)
    for name, body in (("full", b"0123456789"), ("empty", b"")):
        fd = os.open(name, W | C | X, 0o4750)
        os.write(fd, body)
        os.close(fd)
        os.utime(name, (1, 1))
    os.mkfifo("fifo")
    os.mkdir("folder")
    os.symlink("full", "link")
    os.symlink("missing", "dangling")

def opened(path, flags):
    try:
        fd = os.open(path, flags | os.O_NONBLOCK, 0o640)
    except OSError as error:
        return errno.errorcode[error.errno]
    kind = os.fstat(fd)
    os.close(fd)
    mode = stat.S_IFMT(kind.st_mode) if path == "/dev/null" else kind.st_mode
    moved = kind.st_mtime != 1
    return oct(mode), moved, kind.st_size if stat.S_ISREG(mode) else None

def creat(path):
    fd = libc.creat64(path.encode(), 0o600)
    size = os.fstat(fd).st_size if fd >= 0 else None
    os.close(fd) if fd >= 0 else None
    return size

for path in ("full", "empty", "new", "fifo", "folder", "link", "dangling", "/dev/null",
             "none/x", "full/x"):
    for flags in (W, B, R, W | C, B | C, W | C | X, W | os.O_APPEND, W | os.O_NOFOLLOW,
                  W | os.O_DIRECTORY, W | os.O_PATH):
        reset()
        print(path, oct(flags), opened(path, flags | T), sorted(os.listdir(".")))
    reset()
    print(path, "creat", creat(path) if path != "fifo" else "")
reset()
os.chmod("full", 0o400)
print(opened("full", W | T), os.stat("full").st_size)
reset()
"""

WORDS = r"E[A-Z]{4,}|True|False"


def test_truncating_open_returns_the_same_as_without_monarch(board: Board) -> None:
    begin(board, "two.bin")
    place = board.root.parent / "place"
    program = [sys.executable, "-I", "-c", CASES, str(place)]
    plain = subprocess.run(program, capture_output=True, text=True, check=True)
    shutil.rmtree(place)

    shown = board.run(*program)

    assert shown == plain.stdout
    assert {"EISDIR", "EEXIST", "True", "False"} <= set(re.findall(WORDS, shown))


# First a truncating open of another file in a directory on a disk or in memory.
LEARN = """
import os, sys
T = os.O_WRONLY | os.O_TRUNC
out = os.path.realpath(sys.argv[1])
os.close(os.open(out + "/first", T | os.O_CREAT, 0o600))
"""
NAMES = {
    "hard link": "os.link(D + '/two.bin', out + '/name')",
    "link": "os.symlink(D + '/two.bin', out + '/name')",
    "link to a descriptor": "os.symlink(f'/proc/self/fd/{fd}', out + '/name')",
}


def outside(board: Board) -> Path:
    """A directory outside of the dataset."""
    folder = board.folder / "out"
    folder.mkdir()
    return folder


@dataclass(frozen=True, slots=True)
class Traced:
    """Programs that strace runs, in a directory outside of the dataset."""

    board: Board
    strace: str
    out: Path

    def run(self, script: str, *options: str) -> tuple[int, str]:
        """Exit code of a program, and the calls that it has made."""
        log = self.board.folder / "strace.log"
        before = [self.strace, "-f", "-o", str(log), *options]
        line = [*before, sys.executable, "-I", "-c", LEARN + script, str(self.out)]
        done = subprocess.run(line, env=self.board.environ())
        return done.returncode, log.read_text()


@pytest.fixture
def traced(board: Board, tool: Callable[[str], str]) -> Traced:
    """In its directory "name" is another name of two.bin, which is staged."""
    begin(board, "two.bin")
    out = outside(board)
    (out / "name").hardlink_to(board.root / "two.bin")
    return Traced(board, tool("strace"), out)


@pytest.mark.parametrize("name", NAMES)
def test_truncation_by_another_name_of_a_file_reaches_and_marks_it(
    board: Board, name: str
) -> None:
    begin(board, "two.bin")
    replica = Path(board.ask("where two.bin"))
    before = replica.read_bytes()
    learn = LEARN.replace("sys.argv[1]", repr(str(outside(board))))

    shown = python(
        board,
        f"{learn}fd = os.open('two.bin', os.O_RDONLY)\n{NAMES[name]}\n"
        "os.write(os.open(out + '/name', T), b'NEW'); print(read('two.bin'))",
    )

    assert shown == "NEW\n"
    assert (board.root / "two.bin").read_bytes() == b"NEW"
    assert replica.read_bytes() == before, "the Replica was changed in place"


def test_truncating_open_outside_checks_the_opened_file_once(traced: Traced) -> None:
    opens = "for _ in range(5): os.write(os.open(out + '/other', T | os.O_CREAT), b'1')"

    code, calls = traced.run(opens)

    named = [line for line in calls.splitlines() if f"{traced.out}/other" in line]
    assert code == 0
    assert len(named) == 5, "each is looked at by its descriptor alone"
    assert not any("O_TRUNC" in line for line in named)
    assert calls.count("ftruncate(") == 4, "the first one has made an empty file"


def test_truncating_open_on_a_file_server_keeps_its_flag(
    traced: Traced,
    medium: CountFs,  # noqa: F811
) -> None:
    """For an open without it, servers may copy the whole file."""
    served = replace(traced, out=medium.root)

    code, calls = served.run("for _ in range(3): os.close(os.open(out + '/first', T))")

    opens = [
        line
        for line in calls.splitlines()
        if f'openat(AT_FDCWD, "{served.out}/first"' in line
    ]
    assert code == 0
    assert ["O_TRUNC" in line for line in opens] == [True] * 4
    assert "ftruncate(" not in calls


def test_program_that_is_killed_in_a_truncating_open_has_marked_the_file(
    traced: Traced,
) -> None:
    kill = ("-e", "inject=ftruncate:signal=KILL")

    code, calls = traced.run("os.open(out + '/name', T)", *kill)

    assert code == -signal.SIGKILL
    assert "ftruncate(" in calls
    assert traced.board.counters()["mutations"] == 1


def test_file_that_can_only_be_opened_with_its_truncation_is_marked_before(
    traced: Traced,
) -> None:
    """Some file systems refuse to open a file for writing without O_TRUNC."""
    name = str(traced.out / "name")
    refuse = ("-P", name, "-e", "inject=openat:error=EINVAL:when=1")

    code, calls = traced.run("os.open(out + '/name', T)", *refuse)

    opens = [line for line in calls.splitlines() if "openat(" in line]
    assert code == 0
    assert ["O_TRUNC" in line for line in opens] == [False, True]
    assert "statx(" in calls.split("openat(")[1], "a look before the truncation"
    assert (traced.board.root / "two.bin").read_bytes() == b""
    assert traced.board.counters()["mutations"] == 1


@pytest.mark.root
def test_truncating_open_of_an_append_only_file_is_refused(board: Board) -> None:
    place = Path("/var/tmp") / f"append-{os.getpid()}"
    place.write_bytes(b"kept")
    if subprocess.run(["chattr", "+a", place], capture_output=True).returncode:
        place.unlink()
        pytest.skip("this file system keeps no append-only files")
    begin(board, "two.bin")
    try:
        shown = python(
            board,
            f"first = {str(place) + '-first'!r}\n"
            "T = os.O_WRONLY | os.O_TRUNC | os.O_CREAT\n"
            "for _ in range(2): os.close(os.open(first, T))\n"
            "os.unlink(first); before = os.listdir('/proc/self/fd')\n"
            f"try: os.open({str(place)!r}, os.O_WRONLY | os.O_APPEND | os.O_TRUNC)\n"
            "except PermissionError: print(os.listdir('/proc/self/fd') == before)",
        )
        assert shown == "True\n"
        assert place.read_bytes() == b"kept"
    finally:
        subprocess.run(["chattr", "-a", place], check=True)
        place.unlink()
