"""Reads a file in one of several ways and prints the result of each read.

    read_parts.py WAY FILE [READS] [EPOCHS]

In sequence, it prints one digest; else one line for each read.
"""

import ctypes
import hashlib
import os
import random
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)


def digest(data: bytes | bytearray | memoryview) -> str:
    return f"{len(data)}:{hashlib.md5(data).hexdigest()}"


def sequence(path: str, chunk: int = 256 << 10) -> None:
    total = hashlib.md5()
    fd = os.open(path, os.O_RDONLY)
    while data := os.read(fd, chunk):
        total.update(data)
    os.close(fd)
    print(total.hexdigest())


def sparse(path: str, reads: int, longest: int = 64 << 10) -> None:
    chance, size = random.Random(5), os.stat(path).st_size
    fd = os.open(path, os.O_RDONLY)
    for _ in range(reads):
        print(digest(os.pread(fd, chance.randrange(longest), chance.randrange(size))))
    os.close(fd)


def small(path: str, reads: int) -> None:
    """Twice the same pieces of 4 KiB, the second time when they may be staged."""
    fd = os.open(path, os.O_RDONLY)
    for turn in range(2):
        chance, size = random.Random(7), os.stat(path).st_size
        time.sleep(turn)
        for _ in range(reads):
            print(digest(os.pread(fd, 4096, chance.randrange(1, size))))
    os.close(fd)


def vectors(path: str) -> None:
    """Into several buffers, across the end, and to an address that is none."""
    size = os.stat(path).st_size
    fd = os.open(path, os.O_RDONLY)
    for at in (0, (8 << 20) - 700, size - 1000, size, size + 5):
        buffers = [bytearray(100), bytearray(300_000), bytearray(1)]
        got = os.preadv(fd, buffers, at)
        print(got, *map(digest, buffers))
    buffers = [bytearray(1 << 20), bytearray(7)]
    print(os.readv(fd, buffers), *map(digest, buffers), os.lseek(fd, 0, os.SEEK_CUR))
    for call in ("readv", "read"):
        got = getattr(LIBC, call)(fd, ctypes.c_void_p(8), 2)
        print(call, got, os.strerror(ctypes.get_errno()))
    print(os.lseek(fd, 0, os.SEEK_CUR))


def symbols(path: str) -> None:
    """By each function of the family: buffer or pieces, then an offset or none."""
    fd = os.open(path, os.O_RDONLY)
    room, number, offset = 300_000, ctypes.c_size_t, ctypes.c_long
    buffer = ctypes.create_string_buffer(room)
    piece = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), room)
    at, plain, pieces = offset(3 << 20), (buffer, number(room)), (piece, 1)
    calls = {
        "read": plain,
        "__read_chk": (*plain, number(room)),
        **dict.fromkeys(("pread", "pread64", "__pread64"), (*plain, at)),
        **dict.fromkeys(("__pread_chk", "__pread64_chk"), (*plain, at, number(room))),
        "readv": pieces,
        **dict.fromkeys(("preadv", "preadv64"), (*pieces, at)),
        **dict.fromkeys(("preadv2", "preadv64v2"), (*pieces, at, 0)),
    }
    for name, words in calls.items():
        call = getattr(LIBC, name)
        call.restype = ctypes.c_ssize_t
        buffer.raw = bytes(room)
        print(name, call(fd, *words), digest(buffer.raw), os.lseek(fd, 0, os.SEEK_CUR))


def shared(path: str) -> None:
    """By copies of a descriptor in two processes, which share an offset."""
    fd = os.open(path, os.O_RDONLY)
    other = os.dup(fd)
    for _ in range(4):
        print(digest(os.read(fd, 300_001)), digest(os.read(other, 99_999)))
    child = os.fork()
    if not child:
        print(digest(os.read(fd, 1_000_000)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(digest(os.read(other, 1_000_000)), os.lseek(fd, 0, os.SEEK_CUR))


def reused(path: str) -> None:
    """The number of a descriptor leads elsewhere, by calls that nobody sees."""
    close, dup2 = 3, 33  # of x86-64
    fd = os.open(path, os.O_RDONLY)
    print(digest(os.read(fd, 100_000)))
    source, sink = os.pipe()
    os.write(sink, b"from the pipe")
    LIBC.syscall(close, fd)
    LIBC.syscall(dup2, source, fd)
    print(os.read(fd, 100_000))


def written(path: str) -> None:
    """By the program itself, while it has the file open."""
    fd = os.open(path, os.O_RDONLY)
    print(digest(os.pread(fd, 100_000, 0)))
    with open(path, "r+b") as changed:
        changed.write(b"changed")
    print(os.pread(fd, 7, 0), digest(os.pread(fd, 100_000, 9 << 20)))


def halted(path: str) -> None:
    """With a pause, in which the surroundings change."""
    fd = os.open(path, os.O_RDONLY)
    print(digest(os.pread(fd, 1000, 0)), flush=True)
    print("paused", file=sys.stderr, flush=True)
    sys.stdin.readline()
    for at in range(0, os.fstat(fd).st_size, 1 << 20):
        try:
            print(digest(os.pread(fd, 200_000, at)))
        except OSError as error:
            print(error.strerror)


def ways(way: str, path: str, reads: int) -> None:
    if way == "sequence":
        sequence(path)
    elif way in ("sparse", "small"):
        globals()[way](path, reads)
    else:
        globals()[way](path)


def main() -> None:
    way, path, *more = sys.argv[1:]
    reads, epochs = (*map(int, more), *(40, 1)[len(more) :])
    for _ in range(epochs):
        began = time.monotonic()
        ways(way, path, reads)
        print(f"{time.monotonic() - began:.3f} s", file=sys.stderr)


main()
