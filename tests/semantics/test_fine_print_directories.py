"""Fine print on listings and missing names: each sentence is true."""

import os
import time
from collections.abc import Callable
from pathlib import Path

Under = Callable[..., None]


def test_left_out(settled: Under) -> None:
    """The origin lists a directory and looks up its missing names if the scan left out
    any of its names
    """
    settled("""
assert "new" not in os.listdir(D) and not os.path.exists(D + "/new")
plain("touch", D + "/new")
assert "new" in os.listdir(D) and os.path.exists(D + "/new")
""")


def test_not_settled(tree: Path, looking: Under) -> None:
    """or if it changed less than two seconds before the scan"""
    ahead_s = time.time() + 60  # a job may take longer than two seconds to start
    os.utime(tree / "sub", (ahead_s, ahead_s))
    looking("""
assert not listed("new") and not there("new")
come("new")
assert listed("new") and there("new")
""")


def test_unseen(settled: Under) -> None:
    """A name that another node, a program outside the job or a raw system call creates
    or removes is seen within a second
    """
    settled("""
assert listed("b.bin") and not there("new") and not there("raw")
come("new")
plain("rm", D + "/sub/b.bin")
openat = 257 if os.uname().machine == "x86_64" else 56
libc.syscall(openat, -100, (D + "/sub/raw").encode(), os.O_CREAT, 0o600)
soon(lambda: listed("new") and there("new") and not listed("b.bin"))
assert listed("raw") and there("raw")
""")


def test_odd_names(settled: Under) -> None:
    """Missing names that begin with a dot, or have other characters than letters,
    digits and ._-+=,@, are looked up at the origin: servers may treat them specially
    """
    settled("""
assert listed("b.bin") and not there("plain")
for name in (".hidden", "with space", "tilde~1", "colon:x", "\\u00e4", "dot."):
    assert not there(name)
    come(name)
    assert there(name), name
""")


def test_case(settled: Under) -> None:
    """Before the first missing name of a directory is denied, the origin is asked once
    for one of its names in the other letter case
    """
    settled("""
assert not there("B.BIN") and not there("other")
come("B.BIN")
soon(lambda: there("B.BIN"))
""")


def test_libc(settled: Under) -> None:
    """glob, scandir, ftw, nftw and fts of libc list directories at the origin"""
    settled("""
assert not listed("new")
come("new")
found = ctypes.POINTER(ctypes.c_void_p)()
count = libc.scandir((D + "/sub").encode(), ctypes.byref(found), None, None)
assert count == 2 + len(plain("ls", D + "/sub").split())
class Found(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("paths", ctypes.POINTER(ctypes.c_char_p)),
                ("room", ctypes.c_char * 256)]
found = Found()
assert libc.glob((D + "/sub/n*").encode(), 0, None, ctypes.byref(found)) == 0
assert found.count == 1
seen = []
note = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)
note = note(lambda path, *_: seen.append(path) or 0)
assert libc.ftw((D + "/sub").encode(), note, 5) == 0
assert (D + "/sub/new").encode() in seen
""")


def test_attributes(settled: Under) -> None:
    """Extended attributes are read at the origin, also missing ones"""
    settled("""
assert "user.new" not in os.listxattr(D + "/sub/b.bin")
try:
    plain("python3", "-c", "import os, sys; os.setxattr(sys.argv[1], 'user.new', b'x')",
          D + "/sub/b.bin")
except subprocess.CalledProcessError:
    sys.exit(0)  # this file system has none
assert os.getxattr(D + "/sub/b.bin", "user.new") == b"x"
""")
