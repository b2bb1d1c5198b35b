"""Buffers: anonymous memory that the reader fills and the ranks of a node map.

They are memfds, so that nothing is left when processes die. Their pages are allocated
at the start, and their size is sealed: no rank gets a bus error.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass
from typing import Final

_SEALS: Final = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_STEP_MIN: Final = 64 << 10
_STEPS: Final = 16
"""Sizes are rounded up to a sixteenth of a power of two to make buffers reusable."""


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Memory of the reader.

    Attributes:
        number: unique number among the buffers of a reader.
        capacity: capacity in bytes.
    """

    number: int
    fd: int
    capacity: int
    map: mmap.mmap

    def view(self) -> memoryview:
        """Return all bytes."""
        return memoryview(self.map)

    def close(self) -> None:
        """Free the memory, except pages that a rank has mapped."""
        os.close(self.fd)
        self.map.close()


class BufferPool:
    """Makes buffers within a limit, and reuses them.

    Args:
        limit: maximum bytes of all buffers.

    Attributes:
        beside: bytes of other memory within the limit.
        made: number of buffers made so far.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.beside = 0
        self.peak = 0
        self._free: list[Buffer] = []
        self.made = 0
        self._gone: list[int] = []

    def __repr__(self) -> str:
        return f"<BufferPool of {self.bytes} of {self.limit} bytes>"

    def take(self, size: int) -> Buffer | None:
        """Return a buffer of at least a size, or None if none is free.

        Raises:
            OSError: the node is out of memory.
        """
        capacity = rounded(size)
        fitting = [one for one in self._free if capacity <= one.capacity]
        best = min(fitting, key=lambda one: one.capacity, default=None)
        if best is not None and best.capacity <= 2 * capacity:
            self._free.remove(best)
            return best
        while not self._fits(capacity) and self._free:
            self._drop(self._free.pop(0))
        if not self._fits(capacity):
            return None
        return self._make(capacity)

    def give(self, buffer: Buffer) -> None:
        """Take back a buffer that is no longer used."""
        self._free.append(buffer)

    def gone(self) -> list[int]:
        """Return the numbers of the buffers that were dropped since the last call."""
        found, self._gone = self._gone, []
        return found

    def _fits(self, capacity: int) -> bool:
        return self.bytes + self.beside + capacity <= self.limit

    def _drop(self, buffer: Buffer) -> None:
        self.bytes -= buffer.capacity
        self._gone.append(buffer.number)
        buffer.close()

    def adopt(self, fd: int) -> Buffer | None:
        """Return a buffer with memory that a rank made; None: beyond the limit.

        The buffer then owns the descriptor.

        Raises:
            OSError: it cannot be mapped.
        """
        capacity = os.fstat(fd).st_size
        if not self._fits(capacity):
            return None
        return self._counted(fd, capacity)

    def _make(self, capacity: int) -> Buffer:
        fd = new_memory(capacity)
        try:
            return self._counted(fd, capacity)
        except BaseException:
            os.close(fd)
            raise

    def _counted(self, fd: int, capacity: int) -> Buffer:
        mapped = mmap.mmap(fd, capacity)
        self.made += 1
        self.bytes += capacity
        self.peak = max(self.peak, self.bytes + self.beside)
        return Buffer(self.made, fd, capacity, mapped)


def new_memory(capacity: int) -> int:
    """Return a descriptor of allocated memory of a fixed size.

    Raises:
        OSError: the node is out of memory.
    """
    fd = os.memfd_create("monarch-loader", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, capacity)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def rounded(size: int) -> int:
    """Return the capacity of a buffer for some bytes."""
    step = max(_STEP_MIN, (1 << max(1, size).bit_length()) // (2 * _STEPS))
    return max(step, -(-size // step) * step)


class MappedBuffers:
    """The buffers of a reader as mapped by a rank: read-only."""

    def __init__(self) -> None:
        self._maps: dict[int, memoryview] = {}

    def __repr__(self) -> str:
        return f"<MappedBuffers, {len(self._maps)}>"

    def add(self, number: int, fd: int, capacity: int) -> None:
        """Map a buffer and close its descriptor.

        Raises:
            OSError: it cannot be mapped.
        """
        try:
            mapped = mmap.mmap(fd, capacity, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._maps[number] = memoryview(mapped)

    def view(self, number: int) -> memoryview:
        """Return the bytes of a buffer."""
        return self._maps[number]

    def remove(self, number: int) -> None:
        """Remove a buffer; its memory is freed when no view of it is left."""
        self._maps.pop(number, None)

    def clear(self) -> None:
        """Remove all buffers."""
        self._maps.clear()
