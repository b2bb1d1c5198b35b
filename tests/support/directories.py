"""A dataset with listed directories, and the calls by which libc lists them."""

import subprocess
import sys

from support.shim_fixtures import Board

# Names below these sort between their neighbouring names.
NEAR = ("p", "p-x", "p.d", "p0", "pp")
FOLDERS = (".", "a", "a/b", "folder", "many", "many/f050.d", "none", "..odd", *NEAR)
SCAN = (
    f"for folder in {FOLDERS}:\n"
    "    with os.scandir(folder) as found:\n"
    "        for e in found:\n"
    "            print(folder, e.name, e.inode(), e.is_dir(follow_symlinks=False),\n"
    "                  e.is_file(follow_symlinks=False), e.is_symlink())\n"
)
# Calls by which libc lists, through ctypes; REAL are those behind the Shim.
CALLS = """
class Entry(ctypes.Structure):
    _fields_ = [('ino', ctypes.c_uint64), ('off', ctypes.c_int64),
                ('bytes', ctypes.c_ushort), ('type', ctypes.c_ubyte),
                ('name', ctypes.c_char * 256)]
LIBC, REAL = ctypes.CDLL(None), ctypes.CDLL('libc.so.6')
for lib in (LIBC, REAL):
    lib.opendir.restype = lib.fdopendir.restype = ctypes.c_void_p
    lib.readdir.restype = lib.readdir64.restype = ctypes.POINTER(Entry)
    lib.telldir.restype = ctypes.c_long
    lib.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    for name in ('readdir', 'readdir64', 'telldir', 'rewinddir', 'closedir', 'dirfd'):
        getattr(lib, name).argtypes = [ctypes.c_void_p]
def one(d, call='readdir', lib=LIBC):
    found = getattr(lib, call)(d)
    return found.contents.name.decode() if found else None
def one_r(d, call):
    call, entry, result = getattr(LIBC, call), Entry(), ctypes.c_void_p()
    call.argtypes = [ctypes.c_void_p] * 3
    assert call(d, ctypes.byref(entry), ctypes.byref(result)) == 0
    return entry.name.decode() if result else None
def rest(d, read=one, *words):
    return sorted(iter(lambda: read(d, *words), None))
def many(): return LIBC.opendir(b'many')
ALL = sorted(['.', '..', *os.listdir('many')])
"""


def fill_folders(board: Board) -> None:
    """Adds directories of many, of no and of similar names; a FIFO has no Entry."""
    (board.root / "fifo").unlink()
    (board.root / "many").mkdir()
    for number in range(300):
        (board.root / "many" / f"f{number:03d}").touch()
        if number % 50 == 0:
            (board.root / "many" / f"f{number:03d}.d" / "in").mkdir(parents=True)
    (board.root / "none").mkdir()
    for name in NEAR:
        (board.root / name / "p").mkdir(parents=True)
        (board.root / name / "p" / name).touch()
        (board.root / name / f"{name}.x").touch()


def plain(board: Board, script: str) -> str:
    """The output of a Python program without the Shim."""
    head = f"import os\nos.chdir({str(board.root)!r})\n"
    command = [sys.executable, "-c", head + script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def answered(board: Board) -> int:
    """The number of directories that were listed from the Catalog."""
    return board.counters()["listings_answered"]
