"""The current epoch of the worker processes of one rank, agreed in shared memory.

A DataLoader does not notify its workers when an epoch begins: each just iterates, again
in the same process or in a new one. They count their iterations here, and the first
worker to begin an iteration sets its epoch: the announced one, or the next.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import Any, Final, NamedTuple

import numpy as np

from monarch.errors import UsageError

WORKERS_MAX: Final = 1024
_REMEMBERED: Final = 16
"""Iterations whose epochs are kept for late workers."""
_SEED, _COUNT, _LATEST, _TOLD, _USED, _LAST, _EPOCH, _PLACE = range(8)
_RING: Final = 8
_WORKERS: Final = _RING + 2 * _REMEMBERED
_FIELDS: Final = _WORKERS + 2 * WORKERS_MAX


class Share(NamedTuple):
    """The batches of a rank that a worker returns: `number`, `number + workers`, ..."""

    number: int
    workers: int


class Epochs:
    """The epochs of the iterations, in memory shared with processes that
    multiprocessing starts; other copies are independent."""

    def __init__(self, content: bytes = b"", fd: int = -1) -> None:
        self._fd = os.memfd_create("monarch-epochs") if fd < 0 else fd
        os.set_inheritable(self._fd, False)
        os.ftruncate(self._fd, 8 * _FIELDS)
        self._map = mmap.mmap(self._fd, 8 * _FIELDS)
        self._map[: len(content)] = content
        self._table = np.frombuffer(self._map, np.int64)
        if fd < 0 and not content:
            self._table[_LAST] = -1

    def __repr__(self) -> str:
        return f"<Epochs, {self._table[_LATEST]} begun, last {self._table[_LAST]}>"

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process shares this memory, or else copies it."""
        if context.get_spawning_popen() is None:
            return Epochs, (self._map[:],)
        return _shared, (reduction.DupFd(self._fd),)

    @property
    def have_begun(self) -> bool:
        """Return whether a worker has begun the last announced epoch."""
        return bool(self._table[_LATEST]) and not self._is_pending

    def tell(self, epoch: int, place: int = 0) -> None:
        """Announce the epoch of the next iteration, and the place of its start.

        An announced epoch that has not begun keeps its place.
        """
        with self._locked():
            if self._is_pending and self._table[_EPOCH] == epoch and not place:
                return
            self._table[_EPOCH], self._table[_PLACE] = epoch, place
            self._table[_TOLD] += 1

    def begin(
        self, seed: int, share: Share, resumed: int | None = None
    ) -> tuple[int, int]:
        """Return the epoch of a worker's next iteration, and the place of its start.

        Args:
            seed: differs for new workers.
            resumed: the epoch in a checkpoint of this worker, if any.

        Raises:
            UsageError: there are too many workers.
        """
        if share.workers > WORKERS_MAX:
            raise UsageError(f"num_workers={share.workers} is more than {WORKERS_MAX}")
        with self._locked():
            number = self._count(seed, share)
            at = _RING + 2 * (number % _REMEMBERED)
            if number > self._table[_LATEST]:
                self._table[_LATEST] = number
                self._table[at : at + 2] = self._next()
            if resumed is not None:
                self._table[at : at + 2] = resumed, 0
            self._table[_LAST] = self._table[at]
            return int(self._table[at]), int(self._table[at + 1])

    @property
    def _is_pending(self) -> bool:
        return bool(self._table[_TOLD] > self._table[_USED])

    def _count(self, seed: int, share: Share) -> int:
        """Return the number of a worker's iteration; new workers share one."""
        table = self._table
        counts, pids = table[_WORKERS::2], table[_WORKERS + 1 :: 2]
        is_other = pids[share.number] not in (0, os.getpid())
        if is_other or (table[_SEED], table[_COUNT]) != (seed, share.workers):
            table[_SEED], table[_COUNT] = seed, share.workers
            counts[:], pids[:] = table[_LATEST], 0
        counts[share.number] += 1
        pids[share.number] = os.getpid()
        return int(counts[share.number])

    def _next(self) -> tuple[int, int]:
        if not self._is_pending:
            return int(self._table[_LAST]) + 1, 0
        self._table[_USED] = self._table[_TOLD]
        return int(self._table[_EPOCH]), int(self._table[_PLACE])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)


def _shared(sent: Any) -> Epochs:
    return Epochs(fd=sent.detach())
