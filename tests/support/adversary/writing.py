"""Bytes changed through a name, by every call of libc for that."""

import ctypes
import errno
import mmap
import os
import shutil
import subprocess

from support.adversary import tree
from support.adversary.links import checked, moved_name
from support.adversary.play import Play, operation
from support.adversary.truth import AT_FDCWD, LIBC, raw_open

LIBC.fopen.restype = LIBC.fopen64.restype = ctypes.c_void_p
LIBC.freopen.restype = LIBC.freopen64.restype = ctypes.c_void_p
LIBC.popen.restype = ctypes.c_void_p
WRITABLE = (
    *(*tree.FILES, *tree.DEEP, *tree.LINKS, *tree.HARD, *tree.THROUGH),
    *(*tree.FAR, *tree.ABROAD),
)
STREAM_MODES = (
    *(b"r+", b"r+b", b"w", b"w+", b"a", b"a+", b"r+e", b"rb+", b"rbbbbb+"),
    *(b"rbbbbbb+", b"r+,ccs=UTF-8", b"rm+", b"wx"),
)


def fill(descriptor: int, payload: bytes) -> None:
    """Writes and closes."""
    try:
        os.write(descriptor, payload)
    finally:
        os.close(descriptor)


def opened(descriptor: int, payload: bytes) -> None:
    """The same for a descriptor from a libc call."""
    checked(descriptor)
    fill(descriptor, payload)


def by_open(play: Play, path: str) -> None:
    flags = play.random.choice((os.O_WRONLY, os.O_RDWR))
    flags |= play.random.choice((0, os.O_TRUNC, os.O_APPEND, os.O_CREAT))
    fill(os.open(path, flags, 0o640), play.payload())


def by_open_oddly(play: Play, path: str) -> None:
    odd = (os.O_TRUNC, os.O_CREAT, os.O_ACCMODE, os.O_CREAT | os.O_TRUNC)
    os.close(os.open(path, os.O_RDONLY | play.pick(odd), 0o640))


def by_path_descriptor(play: Play, path: str) -> None:
    place = os.open(path, os.O_PATH)
    try:
        by_open(play, f"/proc/self/fd/{place}")
    finally:
        os.close(place)


def by_new_name(play: Play, path: str) -> None:
    beside = play.at("../out/new1")
    os.link(path, beside)
    try:
        by_open(play, beside)
    finally:
        os.unlink(beside)


def by_going_away(play: Play, path: str) -> None:
    beside = play.at("../out/new1")
    os.rename(path, beside)
    by_open(play, beside)
    os.rename(beside, path)


def by_python(play: Play, path: str) -> None:
    with open(path, play.pick(("wb", "ab", "r+b", "w+b"))) as file:
        file.write(play.payload())


def by_named_call(play: Play, path: str) -> None:
    calls = ("open", "open64", "__open", "__open64", "__open_2", "__open64_2")
    call = getattr(LIBC, play.pick(calls))
    flags = os.O_RDWR | play.random.choice((0, os.O_TRUNC))
    opened(call(os.fsencode(path), flags), play.payload())


def by_openat(play: Play, path: str) -> None:
    calls = ("openat", "openat64", "__openat_2", "__openat64_2")
    call = getattr(LIBC, play.pick(calls))
    opened(call(AT_FDCWD, os.fsencode(path), os.O_WRONLY), play.payload())


def by_creat(play: Play, path: str) -> None:
    call = getattr(LIBC, play.pick(("creat", "creat64")))
    opened(call(os.fsencode(path), 0o640), play.payload())


def stream_write(stream: int | None, payload: bytes) -> None:
    """Writes to a FILE and closes it."""
    if not stream:
        checked(-1)
    LIBC.fwrite(payload, 1, len(payload), ctypes.c_void_p(stream))
    checked(LIBC.fclose(ctypes.c_void_p(stream)))


def by_fopen(play: Play, path: str) -> None:
    call = getattr(LIBC, play.pick(("fopen", "fopen64")))
    stream_write(call(os.fsencode(path), play.pick(STREAM_MODES)), play.payload())


def by_freopen(play: Play, path: str) -> None:
    stream = LIBC.fopen(b"/dev/null", b"r")
    call = getattr(LIBC, play.pick(("freopen", "freopen64")))
    name, mode = os.fsencode(path), play.pick((b"r+", b"w", b"a"))
    stream_write(call(name, mode, ctypes.c_void_p(stream)), play.payload())


def by_freopen_null(play: Play, path: str) -> None:
    stream = LIBC.fopen(os.fsencode(path), b"r")
    if not stream:
        checked(-1)
    call = getattr(LIBC, play.pick(("freopen", "freopen64")))
    mode = play.pick((b"r+", b"w", b"a"))
    stream_write(call(None, mode, ctypes.c_void_p(stream)), play.payload())


def by_truncate(play: Play, path: str) -> None:
    length = play.random.choice((0, 10, 5000))
    call = getattr(LIBC, play.pick(("truncate", "truncate64")))
    checked(call(os.fsencode(path), ctypes.c_long(length)))


def by_ftruncate(play: Play, path: str) -> None:
    with open(path, "r+b") as file:
        file.truncate(play.random.choice((0, 10, 5000)))


def by_map(play: Play, path: str) -> None:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[: min(len(view), 40)] = play.random.randbytes(min(len(view), 40))


def by_fallocate(play: Play, path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, 9000)
    finally:
        os.close(descriptor)


def by_copy_range(play: Play, path: str) -> None:
    with open(play.path(tree.FILES), "rb") as source, open(path, "r+b") as target:
        devices = {os.fstat(one.fileno()).st_dev for one in (source, target)}
        if len(devices) > 1:  # then a Replica is copied, too, but no file of the origin
            raise OSError(errno.EXDEV, "copy_file_range")
        os.copy_file_range(source.fileno(), target.fileno(), 2000)


def by_sendfile(play: Play, path: str) -> None:
    with open(play.path(tree.FILES), "rb") as source, open(path, "r+b") as target:
        os.sendfile(target.fileno(), source.fileno(), 0, 2000)


def by_splice(play: Play, path: str) -> None:
    output, into = os.pipe()
    try:
        os.write(into, play.payload()[:4000])
        with open(path, "r+b") as target:
            os.splice(output, target.fileno(), 4000)
    finally:
        os.close(output)
        os.close(into)


def by_copy(play: Play, path: str) -> None:
    copy = play.way((shutil.copy, shutil.copy2, shutil.copyfile))
    copy(play.path(tree.FILES), path)


def by_handle(play: Play, path: str) -> None:
    play.need("handles")
    handle = ctypes.create_string_buffer(136)
    ctypes.c_uint.from_buffer(handle).value = 128
    mount = ctypes.c_int()
    words = (AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount), 0x400)
    checked(LIBC.name_to_handle_at(*words))
    holder = os.open(play.at("../out"), os.O_RDONLY)
    try:
        opened(LIBC.open_by_handle_at(holder, handle, os.O_WRONLY), play.payload())
    finally:
        os.close(holder)


def by_popen(play: Play, path: str) -> None:
    line = f"cat >'{path}'"
    stream = LIBC.popen(os.fsencode(line), b"w")
    payload = play.payload()
    LIBC.fwrite(payload, 1, len(payload), ctypes.c_void_p(stream))
    LIBC.pclose(ctypes.c_void_p(stream))


SHELL = (
    'printf more >>"$0"',
    'printf new >"$0"',
    'printf both 1<>"$0"',
    'exec 3<>"$0"; printf three >&3',
    'printf tee | tee "$0"',
    'printf dd | dd of="$0" conv=notrunc',
    'printf dd | dd of="$0"',
    'cp /etc/passwd "$0"',
    'truncate -s 70 "$0"',
    'cat /etc/passwd >|"$0"',
    'exec 3<"$0"; printf reopened >/dev/fd/3',
    'exec 3<"$0"; printf reopened >>/proc/self/fd/3',
    'printf input >/dev/stdin <"$0"',
    'printf input | dd of=/dev/fd/3 conv=notrunc 3<"$0"',
)


def by_shell(play: Play, path: str) -> None:
    words = ["sh", "-c", play.pick(SHELL), path]
    subprocess.run(words, capture_output=True, check=False)


WAYS = (
    *(by_open, by_python, by_named_call, by_openat, by_creat, by_fopen, by_freopen),
    *(by_freopen_null, by_truncate, by_ftruncate, by_map, by_fallocate, by_splice),
    *(by_open_oddly, by_path_descriptor, by_new_name, by_going_away),
    *(by_copy_range, by_sendfile, by_copy, by_handle, by_popen, by_shell, by_shell),
)


@operation("bytes", 6)
def write(play: Play) -> str:
    """A file is written to, by one of its names and one of many calls."""
    path = play.path(WRITABLE if play.random.random() < 0.5 else ())
    play.way(WAYS)(play, path)
    return "done"


@operation("links", 8)
def write_by_link(play: Play) -> str:
    """A file is written to by a name that passes a link."""
    path = play.path((*tree.LINKS, *tree.THROUGH))
    play.way(WAYS)(play, path)
    return "done"


@operation("links", 6)
def write_by_moved_link(play: Play) -> str:
    """A file is written to by a link that leads elsewhere than at the start."""
    path = moved_name(play)
    play.way(WAYS)(play, path)
    return "done"


@operation("bytes", 4)
def freopen_in_place(play: Play) -> str:
    """A stream that was opened for reading is opened again for writing."""
    by_freopen_null(play, play.path(WRITABLE))
    return "done"


@operation("control", 0)
def write_unseen(play: Play) -> str:
    """A file is written to as nothing can see: never drawn, it proves the looks."""
    fill(raw_open(play.at("f0"), os.O_WRONLY | os.O_APPEND), b"unseen")
    return "done"


@operation("bytes")
def open_and_leave(play: Play) -> str:
    """A file is opened for writing, but not written to."""
    os.close(os.open(play.path(), play.pick((os.O_RDWR, os.O_WRONLY | os.O_APPEND))))
    return "done"


@operation("bytes")
def write_twice(play: Play) -> str:
    """A file is written to, looked at, and written to by the same descriptor again."""
    path = play.path(WRITABLE)
    with open(path, "r+b", buffering=0) as file:
        file.write(play.payload())
        with open(path, "rb") as again:
            before = len(again.read())
        file.write(play.payload())
    return f"{before}"
