"""Limits background copies while programs wait for others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from monarch.stager.concurrency import MOST

SLOWER: Final = 1.3
"""Fill yields if programs wait more than this many times as long as without it."""
DEMANDS: Final = 16
"""The number of demand copies that are compared at once."""
LARGE_BYTES: Final = 1 << 20
"""Larger files are compared by their chunks, each at least of this size."""
COMPARED_BYTES: Final = 128 << 20
"""The bytes of large files that are compared at once: parallel file systems read ahead
tens of MiB at a time, so that most chunks arrive at once and some take long."""
REFRESH: Final = 64
"""The number of comparisons after which the time without fill is measured again."""
CALM: Final = 4
"""The number of good comparisons in a row before one more copy runs beside demand."""
GROWTH: Final = 4
"""The factor by which copies increase, until programs wait longer because of them."""
STEADY: Final = 1.2
"""Waits without fill that fall by more between two comparisons have not settled."""
FALLS_MAX: Final = 4
CALM_TURNS: Final = 10
"""The number of turns without a waiting program after which other nodes fill freely."""
PAUSE_FIRST: Final = 4
PAUSE_MAX: Final = 16
"""How often in a row fill rests if even one copy is too many: at first, at most."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The durations of demand copies.

    Args:
        copy_s: the median of their durations; for chunks of large files the mean.
        byte_s: the same of their durations per byte.
    """

    copy_s: float
    byte_s: float

    @classmethod
    def of(cls, copies: Sequence[tuple[int, float]]) -> Self:
        """Return the waits for copies, each passed as its bytes and seconds."""
        if any(size >= LARGE_BYTES for size, _ in copies):
            size_bytes = sum(size for size, _ in copies)
            seconds = sum(seconds for _, seconds in copies)
            return cls(seconds / len(copies), seconds / size_bytes)
        return cls(
            float(np.median([seconds for _, seconds in copies])),
            float(np.median([seconds / max(1, size) for size, seconds in copies])),
        )

    def slowdown_on(self, quiet: Self) -> float:
        """Return a lower bound of their slowdown, even if sizes differ."""
        return min(self.copy_s / quiet.copy_s, self.byte_s / quiet.byte_s)


@dataclass(frozen=True, slots=True)
class Yielding:
    """The limit of background copies while programs wait, and the measured waits.

    It begins without background copies, to measure the duration of demand alone. Then
    they increase each time, until demand takes longer than it may. Then they are
    halved, at last to none, and return one at a time.

    Args:
        beside: how many background copies may run while programs wait.
        quiet: the waits without background copies; None: not measured.
        resume: how many of them run again after `quiet` has been measured.
        compared: the number of comparisons since then.
        calm: how often in a row demand took no longer than it may; None: always, so
            that copies keep increasing.
        pauses: the number of further comparisons for which fill rests.
        rest: twice the number of pauses of the last rest.
        before: the waits of the last comparison without background copies, unless
            they were steady: an origin may continue for a while to read ahead for fill.
        falls: how often in a row they were not steady.
        quiet_rate: the files per second without background copies; None: unknown.
    """

    beside: int = 0
    quiet: Waits | None = None
    resume: int = 1
    compared: int = 0
    calm: int | None = None
    pauses: int = 0
    rest: int = PAUSE_FIRST
    before: Waits | None = None
    falls: int = 0
    quiet_rate: float | None = None

    def after(self, waits: Waits, found: int, rate: float | None = None) -> "Yielding":
        """Return the successor after some waits with `beside` background copies.

        Args:
            found: the number of background copies that the Origin benefits from.
            rate: the files per second, by demand and fill; None: unknown.
        """
        if self.beside == 0:
            return replace(self._rested(waits), quiet_rate=rate)
        assert self.quiet is not None
        if self.compared >= REFRESH:
            return replace(self, beside=0, resume=self.beside)
        compared = replace(self, compared=self.compared + 1)
        if waits.slowdown_on(self.quiet) > SLOWER and not self._pays(rate):
            return compared._yielded(found)
        return compared._calmed(found)

    def _pays(self, rate: float | None) -> bool:
        """Return whether the higher rate of files makes programs wait less in all.

        This is so if copies cost less together than one by one: programs find many
        files ready. One shared link is no such case.
        """
        quiet = self.quiet_rate
        return rate is not None and quiet is not None and rate > SLOWER * quiet

    def _rested(self, waits: Waits) -> "Yielding":
        """Return the successor after a time without fill."""
        before, falls = self.before, self.falls + 1
        if before is None or (falls < FALLS_MAX and before.slowdown_on(waits) > STEADY):
            return replace(self, before=waits, falls=falls)
        quiet = replace(self, quiet=waits, compared=0, before=None, falls=0)
        if self.pauses > 0:
            return replace(quiet, pauses=self.pauses - 1)
        return replace(quiet, beside=self.resume)

    def _yielded(self, found: int) -> "Yielding":
        fewer = replace(self, beside=min(found, self.beside) // 2, calm=0)
        if fewer.beside:
            return fewer
        pauses = min(PAUSE_MAX, self.rest)
        return replace(fewer, resume=1, pauses=pauses, rest=2 * pauses)

    def _calmed(self, found: int) -> "Yielding":
        if self.calm is not None and self.calm + 1 < CALM:
            return replace(self, calm=self.calm + 1)
        more = GROWTH * self.beside if self.calm is None else self.beside + 1
        more = MOST if more >= found else more
        if self.calm is None:
            return replace(self, beside=more)
        return replace(self, beside=more, calm=0, rest=PAUSE_FIRST)


class DemandFirst:
    """Measures demand latency and limits background fill accordingly.

    Attributes:
        permitted: how many background copies may run, because of other nodes.
    """

    def __init__(self) -> None:
        self.permitted = MOST
        self._yielding = Yielding()
        self._copies: list[tuple[int, float]] = []
        self._quiet_turns = 0
        self._began: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def __repr__(self) -> str:
        return f"<DemandFirst {self.beside} beside>"

    @property
    def beside(self) -> int:
        """How many background copies may run while programs wait."""
        return self._yielding.beside

    @property
    def asked(self) -> int:
        """How many background copies each other node may run, because of this one.

        Fewer than `MOST`, if programs wait here and fill has had to yield to them.
        """
        waits = self._quiet_turns < CALM_TURNS and self._yielding.calm is not None
        return self.beside if waits else MOST

    def permit(self, limit: int) -> bool:
        """Set the limit requested by other nodes; return whether it has changed."""
        before, self.permitted = self.permitted, min(limit, MOST)
        return self.permitted != before

    def note(
        self,
        copies: Iterable[tuple[int, int]],
        found: int,
        done: tuple[int, float] | None = None,
    ) -> bool:
        """Evaluate demand copies; return whether `beside` changes.

        Args:
            copies: their bytes and nanoseconds, all begun under the current limits.
            found: the number of background copies that the Origin benefits from.
            done: the number of files read from the Origin, and the time in seconds.
        """
        self._last = done
        new = [(size, ns / 1e9) for size, ns in copies]
        self._quiet_turns = 0 if new else self._quiet_turns + 1
        self._copies += new
        if not self._are_enough():
            return False
        rate, before = self._rate(), self.beside
        waits, self._copies = Waits.of(self._copies), []
        self._began = self._last
        self._yielding = self._yielding.after(waits, found, rate)
        return self.beside != before

    def _rate(self) -> float | None:
        """Return the files per second since the last comparison."""
        if self._began is None or self._last is None or self._has_large():
            return None
        files, seconds = (b - a for a, b in zip(self._began, self._last, strict=True))
        return files / seconds if seconds > 0 else None

    def _has_large(self) -> bool:
        return any(size >= LARGE_BYTES for size, _ in self._copies)

    def _are_enough(self) -> bool:
        """Return whether the copies are enough for a comparison."""
        sizes = [size for size, _ in self._copies]
        enough = not self._has_large() or sum(sizes) >= COMPARED_BYTES
        return len(sizes) >= DEMANDS and enough

    def forget(self) -> None:
        """Drop the collected copies: they were begun under other limits."""
        self._copies = []
        self._began = self._last
