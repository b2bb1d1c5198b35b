"""The number of background copies that read the Origin at once, found by trials."""

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Self

from monarch.native import Pace

FIRST: Final = 8
MOST: Final = 64
GAIN: Final = 1.1
"""The gain that justifies twice as many copies at once; a smaller step needs less."""
LOSS: Final = 1.03
"""The accepted loss for half as many, which spare the Origin; smaller steps: less."""
SLOWER: Final = 2.0
"""Copies this many times slower, without a gain, mean that the Origin is overloaded."""
REACHED: Final = 0.75
"""The part of the limit that must run; below it, something else limits the copies."""
KEPT: Final = 7 / 8
"""The weight of earlier windows when another one at the same limit is added."""
AGREEING: Final = 2
"""How many windows in a row must agree about fewer copies, or about one more."""
PATIENCE: Final = 6
"""The number of windows after which an inconclusive trial ends."""
REST: Final = 1
REST_MAX: Final = 16
"""The number of windows between two trials; it doubles after each failed trial, and
halves after each successful one."""

WINDOW_READS: Final = 32
WINDOW_ROUNDS: Final = 4
"""The least reads of a window, in multiples of the limit: copies that began together
end together."""
WINDOW_S: Final = 0.05
"""Shorter windows would measure this machine's scheduler rather than the Origin."""


@dataclass(frozen=True, slots=True)
class Window:
    """The reads that ended in a span of time.

    Args:
        reads: the number of reads of the Origin, on demand or not: a copy of a File is
            one; a background copy of a larger File, one for each chunk.
        seconds: the length of the span.
        busy_s: the sum of the durations of these reads.
        fill_s: the part of it that belongs to background copies.
    """

    reads: float = 0
    size_bytes: float = 0
    seconds: float = 0.0
    busy_s: float = 0.0
    fill_s: float = 0.0

    def plus(self, later: Self, weight: float = 1.0) -> Self:
        """Return both together.

        Args:
            weight: of this one.
        """
        return replace(
            self,
            reads=weight * self.reads + later.reads,
            size_bytes=weight * self.size_bytes + later.size_bytes,
            seconds=weight * self.seconds + later.seconds,
            busy_s=weight * self.busy_s + later.busy_s,
            fill_s=weight * self.fill_s + later.fill_s,
        )

    def reaches(self, limit: int) -> bool:
        """Return whether about this many background copies ran at once."""
        return self.fill_s >= REACHED * limit * self.seconds

    def gain_on(self, before: Self) -> tuple[float, float]:
        """Return bounds of the ratio of the Origin's throughput to that before.

        A read has a fixed cost and a cost per byte. Whatever the two are, the ratio
        lies between that of reads and that of bytes.
        """
        pace = before.seconds / self.seconds
        return _between(self, before, pace)

    def slowdown_on(self, before: Self) -> tuple[float, float]:
        """Return bounds of the ratio of the duration of a read to that before."""
        low, high = _between(before, self, self.busy_s / before.busy_s)
        return low, high


def _between(one: Window, other: Window, factor: float) -> tuple[float, float]:
    """Return the ratios of reads and of bytes, the smaller first."""
    reads = factor * one.reads / other.reads
    sizes = reads
    if other.size_bytes:
        sizes = factor * one.size_bytes / other.size_bytes
    elif one.size_bytes:
        sizes = math.inf
    return min(reads, sizes), max(reads, sizes)


class Search(Enum):
    """How the next limit is chosen."""

    DOUBLE = "double"
    HALVE = "halve"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The current limit, and the measurements of others.

    At first the limit is doubled as long as that is worth it. If even the first
    doubling is not, it is halved as long as that costs nothing, because reads for fill
    delay the first read of a program. After that, the limit is repeatedly raised or
    lowered by one for a short time. It stays there if two windows agree that it is
    better or, when lowered, no worse. If the Origin only becomes slower, it is halved.

    Args:
        limit: how many background copies may run at once.
        home: the best known limit; `limit` differs from it during a trial.
        known: the reads at `home`; None: not measured.
        tried: the reads at `limit` in this trial; None: none yet.
        windows: the number of windows in this trial, or since the last one.
        votes: how many of the last ones agreed; negative: that it is not worth it.
        rest: the number of windows until the next trial.
        direction: of the next step.
    """

    limit: int = FIRST
    home: int = FIRST
    search: Search = Search.DOUBLE
    known: Window | None = None
    tried: Window | None = None
    windows: int = 0
    votes: int = 0
    rest: int = REST
    direction: int = 1

    def after(self, window: Window) -> "Concurrency":
        """Return the successor after a window measured at `limit`."""
        if not window.reaches(self.limit):
            return self
        if self.known is None:
            return self._go_on(replace(self, home=self.limit, known=window))
        if self.limit == self.home:
            return self._at_home(self.known, window)
        return self._in_trial(self.known, window)

    def _at_home(self, known: Window, window: Window) -> "Concurrency":
        if self.limit > 1 and _is_overloaded(known, window):
            halving = replace(self, search=Search.HALVE, known=window, rest=REST)
            return self._go_on(halving)
        rested = replace(
            self, known=known.plus(window, weight=KEPT), windows=self.windows + 1
        )
        return self._go_on(rested) if rested.windows >= self.rest else rested

    def _in_trial(self, known: Window, window: Window) -> "Concurrency":
        tried = self.tried.plus(window) if self.tried is not None else window
        trial = replace(self, tried=tried, windows=self.windows + 1)
        if _is_overloaded(known, window):
            return trial._failed()
        steps = self.search is Search.STEP
        worth = _is_worth(known, window if steps else tried, self.limit / self.home)
        if worth is None:
            return trial._lost() if trial.windows >= PATIENCE else trial
        vote = 1 if worth else -1
        votes = self.votes + vote if self.votes * vote > 0 else vote
        if abs(votes) < (1 if self.search is Search.DOUBLE else AGREEING):
            return replace(trial, votes=votes)
        return trial._succeeded(tried) if worth else trial._failed()

    def _succeeded(self, tried: Window) -> "Concurrency":
        settled = self._rested(self.limit, max(REST, self.rest // 2))
        found = replace(settled, known=tried)
        return found if self.search is Search.STEP else self._go_on(found)

    def _failed(self) -> "Concurrency":
        steps = self.search is Search.STEP
        rest = min(REST_MAX, 2 * self.rest) if steps else self.rest
        settled = self._rested(self.home, rest)
        # If more copies gain nothing, try fewer: they may be enough.
        if self.search is Search.DOUBLE and self.home == FIRST:
            return self._go_on(replace(settled, search=Search.HALVE))
        return replace(settled, search=Search.STEP, direction=-self.direction)

    def _lost(self) -> "Concurrency":
        """Measure again: the Files have changed in the meantime."""
        return replace(self._rested(self.home, self.rest), known=None)

    def _rested(self, home: int, rest: int) -> "Concurrency":
        """Return a search at this limit, with the trial's measurements cleared."""
        return replace(
            self, limit=home, home=home, tried=None, windows=0, votes=0, rest=rest
        )

    def _go_on(self, found: "Concurrency") -> "Concurrency":
        """Return the next trial after a measurement at home."""
        found = replace(found, tried=None, windows=0, votes=0)
        if found.search is not Search.STEP:
            double = found.search is Search.DOUBLE
            limit = min(MOST, 2 * found.home) if double else found.home // 2
            if limit not in (0, found.home):
                return replace(found, limit=limit)
            return replace(found, search=Search.STEP)
        direction = found.direction
        if not 1 <= found.home + direction <= MOST:
            direction = -direction
        return replace(found, limit=found.home + direction, direction=direction)


def _is_worth(known: Window, tried: Window, times: float) -> bool | None:
    """Return whether this multiple of copies at once is worth it; None: unclear."""
    needed = (GAIN if times > 1 else LOSS) ** math.log2(times)
    low, high = tried.gain_on(known)
    if low >= needed:
        return True
    return None if high >= needed else False


def _is_overloaded(known: Window, window: Window) -> bool:
    """Return whether the Origin has become slower without a gain in throughput."""
    slower, _ = window.slowdown_on(known)
    _, gain = window.gain_on(known)
    return slower >= SLOWER and gain < GAIN


class FillConcurrency:
    """The number of background copies that read the Origin at once: fixed, or found.

    Attributes:
        most: the upper bound of the limit.
        is_found: whether the limit is found by trials.
    """

    def __init__(self, fixed: int | None) -> None:
        self.most = MOST if fixed is None else fixed
        self.is_found = fixed is None
        first = FIRST if fixed is None else fixed
        self._search = Concurrency(first, first)
        self._began: tuple[Pace, float] | None = None

    def __repr__(self) -> str:
        return f"<FillConcurrency {self.limit}>"

    @property
    def limit(self) -> int:
        """The number of copies that may run at once from now on."""
        return self._search.limit

    @property
    def home(self) -> int:
        """The best known limit, also during a trial of another one."""
        return self._search.home

    @property
    def is_measured(self) -> bool:
        """Whether `home` was measured."""
        return self.is_found and self._search.known is not None

    def note(self, pace: Pace, now_s: float) -> bool:
        """Evaluate the progress of the engine; return whether the limit changes.

        Args:
            pace: its totals.
            now_s: a monotonic clock.
        """
        if not self.is_found:
            return False
        # A window begins when all reads begun under another limit have ended.
        if self._began is None or self._began[0].stale != pace.stale:
            self._began = pace, now_s
            return False
        window = _window(self._began, (pace, now_s))
        reads = max(WINDOW_READS, WINDOW_ROUNDS * self.limit)
        if window.reads < reads or window.seconds < WINDOW_S:
            return False
        before = self.limit
        self._search = self._search.after(window)
        self._began = (pace, now_s) if self.limit == before else None
        return self.limit != before


def _window(began: tuple[Pace, float], ended: tuple[Pace, float]) -> Window:
    """Return the reads between two moments."""
    (first, first_s), (last, last_s) = began, ended
    return Window(
        reads=last.reads - first.reads,
        size_bytes=last.bytes - first.bytes,
        seconds=last_s - first_s,
        busy_s=(last.ns - first.ns) / 1e9,
        fill_s=(last.fill_ns - first.fill_ns) / 1e9,
    )
