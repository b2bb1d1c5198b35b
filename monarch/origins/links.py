"""Where a symbolic link leads, as the kernel resolves it."""

from __future__ import annotations

import errno
import os

from monarch.catalog.unmanaged import Unmanaged

_REASONS = {
    errno.ENOENT: Unmanaged.LINK_DANGLING,
    errno.ENOTDIR: Unmanaged.LINK_DANGLING,
    errno.ELOOP: Unmanaged.LINK_LOOP,
}


def resolve_link(fd: int, name: bytes, root: bytes) -> bytes | Unmanaged:
    """Return the path below the root that a link ends at, or why there is none.

    One O_PATH open lets the kernel walk all links at once, without opening the target.
    """
    try:
        goal = os.open(name, os.O_PATH, dir_fd=fd)
    except OSError as error:
        return _REASONS.get(error.errno or 0, Unmanaged.UNREADABLE)
    try:
        path = os.readlink(f"/proc/self/fd/{goal}".encode())
    finally:
        os.close(goal)
    if path == root:
        return b""
    if not path.startswith(root + b"/"):
        return Unmanaged.LINK_OUTSIDE
    return path[len(root) + 1 :]
