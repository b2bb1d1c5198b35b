"""An open with O_TRUNC is an open and a truncation: it does what one call would do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_truncating_open_gives_what_a_plain_one_gives(board: Board) -> None:
    begin(board, "two.bin")
    place = board.root.parent / "place"
    program = [sys.executable, "-I", "-c", CASES, str(place)]
    plain = subprocess.run(program, capture_output=True, text=True, check=True)
    shutil.rmtree(place)

    shown = board.run(*program)

    assert shown == plain.stdout
    assert {"EISDIR", "EEXIST", "True", "False"} <= set(re.findall(WORDS, shown))


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
            "before = os.listdir('/proc/self/fd')\n"
            f"try: os.open({str(place)!r}, os.O_WRONLY | os.O_APPEND | os.O_TRUNC)\n"
            "except PermissionError: print(os.listdir('/proc/self/fd') == before)",
        )
        assert shown == "True\n"
        assert place.read_bytes() == b"kept"
    finally:
        subprocess.run(["chattr", "-a", place], check=True)
        place.unlink()
