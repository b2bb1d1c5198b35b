"""Opens every file of a tree again and again until none comes from the origin.

Packed Tiers make whole files of large ones for streams alone: those are opened as one.
"""

import ctypes
import os
import sys
import time

PATIENCE_S = 60
PACKS = "MONARCH_STAGING_PYTHON" in os.environ

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fclose.argtypes = [ctypes.c_void_p]


def open_stream(path: str) -> None:
    """Waits until the file is whole."""
    stream = libc.fopen(os.fsencode(path), b"rb")
    if stream:
        libc.fclose(stream)


def pending(root: str) -> tuple[int, list[str]]:
    """How many files are below `root`, and which still come from the origin."""
    origin = os.path.realpath(root) + os.sep
    found, opens = [], 0
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            descriptor = os.open(path, os.O_RDONLY)
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(origin):
                found.append(path)
            os.close(descriptor)
            opens += 1
            if PACKS and found[-1:] == [path]:
                open_stream(path)
                opens += 1
    return opens, found


def main(roots: list[str]) -> int:
    """Returns 0 when all files are staged, 1 when that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    opens = 0
    while True:
        passes = [pending(root) for root in roots]
        opens += sum(count for count, _ in passes)
        left = [path for _, paths in passes for path in paths]
        if not left:
            # Lets tests tell these opens from those of a later program.
            print("staged", opens, flush=True)
            return 0
        if time.monotonic() > deadline:
            print(f"{len(left)} files never staged, such as {left[0]}", file=sys.stderr)
            return 1
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
