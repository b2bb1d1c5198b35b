"""The processes of the job on this node: watched until they end, counters kept."""

import asyncio
import os
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.native import COUNTERS, DTYPES, ProcessState, WaitSource

_LIVING = (ProcessState.LAUNCHED, ProcessState.ACTIVE, ProcessState.LAUNCHER)
# How many ended processes are remembered, to recognise a late slot of one of them.
_ENDED_MAX: Final = 4096
# Pidfds use at most 1 / DESCRIPTORS_PARTS of the descriptors; copies need the others.
DESCRIPTORS_PARTS: Final = 2


class Processes:
    """Adds each slot to the totals when its process has ended, and frees it.

    Args:
        on_end: called after a process of the job has ended.
    """

    def __init__(
        self, counters: npt.NDArray[np.uint8], on_end: Callable[[], None]
    ) -> None:
        self._segment = counters[: DTYPES["counters"].itemsize].view(DTYPES["counters"])
        self._slots = self._segment[0]["process"]
        self._totals = np.zeros(len(COUNTERS), np.uint64)
        self._ended: Counter[tuple[str, bool]] = Counter()
        self._pidfds: dict[int, int] = {}
        self._polled: dict[int, tuple[int, int]] = {}
        self._programs: set[int] = set()
        self._started: dict[int, int | None] = {}
        self._active: dict[int, int | None] = {}
        self._on_end = on_end
        self._over = False
        self.programs_seen = 0
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._pidfds_max = limit // DESCRIPTORS_PARTS

    def __repr__(self) -> str:
        return (
            f"<Processes {self.living} living, {len(self._programs)} of them "
            f"started by a launcher, {self._ended.total()} ended>"
        )

    @property
    def living(self) -> int:
        """How many processes of the job are running."""
        return len(self._pidfds) + len(self._polled)

    @property
    def programs(self) -> int:
        """How many running processes a launcher has become or started."""
        return len(self._programs)

    def scan(self) -> None:
        """Watch processes that have taken a slot since the last scan."""
        states = self._slots["state"][: self._used()]
        taken = np.flatnonzero(np.isin(states, _LIVING))
        for number in taken.tolist():
            known = number in self._pidfds or number in self._polled
            if number and not known and not (self._over and self._waits(number)):
                self._watch(number)
        for number, (pid, start) in list(self._polled.items()):
            if number in self._polled and start_time(pid) != start:
                del self._polled[number]
                self._remove(number)

    def note_end_of_job(self) -> None:
        """Stop accepting launchers; new ones wait for the next agent."""
        self._over = True

    def totals(self) -> dict[str, int]:
        """Return every counter, summed over running and ended processes."""
        living = self._slots["counters"][: self._used()].sum(axis=0, dtype=np.uint64)
        sums = (self._totals + living).tolist()
        return {spec.name: sums[n] for n, spec in enumerate(COUNTERS)}

    def seen(self) -> dict[tuple[str, bool], int]:
        """Count all processes so far by (program, whether the Shim was active)."""
        all_seen = Counter(self._ended)
        living: dict[int, tuple[str, bool]] = {}
        for number in (*self._pidfds, *self._polled):
            name, active = _identify(self._slots[number])
            pid = int(self._slots[number]["pid"])
            if active or pid not in living:
                living[pid] = name, active
        all_seen.update(living.values())
        return dict(all_seen)

    def waits(self) -> tuple[list[int], int]:
        """Return the histogram of waits for any source, and their sum in ns."""
        head = self._segment[0]
        buckets = head["wait_buckets"].reshape(len(WaitSource), -1)
        return buckets.sum(axis=0).tolist(), int(head["wait_total_ns"].sum())

    def waits_by_source(self) -> dict[str, tuple[list[int], int]]:
        """Return the histogram of cold-open waits and their sum in ns, by source."""
        head = self._segment[0]
        buckets = head["wait_buckets"].reshape(len(WaitSource), -1)
        return {
            source.name.lower(): (
                buckets[source].tolist(),
                int(head["wait_total_ns"][source]),
            )
            for source in WaitSource
        }

    def answered(self) -> int:
        """Return how many cold opens have been answered."""
        return int(self._segment[0]["wait_buckets"].sum())

    def exit_status(self) -> int | None:
        """Return the exit code of an ended program, preferably of one that failed.

        It is 128 plus the number of the signal that ended the program, and unknown for
        programs that have replaced their launcher.
        """
        status = int(self._segment[0]["ended_status"])
        return status - 1 if status else None

    def active_pids(self) -> list[int]:
        """Return the processes in which the Shim is active; for any thread."""
        slots = self._slots[: self._used()]
        active = slots["state"] == ProcessState.ACTIVE
        pids: list[int] = np.unique(slots["pid"][active]).tolist()
        return pids

    def inactive_pids(self) -> list[int]:
        """Return the living processes that were started, but have no active Shim.

        Their parent has taken a slot for them; an active Shim takes a slot, too.
        """
        slots = self._slots[: self._used()]
        launched = slots["pid"][slots["state"] == ProcessState.LAUNCHED]
        pids: list[int] = np.setdiff1d(launched, self.active_pids()).tolist()
        return pids

    def pids(self) -> list[int]:
        """Return all processes that have a slot."""
        found: list[int] = np.unique(self._slots["pid"][: self._used()]).tolist()
        return found

    def elsewhere(self) -> list[tuple[int, int, bytes]]:
        """Return (dev, ino, path) of Files that were opened by unknown paths."""
        records = self._segment[0]["elsewhere"]
        return [
            (int(one["dev"]), int(one["ino"]), bytes(one["path"])[: int(one["bytes"])])
            for one in records[records["bytes"] > 0]
        ]

    def unslotted(self) -> int:
        """Return the number of processes that got no slot."""
        return int(self._segment[0]["slots_full"])

    def close(self) -> None:
        """Stop watching."""
        loop = asyncio.get_running_loop()
        for pidfd in self._pidfds.values():
            loop.remove_reader(pidfd)
            os.close(pidfd)
        self._pidfds.clear()

    def _used(self) -> int:
        return int(min(self._segment[0]["slots_used_max"], len(self._slots)))

    def _waits(self, number: int) -> bool:
        return bool(self._slots[number]["state"] == ProcessState.LAUNCHER)

    def _watch(self, number: int) -> None:
        slot = self._slots[number]
        if slot["state"] not in _LIVING:
            return  # on_end() of another process has caused a nested scan
        # Only a launcher writes the start time into the slot.
        program = slot["state"] == ProcessState.LAUNCHER or slot["starttime"] != 0
        self.programs_seen += bool(program)
        pid, written = int(slot["pid"]), int(slot["starttime"])
        start = start_time(pid)
        self._started[number] = written or start or _start_time_if_ended(pid)
        if start is None or (written and written != start):
            self._fold(number)
            return
        if program:
            self._programs.add(number)
        pidfd = self._pidfd(pid)
        if pidfd is None:
            self._polled[number] = (pid, start)
            return
        self._pidfds[number] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._end, number, pidfd)

    def _pidfd(self, pid: int) -> int | None:
        if len(self._pidfds) >= self._pidfds_max:
            return None
        try:
            return os.pidfd_open(pid)
        except (OSError, AttributeError):  # an old kernel, or too many descriptors
            return None

    def _end(self, number: int, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        del self._pidfds[number]
        self._remove(number)

    def _remove(self, number: int) -> None:
        self._programs.discard(number)
        self._fold(number)

    def _fold(self, number: int) -> None:
        """Add the counters of an ended process, and free its slot as the last step."""
        slot = self._slots[number]
        name, active = _identify(slot)
        if self._is_first(int(slot["pid"]), self._started.pop(number), active):
            self._ended[name, active] += 1
        self._totals += slot["counters"]
        slot["counters"] = 0
        slot["starttime"] = 0
        slot["pid"] = 0
        self._slots["state"][number] = ProcessState.FREE
        self._on_end()

    def _is_first(self, pid: int, start: int | None, active: bool) -> bool:
        """Return whether this slot is the first of its process: only that is counted.

        posix_spawn() returns the pid of a child after the child has run: a short child
        may have taken a slot of its own, and ended, before its parent takes one for it.
        """
        known = pid in self._active and _may_equal(self._active[pid], start)
        if not active:
            return not known and not self._is_active(pid)
        self._active.pop(pid, None)
        self._active[pid] = start
        if len(self._active) > _ENDED_MAX:
            del self._active[next(iter(self._active))]
        return not known

    def _is_active(self, pid: int) -> bool:
        """Return whether another slot shows that the Shim is active in this process."""
        slots = self._slots[: self._used()]
        active = slots["state"] == ProcessState.ACTIVE
        return bool(np.any(active & (slots["pid"] == pid)))


# psutil is not used here: its create_time() is in seconds of the wall clock, which may
# be set, but slots have the ticks since boot that the launcher writes. It also takes
# 2.5 ms for 64 processes, in the loop that answers cold opens; this takes 0.7 ms.


def start_time(pid: int) -> int | None:
    """Return when a process was started, in ticks since boot; None if it has ended."""
    fields = _stat(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def _start_time_if_ended(pid: int) -> int | None:
    """Return the start time, also of an ended process that was not waited for."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _may_equal(one: int | None, other: int | None) -> bool:
    """Return whether two start times may be of one process; None is unknown."""
    return one is None or other is None or one == other


def _identify(slot: Any) -> tuple[str, bool]:
    # After the NUL are bytes of a longer name that was in the slot before.
    name = bytes(slot["name"]).split(b"\0")[0].decode(errors="backslashreplace")
    return name, bool(slot["state"] == ProcessState.ACTIVE)
