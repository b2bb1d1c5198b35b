"""The bounded Pool for Files that pass through a node which does not keep them."""

import fcntl
import logging
import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monarch.metrics import AgentCounters
from monarch.native import Reason
from monarch.stager.capacity import Storage, footprint
from monarch.stager.removal import Removal
from monarch.stager.replicas import Event, Replicas

OPEN_S: Final = 0.05
"""How long a Replica stays at least: programs that waited have opened it by then."""
PROOF_S: Final = 0.01
"""From the end of a name to the proof: an open that found the name is over by then."""
HELD_S: Final = 0.1
"""How often Replicas are looked at that a program had open."""
BUSY_S: Final = 0.1
"""How long a File waits for room, and how long it is then not asked for again."""
AHEAD_PARTS: Final = 8
"""One part of so many stays free, so that Files rarely wait for room."""
STEPS_MAX: Final = 64
"""Evictions, and proofs, in one call."""
NAMELESS_MAX: Final = 1024
"""Replicas without a name whose bytes are still in use: each holds a descriptor."""
QUEUE_MAX: Final = 1024

log = logging.getLogger("monarch.stager")


@dataclass(slots=True)
class _Nameless:
    fd: int
    ino: int
    room_bytes: int
    look_at_s: float


class Pool:
    """First in, first out; bytes are free again when no program can have them open.

    The room of a Replica whose name is gone counts until the kernel grants a write
    lease on it: no program has it open or mapped then, and none can find it again.

    Attributes:
        number: its number in the Catalog, behind those of all Tiers.
    """

    def __init__(
        self,
        replicas: Replicas,
        storage: Storage,
        removal: Removal,
        counters: AgentCounters,
        clock: Callable[[], float],
    ) -> None:
        self.number = storage.pool_number
        self._replicas = replicas
        self._ledger = storage.ledger
        self._account = storage.ledger.pool
        self._removal = removal
        self._counters = counters
        self._clock = clock
        self._ready: dict[int, float] = {}
        self._nameless: deque[_Nameless] = deque()
        self._held: deque[_Nameless] = deque()
        self._leaving_bytes = 0
        self._queue: dict[int, float] = {}
        self._busy: deque[tuple[int, float]] = deque()
        for place in storage.places[self.number :]:
            if self._account.capacity_bytes and not grants_leases(place.directory):
                log.warning("no leases, so no pool path=%s", place.directory)
                self._ledger.shrink(self.number)

    def __repr__(self) -> str:
        return (
            f"<Pool {self._account.used_bytes}+{self._account.reserved_bytes}/"
            f"{self._account.capacity_bytes}, {len(self._ready)} ready, "
            f"{len(self._nameless) + len(self._held)} nameless, "
            f"{len(self._queue)} waiting>"
        )

    # -- room -------------------------------------------------------------------

    def fits(self, file: int) -> bool:
        """Return whether a File has room in the Pool when that is empty."""
        account = self._account
        return account.in_service and self._room_of(file) <= account.capacity_bytes

    def reserve(self, file: int) -> bool:
        """Reserve room for a File, if it is free now."""
        return self._ledger.reserve_in(self.number, self._replicas.size_of(file))

    def reserve_idle(self, file: int) -> bool:
        """Reserve room for which nothing has to leave: no program waits for it."""
        left = self._account.free_bytes - self._room_of(file)
        return left >= self._ahead_bytes and self.reserve(file)

    def is_queued(self, file: int) -> bool:
        """Return whether a File waits for room."""
        return file in self._queue

    def queue(self, file: int) -> None:
        """Let a File wait for room; programs that wait for it wait on."""
        if len(self._queue) < QUEUE_MAX:
            self._queue[file] = self._clock()
        else:
            self._refuse(file)

    def published(self, file: int) -> None:
        """A File has been published into the Pool."""
        self._ready[file] = self._clock()
        self._counters.transit_files += 1
        self._counters.transit_bytes += self._replicas.size_of(file)

    def dropped(self, file: int) -> None:
        """The Replica of a File was lost."""
        self._ready.pop(file, None)

    # -- time -------------------------------------------------------------------

    def make_room(self) -> list[int]:
        """Make room ahead of need; return queued Files that may be ordered now."""
        if self._is_empty:
            return []
        now_s = self._clock()
        self._prove(self._nameless, now_s)
        self._prove(self._held, now_s)
        self._evict_ahead(now_s)
        self._end_busy(now_s)
        return self._admit(now_s)

    @property
    def wake_s(self) -> float | None:
        """After how long there is something to do again; None: nothing."""
        if self._is_empty:
            return None
        if self._queue or self._nameless:
            return PROOF_S
        if self._held or self._busy:
            return min(HELD_S, BUSY_S)
        if self._wanted_bytes() > 0 and self._ready:
            return OPEN_S
        return None

    def close(self) -> None:
        """Close all descriptors, and refuse the Files that wait for room."""
        self._close_all()
        for file in self._queue:
            self._replicas.change(file, Event.REFUSED, reason=Reason.STOPPING)
        self._queue.clear()

    def clear(self) -> None:
        """Forget all Replicas: the medium of the Pool has failed."""
        self._ready.clear()
        self._close_all()

    # -- steps ------------------------------------------------------------------

    @property
    def _is_empty(self) -> bool:
        waiting = self._queue or self._busy
        return not (self._ready or waiting or self._nameless or self._held)

    @property
    def _ahead_bytes(self) -> int:
        return self._account.capacity_bytes // AHEAD_PARTS

    def _wanted_bytes(self) -> int:
        """Return how many bytes more have to leave, besides those that are leaving."""
        want = self._ahead_bytes
        if self._queue:
            want = max(want, self._room_of(next(iter(self._queue))))
        return want - self._account.free_bytes - self._leaving_bytes

    def _evict_ahead(self, now_s: float) -> None:
        for _ in range(STEPS_MAX):
            nameless = len(self._nameless) + len(self._held)
            if self._wanted_bytes() <= 0 or nameless >= NAMELESS_MAX:
                return
            oldest = next(iter(self._ready.items()), None)
            if oldest is None or now_s - oldest[1] < OPEN_S:
                return
            del self._ready[oldest[0]]
            self._evict(oldest[0], now_s)

    def _evict(self, file: int, now_s: float) -> None:
        if self._replicas.ready_tier(file) != self.number:
            return  # it was lost, and may be in another Tier by now
        path = self._removal.path(file, self.number)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            self._removal.drop_lost(file, self.number)
            return
        found, room = os.fstat(fd), self._room_of(file)
        # Not EVICTING, which sends programs to the Origin: one that asks just now may
        # wait, because the File can come in again at once.
        self._replicas.change(file, Event.REMOVED)
        self._removal.unlink(file, self.number)
        self._nameless.append(_Nameless(fd, found.st_ino, room, now_s + PROOF_S))
        self._leaving_bytes += room

    def _prove(self, nameless: deque[_Nameless], now_s: float) -> None:
        """Free the bytes of those that no program has open; try the others later."""
        for _ in range(min(STEPS_MAX, len(nameless))):
            if nameless[0].look_at_s > now_s:
                return
            one = nameless.popleft()
            if nameless is self._nameless:
                self._leaving_bytes -= one.room_bytes
            if is_unused(one.fd):
                # Before the inode can be another file's: close() gives it back.
                self._removal.forget_inode(self.number, one.ino)
                os.close(one.fd)
                self._account.used_bytes -= one.room_bytes
            else:
                one.look_at_s = now_s + HELD_S
                self._held.append(one)

    def _admit(self, now_s: float) -> list[int]:
        """Take Files out of the queue for which there is room, in their order."""
        admitted: list[int] = []
        free = self._account.free_bytes
        while self._queue:
            file, since_s = next(iter(self._queue.items()))
            free -= self._room_of(file)
            if free >= 0:
                admitted.append(file)
            elif now_s - since_s >= BUSY_S:
                self._refuse(file)
                free += self._room_of(file)
            else:
                break
            del self._queue[file]
        return admitted

    def _refuse(self, file: int) -> None:
        """Send programs to the Origin, which answers sooner than the Pool."""
        self._counters.transit_full += 1
        self._replicas.change(file, Event.REFUSED, reason=Reason.BUSY)
        self._busy.append((file, self._clock() + BUSY_S))

    def _end_busy(self, now_s: float) -> None:
        while self._busy and self._busy[0][1] <= now_s:
            file, _ = self._busy.popleft()
            self._replicas.retry(file, Reason.BUSY)

    def _close_all(self) -> None:
        for one in (*self._nameless, *self._held):
            os.close(one.fd)
        self._nameless.clear()
        self._held.clear()
        self._leaving_bytes = 0

    def _room_of(self, file: int) -> int:
        return footprint(self._replicas.size_of(file))


def is_unused(fd: int) -> bool:
    """Return whether no other descriptor or mapping of a nameless file exists."""
    try:
        # An open of a leased file sends its holder a signal, which kills by default.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def grants_leases(directory: Path) -> bool:
    """Return whether the file system of a directory proves that a file is unused."""
    probe = directory / ".lease"
    flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(probe, flags, 0o400)
    except OSError:
        return False
    try:
        os.unlink(probe)
        return is_unused(fd)
    finally:
        os.close(fd)
