"""The processes of the job on this node: watched by pid, their counters kept."""

import asyncio
import os
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.native import COUNTERS, DTYPES, ProcessState

_LIVING = (ProcessState.LAUNCHED, ProcessState.ACTIVE, ProcessState.LAUNCHER)
# The ended processes that are remembered, to know a late slot of one of them.
_ENDED_MAX: Final = 4096


DESCRIPTORS_PARTS = 2
"""Processes are watched by one part of so many descriptors; copies need the others."""


class Processes:
    """Folds each slot into the totals when its process has died, and frees it.

    Args:
        changed: called after a process of the job has died.
    """

    def __init__(
        self, counters: npt.NDArray[np.uint8], changed: Callable[[], None]
    ) -> None:
        self._segment = counters[: DTYPES["counters"].itemsize].view(DTYPES["counters"])
        self._slots = self._segment[0]["process"]
        self._totals = np.zeros(len(COUNTERS), np.uint64)
        self._ended: Counter[tuple[str, bool]] = Counter()
        self._pidfds: dict[int, int] = {}
        self._polled: dict[int, tuple[int, int]] = {}
        self._launched: set[int] = set()
        self._begun: dict[int, int | None] = {}
        self._spoken: dict[int, int | None] = {}
        self._changed = changed
        self.programs_seen = 0
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._pidfds_max = limit // DESCRIPTORS_PARTS

    def __repr__(self) -> str:
        return (
            f"<Processes {self.living} living, {len(self._launched)} of them "
            f"started by a launcher, {self._ended.total()} ended>"
        )

    @property
    def living(self) -> int:
        """How many processes of the job live."""
        return len(self._pidfds) + len(self._polled)

    @property
    def programs(self) -> int:
        """How many processes live that a launcher has become or started."""
        return len(self._launched)

    def scan(self) -> None:
        """Begin to watch processes that took a slot since the last scan."""
        states = self._slots["state"][: self._used()]
        taken = np.flatnonzero(np.isin(states, _LIVING))
        for number in taken.tolist():
            if number and number not in self._pidfds and number not in self._polled:
                self._watch(number)
        for number, (pid, start) in list(self._polled.items()):
            if number in self._polled and start_time(pid) != start:
                del self._polled[number]
                self._bury(number)

    def totals(self) -> dict[str, int]:
        """Return every counter, summed over the living and the dead."""
        living = self._slots["counters"][: self._used()].sum(axis=0, dtype=np.uint64)
        sums = (self._totals + living).tolist()
        return {spec.name: sums[n] for n, spec in enumerate(COUNTERS)}

    def seen(self) -> dict[tuple[str, bool], int]:
        """Count the processes so far by (program, whether the Shim worked in it)."""
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
        """Return the histogram of cold-open waits and their sum in ns."""
        head = self._segment[0]
        return head["wait_buckets"].tolist(), int(head["wait_total_ns"])

    def unslotted(self) -> int:
        """Return how many processes found no slot."""
        return int(self._segment[0]["slots_full"])

    def close(self) -> None:
        """Watch nobody any more."""
        loop = asyncio.get_running_loop()
        for pidfd in self._pidfds.values():
            loop.remove_reader(pidfd)
            os.close(pidfd)
        self._pidfds.clear()

    def _used(self) -> int:
        return int(min(self._segment[0]["slots_used_max"], len(self._slots)))

    def _watch(self, number: int) -> None:
        slot = self._slots[number]
        if slot["state"] not in _LIVING:
            return  # hearing of another death has led to a scan inside this one
        # Only a launcher notes the start time.
        program = slot["state"] == ProcessState.LAUNCHER or slot["starttime"] != 0
        self.programs_seen += bool(program)
        pid, noted = int(slot["pid"]), int(slot["starttime"])
        start = start_time(pid)
        self._begun[number] = noted or start or _start_of_any(pid)
        if start is None or (noted and noted != start):
            self._fold(number)
            return
        if program:
            self._launched.add(number)
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
        self._bury(number)

    def _bury(self, number: int) -> None:
        self._launched.discard(number)
        self._fold(number)

    def _fold(self, number: int) -> None:
        """Keep the counters of a dead process, and free its slot as the last step."""
        slot = self._slots[number]
        name, active = _identify(slot)
        if self._is_first(int(slot["pid"]), self._begun.pop(number), active):
            self._ended[name, active] += 1
        self._totals += slot["counters"]
        slot["counters"] = 0
        slot["starttime"] = 0
        slot["pid"] = 0
        self._slots["state"][number] = ProcessState.FREE
        self._changed()

    def _is_first(self, pid: int, start: int | None, active: bool) -> bool:
        """Return whether this slot is the one by which its process counts.

        posix_spawn() knows the child's pid only after the child has run: a short one
        has then taken its own slot, and may have ended, before the parent takes one
        for it.
        """
        again = pid in self._spoken and _may_equal(self._spoken[pid], start)
        if not active:
            return not again and not self._speaks(pid)
        self._spoken.pop(pid, None)
        self._spoken[pid] = start
        if len(self._spoken) > _ENDED_MAX:
            del self._spoken[next(iter(self._spoken))]
        return not again

    def _speaks(self, pid: int) -> bool:
        """Return whether the Shim works in this process by what another slot says."""
        slots = self._slots[: self._used()]
        active = slots["state"] == ProcessState.ACTIVE
        return bool(np.any(active & (slots["pid"] == pid)))


def start_time(pid: int) -> int | None:
    """Return when a process was started, in ticks; None if it has ended."""
    fields = _stat(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def _start_of_any(pid: int) -> int | None:
    """Return the same of one that has ended, too, unless it was waited for."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _may_equal(one: int | None, other: int | None) -> bool:
    """Return whether two start times can be of one process; None is unknown."""
    return one is None or other is None or one == other


def _identify(slot: Any) -> tuple[str, bool]:
    # Behind the NUL stands what is left of a longer name that held the slot before.
    name = bytes(slot["name"]).split(b"\0")[0].decode(errors="backslashreplace")
    return name, bool(slot["state"] == ProcessState.ACTIVE)
