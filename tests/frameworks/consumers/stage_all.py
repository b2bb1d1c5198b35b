"""Opens every file of a tree again and again until none comes from the origin."""

import os
import sys
import time

PATIENCE_S = 60


def pending(root: str) -> list[str]:
    """The files below `root` whose descriptors still name the origin's own file."""
    origin = os.path.realpath(root) + os.sep
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            descriptor = os.open(path, os.O_RDONLY)
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(origin):
                found.append(path)
            os.close(descriptor)
    return found


def main(roots: list[str]) -> int:
    """Gives 0 when all files are staged, 1 when that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while left := [path for root in roots for path in pending(root)]:
        if time.monotonic() > deadline:
            print(f"{len(left)} files never staged, such as {left[0]}", file=sys.stderr)
            return 1
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
