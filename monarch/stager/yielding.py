"""How many background copies run beside those that programs wait for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from monarch.stager.concurrency import MOST

SLOWER: Final = 1.3
"""Fill yields while programs wait so many times as long as without it."""
DEMANDS: Final = 16
"""So many copies that programs waited for are compared at once."""
LARGE_BYTES: Final = 1 << 20
"""Of larger files the chunks are compared, each at least of this size."""
COMPARED_BYTES: Final = 128 << 20
"""So much of large files is compared at once: parallel file systems read ahead tens of
MiB at a time, so that most chunks are there at once and some take long."""
REFRESH: Final = 64
"""After so many comparisons the time without fill is measured again."""
CALM: Final = 4
"""So often in a row demand must be served well before one more copy runs beside it."""
GROWTH: Final = 4
"""So many times as many copies run each time, until programs wait longer for them."""
STEADY: Final = 1.2
"""Waits without fill that fall by more from one comparison to the next still settle."""
FALLS_MAX: Final = 4
CALM_TURNS: Final = 10
"""After so many looks without any program that waited, other nodes fill freely."""
PAUSE_FIRST: Final = 4
PAUSE_MAX: Final = 16
"""How often in a row fill rests where even one copy is too many: at first, at most."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long copies took that programs waited for.

    Args:
        copy_s: the median of their durations; of chunks of large files the mean.
        byte_s: the same of their durations for each byte.
    """

    copy_s: float
    byte_s: float

    @classmethod
    def of(cls, copies: Sequence[tuple[int, float]]) -> Self:
        """Return the service of copies, each as its bytes and seconds."""
        if any(size >= LARGE_BYTES for size, _ in copies):
            size_bytes = sum(size for size, _ in copies)
            seconds = sum(seconds for _, seconds in copies)
            return cls(seconds / len(copies), seconds / size_bytes)
        return cls(
            float(np.median([seconds for _, seconds in copies])),
            float(np.median([seconds / max(1, size) for size, seconds in copies])),
        )

    def slowdown_on(self, quiet: Self) -> float:
        """Return how many times as long they took at least, if sizes differ, too."""
        return min(self.copy_s / quiet.copy_s, self.byte_s / quiet.byte_s)


@dataclass(frozen=True, slots=True)
class Yielding:
    """How far fill yields to programs, and what is known of their waits.

    A time without any copies beside it is how it is known what demand takes alone: so
    it begins. Then more follow each time, until demand takes longer than it may: they
    are halved, at last to none, and come back by one at a time.

    Args:
        beside: how many background copies may run while programs wait.
        quiet: the waits without any; None: not measured.
        resume: how many run again when that has been measured.
        compared: how often since then.
        calm: how often in a row demand took no longer than it may; None: always, so
            that there are more and more.
        pauses: for how many more comparisons fill rests.
        rest: how many they were the last time, twice.
        before: the waits of the last comparison without any, unless they were steady:
            an origin may go on for a while with what it reads ahead for fill.
        falls: how often in a row they were not.
        quiet_rate: how many files came in a second without any; None: unknown.
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
        """Return what follows from some waits with `beside` others.

        Args:
            found: how many background copies the Origin gains by.
            rate: how many files came in a second, by demand and fill; None: unknown.
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
        """Return whether so many more files come that programs wait less in all.

        So it is where copies cost less together than one by one: programs find many
        files ready, and one link that is shared is no such case.
        """
        quiet = self.quiet_rate
        return rate is not None and quiet is not None and rate > SLOWER * quiet

    def _rested(self, waits: Waits) -> "Yielding":
        """Return what follows from a time without fill."""
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
    """Collects what programs waited for, and says how far fill yields to them.

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

        Fewer than all, if programs wait here for which fill has had to yield.
        """
        waits = self._quiet_turns < CALM_TURNS and self._yielding.calm is not None
        return self.beside if waits else MOST

    def permit(self, limit: int) -> bool:
        """Follow what other nodes ask for; return whether that has changed."""
        before, self.permitted = self.permitted, min(limit, MOST)
        return self.permitted != before

    def note(
        self,
        copies: Iterable[tuple[int, int]],
        found: int,
        done: tuple[int, float] | None = None,
    ) -> bool:
        """Look at copies that programs waited for; return whether `beside` changes.

        Args:
            copies: their bytes and nanoseconds, all begun under the limits of now.
            found: how many background copies the Origin gains by.
            done: how many files the Origin has given, and until when in seconds.
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
        """Return how many files came in a second since the last comparison."""
        if self._began is None or self._last is None or self._has_large():
            return None
        files, seconds = (b - a for a, b in zip(self._began, self._last, strict=True))
        return files / seconds if seconds > 0 else None

    def _has_large(self) -> bool:
        return any(size >= LARGE_BYTES for size, _ in self._copies)

    def _are_enough(self) -> bool:
        """Return whether the copies show how long programs wait."""
        sizes = [size for size, _ in self._copies]
        enough = not self._has_large() or sum(sizes) >= COMPARED_BYTES
        return len(sizes) >= DEMANDS and enough

    def forget(self) -> None:
        """Drop what was collected: it was begun under other limits."""
        self._copies = []
        self._began = self._last
