"""Samples the counters of a job, for the time series of its report."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from monarch import report as reports
from monarch.agent.processes import Processes, start_time
from monarch.agent.staging import Staging
from monarch.metrics import WAITED_OPENS

PERIOD_S: Final = 1.0
FIRST_PERIOD_S: Final = 0.1
"""The period in the first PERIOD_S of programs: short jobs have passes, too."""
POINTS_MAX: Final = 512
"""At this number, every second sample is dropped, and the rate is halved."""
STRANGERS_MAX: Final = 256
"""The maximum number of processes without a slot that are distinguished."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The counts of an agent so far.

    Args:
        tally: the counters of the agent.
        tiers: the used bytes of each Tier.
        slowest: File, bytes and nanoseconds of the slowest copies; None: unknown.
    """

    tally: Mapping[str, int]
    tiers: tuple[int, ...]
    slowest: tuple[tuple[int, int, int], ...] | None = ()


@dataclass(slots=True)
class ReadCalls:
    """The bytes that read calls of the job's processes have returned, of any file.

    The kernel adds the reads of a process to its parent when the parent has waited for
    it, so the sum over living processes falls only if a process has no such parent.
    """

    most_bytes: int = 0

    def look(self, pids: Iterable[int]) -> None:
        """Add up the reads of living processes."""
        self.most_bytes = max(self.most_bytes, sum(map(_read_bytes, pids)))


@dataclass(slots=True)
class Strangers:
    """Living processes that programs without the Shim have started: they have no slot.

    A new process may still take one, so only processes that are seen at two looks in a
    row are counted.

    Attributes:
        seen: the path of the program, by process id and time of its start.
    """

    seen: dict[tuple[int, int], str] = field(default_factory=dict)
    _new: set[tuple[int, int]] = field(default_factory=set)

    def look(self, inactive: Iterable[int], tracked: Iterable[int]) -> None:
        """Find the descendants of programs in which the Shim is not active.

        Args:
            inactive: these programs.
            tracked: all processes that have a slot.
        """
        found = _descendants(inactive, set(tracked))
        for key in found:
            if key in self._new or key in self.seen:
                self.seen[key] = _program(key[0])
        self._new = found


class Recorder:
    """Takes samples of the counters of a job.

    Args:
        levels: returns the counts of the agent.
        clock_s: when the agent has started, by a monotonic clock.
    """

    def __init__(
        self, processes: Processes, levels: Callable[[], Levels], clock_s: float
    ) -> None:
        self._processes = processes
        self._levels = levels
        self._clock_s = clock_s
        self._samples: list[Mapping[str, Any]] = []
        self._step = 1
        self._looks = 0
        self._reads = ReadCalls()
        self._strangers = Strangers()
        self._started = asyncio.Event()
        self.startup_s = 0.0
        self.slowest: tuple[tuple[int, int, int], ...] = ()

    def __repr__(self) -> str:
        return f"<Recorder of {len(self._samples)} samples>"

    @property
    def read_calls_bytes(self) -> int:
        """The observed bytes that read calls of programs have returned."""
        return self._reads.most_bytes

    @property
    def untracked(self) -> Mapping[str, int]:
        """The number of processes without a slot, by program."""
        found: dict[str, int] = {}
        for program in self._strangers.seen.values():
            found[program] = found.get(program, 0) + 1
        return found

    def note_start(self) -> None:
        """Note that programs are served from now on."""
        self.startup_s = time.monotonic() - self._clock_s
        self._started.set()

    async def run(self, guarded: Callable[[Callable[[], None]], None]) -> None:
        """Take samples until this is cancelled.

        Args:
            guarded: calls a function whose errors do not end the agent.
        """
        while not self._started.is_set():
            guarded(self.look)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._started.wait(), PERIOD_S)
        for _ in range(round(PERIOD_S / FIRST_PERIOD_S)):
            guarded(self._take)
            await asyncio.sleep(FIRST_PERIOD_S)
        while True:
            guarded(self.look)
            await asyncio.sleep(PERIOD_S)

    def look(self) -> None:
        """Take a sample if one is due; called once a second."""
        self._reads.look(self._processes.active_pids())
        inactive = self._processes.inactive_pids()
        self._strangers.look(inactive, self._processes.pids() if inactive else ())
        if self._looks % self._step == 0:
            self._take()
        self._looks += 1
        if len(self._samples) >= POINTS_MAX:
            del self._samples[1::2]
            self._step *= 2

    def look_last(self) -> None:
        """Take the last sample, while the data plane can still be read."""
        self._reads.look(self._processes.active_pids())
        self._take()

    def moments(self) -> tuple[reports.Moment, ...]:
        """Return all samples, and one of now."""
        samples = (*self._samples, self._now()[0])
        return tuple(reports.Moment(**sample) for sample in samples)

    def _take(self) -> None:
        sample, slowest = self._now()
        self._samples.append(sample)
        self.slowest = self.slowest if slowest is None else slowest

    def _now(self) -> tuple[Mapping[str, Any], tuple[tuple[int, int, int], ...] | None]:
        totals, levels = self._processes.totals(), self._levels()
        hits = (n for name, n in totals.items() if name.startswith("opens_hit_tier"))
        origin_bytes = levels.tally["origin_read_bytes"] + totals["bytes_read_origin"]
        sample = {
            "at_s": time.monotonic() - self._clock_s,
            "ready": sum(hits),
            "waited": sum(totals[name] for name in WAITED_OPENS),
            "origin": totals["opens_origin"] - totals["origin_blocks"],
            "blocks": totals["origin_blocks"],
            "outside": totals["opens_outside"] + totals["opens_write"],
            "staged_bytes": levels.tally["staged_bytes"] + levels.tally["peer_bytes"],
            "origin_bytes": origin_bytes,
            "tiers": levels.tiers,
        }
        return sample, levels.slowest


def levels(tally: Mapping[str, int], staging: Staging | None) -> Levels:
    """Return the counts of an agent; its data plane may be closed already."""
    if staging is None:
        return Levels(tally, ())
    used = [account.used_bytes for account in staging.stager.storage.ledger.accounts]
    is_open = staging.engine.is_open
    return Levels(
        tally,
        tuple(used[: len(staging.stager.storage.tiers)]),
        tuple(staging.engine.slowest()) if is_open else None,
    )


def own_cost() -> tuple[float, int]:
    """Return the processor seconds of this process, and the most memory it had."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss << 10


def _read_bytes(pid: int) -> int:
    """Return the bytes that read calls of a process and its dead children returned."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            name, _, count = file.readline().partition(b":")
    except OSError:
        return 0
    return int(count) if name == b"rchar" else 0


def _descendants(parents: Iterable[int], known: set[int]) -> set[tuple[int, int]]:
    """Return the process ids and start times of unknown descendants."""
    found: set[tuple[int, int]] = set()
    left = [*parents]
    while left and len(found) < STRANGERS_MAX:
        for child in _children(left.pop()):
            start = start_time(child)
            if child not in known and start is not None:
                found.add((child, start))
                left.append(child)
    return found


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def _program(pid: int) -> str:
    """Return the path of a program, or the name of another user's."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
