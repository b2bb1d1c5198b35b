"""The kernel's view of a name, by raw system calls that nothing intercepts."""

import ctypes
import errno
import os
import platform
import stat
import struct
import zlib
from dataclasses import dataclass

NUMBERS = {
    "x86_64": (257, 267, 332, 272, 165),
    "aarch64": (56, 78, 291, 97, 40),
}
NAMES = ("openat", "readlinkat", "statx", "unshare", "mount")
SYS = dict(zip(NAMES, NUMBERS.get(platform.machine(), ()), strict=False))
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
STATX_BASIC = 0x7FF
STATX_BIRTH = 0x800
BYTES_MAX = 1 << 20
# Times before this moment were set by an operation; all others are "now".
OLD_NS = 1_700_000_000 * 10**9
# Fields compared for stat and statx: all except the access time.
FIELDS = (
    *("mode", "nlink", "uid", "gid", "ino", "size", "blocks", "mtime", "ctime"),
    "dev",
)

_SHAPE = struct.Struct("=IIQIIIHHQQQQ qIi qIi qIi qIi IIII")
_status = ctypes.create_string_buffer(256)
_target = ctypes.create_string_buffer(4096)


def call(name: str, *words: object) -> int:
    """One raw system call; raises OSError as os does."""
    result = int(LIBC.syscall(SYS[name], *words))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def raw_open(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor that no library has seen."""
    words = (AT_FDCWD, os.fsencode(path), flags | os.O_CLOEXEC, mode)
    return call("openat", *words)


def raw_stat(path: str, follow: bool = True) -> tuple[int, ...]:
    """The FIELDS of a name."""
    flags = 0 if follow else AT_SYMLINK_NOFOLLOW
    call("statx", AT_FDCWD, os.fsencode(path), flags, STATX_BASIC, _status)
    return _fields(_SHAPE.unpack_from(_status))


def raw_fstat(descriptor: int) -> tuple[int, ...]:
    """The FIELDS of the file of a descriptor."""
    call("statx", descriptor, b"", 0x1000, STATX_BASIC, _status)
    return _fields(_SHAPE.unpack_from(_status))


def raw_identity(path: str) -> tuple[int, ...]:
    """A unique identity of a file in a run: inode numbers are reused."""
    call("statx", AT_FDCWD, os.fsencode(path), 0, STATX_BIRTH | STATX_BASIC, _status)
    told = _SHAPE.unpack_from(_status)
    return told[8], *(told[15:17] if told[0] & STATX_BIRTH else ())


def statx_of_descriptor(descriptor: int) -> tuple[int, ...]:
    """The FIELDS of a descriptor by the usual statx() with an empty path."""
    LIBC.statx(descriptor, b"", 0x1000, STATX_BASIC, _status)
    return _fields(_SHAPE.unpack_from(_status))


def _fields(told: tuple[int, ...]) -> tuple[int, ...]:
    nlink, uid, gid, mode, _, ino, size, blocks = told[3:11]
    changed_s, changed_ns = told[18:20]
    written_s, written_ns = told[21:23]
    times = (written_s * 10**9 + written_ns, changed_s * 10**9 + changed_ns)
    dev = os.makedev(told[26], told[27])
    return mode, nlink, uid, gid, ino, size, blocks, *times, dev


def shim_fields(found: os.stat_result) -> tuple[int, ...]:
    """The FIELDS of a stat that was asked in the usual way."""
    return (
        *(found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_ino),
        *(found.st_size, found.st_blocks, found.st_mtime_ns, found.st_ctime_ns),
        found.st_dev,
    )


def raw_read(path: str) -> bytes:
    """All bytes of a small file."""
    descriptor = raw_open(path)
    try:
        return os.read(descriptor, BYTES_MAX)
    finally:
        os.close(descriptor)


def raw_link(path: str) -> str:
    """Where a link leads to."""
    count = call("readlinkat", AT_FDCWD, os.fsencode(path), _target, len(_target))
    return os.fsdecode(_target.raw[:count])


def digest(content: bytes) -> str:
    """Length and checksum, short enough to read in a difference."""
    return f"{len(content)}:{zlib.crc32(content):08x}"


@dataclass(frozen=True, slots=True)
class Look:
    """The view of one name: its own status, that of its target, and the bytes."""

    own: tuple[int, ...] | str
    target: tuple[int, ...] | str
    content: bytes | str

    def told(self, path: str) -> str:
        """The same in any two runs in which the same was done."""
        if isinstance(self.own, str):
            return self.own
        mode, nlink, uid, gid, _, size, _, mtime = self.own[:8]
        old = mtime if mtime < OLD_NS else "now"
        size = -1 if stat.S_ISDIR(mode) else size
        own = f"{mode:o} {nlink} {uid} {gid} {size} {old}"
        if stat.S_ISLNK(mode):
            own = f"-> {raw_link(path)}"
        content = self.content
        return f"{own} {digest(content) if isinstance(content, bytes) else content}"


def attempt(function, *words):
    """The result of a call, or the name of its error."""
    try:
        return function(*words)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "E?")


def look_raw(path: str) -> Look:
    """The kernel's view."""
    own = attempt(raw_stat, path, False)
    linked = not isinstance(own, str) and stat.S_ISLNK(own[0])
    target = attempt(raw_stat, path) if linked else own
    if isinstance(target, str) or not stat.S_ISREG(target[0]):
        return Look(own, target, "")
    return Look(own, target, attempt(raw_read, path))


def look_shim(path: str, like: Look) -> Look:
    """The view of a program; only regular files are opened, as in `like`."""
    own = attempt(lambda: shim_fields(os.lstat(path)))
    target = attempt(lambda: shim_fields(os.stat(path)))
    if isinstance(like.target, str) or not stat.S_ISREG(like.target[0]):
        return Look(own, target, "")
    return Look(own, target, attempt(_read, path, target))


def _read(path: str, target: tuple[int, ...] | str) -> bytes | str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        told = shim_fields(os.fstat(descriptor))
        content = os.read(descriptor, BYTES_MAX)
    finally:
        os.close(descriptor)
    # If both are right they are equal; reported separately, because one may be wrong.
    return content if told == target else f"fstat {told} beside {digest(content)}"


def differences(path: str, true: Look, shown: Look) -> list[str]:
    """The errors in the view of a program."""
    if true == shown:
        return []
    wrong = []
    if true.content != shown.content:
        wrong.append(f"bytes of {path}: {_short(true.content)} {_short(shown.content)}")
    for what in ("own", "target"):
        one, two = getattr(true, what), getattr(shown, what)
        if one != two:
            wrong.append(f"stat of {path} ({what}): {_apart(one, two)}")
    return wrong


def _short(content: bytes | str) -> str:
    return digest(content) if isinstance(content, bytes) else content


def _apart(one: tuple[int, ...] | str, two: tuple[int, ...] | str) -> str:
    if isinstance(one, str) or isinstance(two, str):
        return f"{one} {two}"
    pairs = zip(FIELDS, one, two, strict=True)
    return ", ".join(f"{name} {a} {b}" for name, a, b in pairs if a != b)
