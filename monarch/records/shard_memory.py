"""Memory for shards that were read whole for their index, until they are read again."""

from __future__ import annotations

import os
import threading
from typing import Final


class ShardMemory:
    """Bytes of shards in anonymous memory, which other processes may get.

    Args:
        limit: maximum bytes.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._fds: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ShardMemory, {len(self._fds)} shards, {self.bytes} bytes>"

    @property
    def bytes(self) -> int:
        """Return the reserved bytes."""
        return sum(self._sizes.values())

    def reserve(self, path: str, size: int) -> int | None:
        """Return a descriptor of memory for a shard; None: it does not fit.

        Raises:
            OSError: the process has too many open files.
        """
        with self._lock:
            if self.bytes + size > self._limit or path in self._sizes:
                return None
            self._fds[path] = os.memfd_create("monarch-shard", os.MFD_CLOEXEC)
            self._sizes[path] = size
            return self._fds[path]

    def free(self, path: str) -> None:
        """Free the memory of a shard."""
        with self._lock:
            self._sizes.pop(path, None)
            fd = self._fds.pop(path, None)
        if fd is not None:
            os.close(fd)

    def bound(self, limit: int) -> None:
        """Free shards until the others fit a limit in bytes."""
        while self.bytes > limit:
            self.free(next(reversed(self._fds)))

    def shards(self) -> list[tuple[str, int]]:
        """Return the path and the descriptor of each shard."""
        return list(self._fds.items())

    def close(self) -> None:
        """Free the memory of all shards, unless another process has it."""
        self.bound(0)


NO_SHARDS: Final = ShardMemory()
