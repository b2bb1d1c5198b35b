"""Memory for shards that were read whole for their index, until they are read again."""

from __future__ import annotations

import os
import threading
from typing import Final

SHARDS_MAX: Final = 64
"""Shards in memory on a node: each takes descriptors of its processes."""


class Shard:
    """The memory of one shard; it is freed when no thread holds this object.

    Args:
        size: size of the shard in bytes, all of which are allocated.

    Raises:
        OSError: there is no memory, or no descriptor.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = os.memfd_create("monarch-shard", os.MFD_CLOEXEC)
        os.posix_fallocate(self.fd, 0, size)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def __repr__(self) -> str:
        return f"<Shard of {self.size} bytes>"

    def write(self, content: bytes, offset: int) -> None:
        """Write bytes of the shard at their place.

        Raises:
            OSError: not all could be written.
        """
        written = os.pwrite(self.fd, content, offset)
        if written != len(content):
            raise OSError(f"{written} of {len(content)} bytes were written")


class ShardMemory:
    """Bytes of shards in anonymous memory, which other processes may get.

    Args:
        limit: maximum bytes of all processes of the node that use the shards.
        processes: number of these.
    """

    def __init__(self, limit: int = 0, processes: int = 1) -> None:
        self._limit = limit // processes
        self._most = max(1, SHARDS_MAX // processes)
        self._lock = threading.Lock()
        self._shards: dict[str, Shard] = {}

    def __repr__(self) -> str:
        return f"<ShardMemory, {len(self._shards)} shards, {self.bytes} bytes>"

    @property
    def bytes(self) -> int:
        """Return the bytes of all shards."""
        return sum(shard.size for shard in self._shards.values())

    def reserve(self, path: str, size: int) -> Shard | None:
        """Return memory for a shard; None: it does not fit."""
        with self._lock:
            is_full = len(self._shards) >= self._most or path in self._shards
            if is_full or not 0 < size <= self._limit - self.bytes:
                return None
            try:
                self._shards[path] = Shard(size)
            except OSError:
                return None
            return self._shards[path]

    def free(self, path: str) -> None:
        """Free the memory of a shard."""
        with self._lock:
            self._shards.pop(path, None)

    def bound(self, limit: int) -> None:
        """Free shards until the others fit a limit in bytes."""
        while self.bytes > limit:
            self.free(next(reversed(self._shards)))

    def shards(self) -> list[tuple[str, int]]:
        """Return the path and the descriptor of each shard."""
        return [(path, shard.fd) for path, shard in self._shards.items()]

    def close(self) -> None:
        """Free the memory of all shards, unless another process has it."""
        self.bound(0)


NO_SHARDS: Final = ShardMemory()
