"""The progress of a scan in one line: names done, the rate, and the time left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from monarch.units import format_count, format_duration

LINE_CHARACTERS: Final = 80 - len("monarch: ")
"""A longer line wraps on a terminal, and the time left is at its end."""
PATH_CHARACTERS_MIN: Final = 6
MILLION: Final = 1_000_000

WINDOW_S: Final = 5.0
"""The rate is measured over the last seconds: an origin may become slow, or hang."""


class Advance(NamedTuple):
    """The number of scanned names, or of compared directories.

    Attributes:
        total: that of the comparison, or of an earlier scan; 0: unknown.
        compares: whether a saved index is compared with its root.
        behind: a link that adds more names than the root itself.
    """

    done: int
    total: int = 0
    compares: bool = False
    behind: str = ""


Progress = Callable[[Advance], None]


class ScanRate:
    """Describes the advance of one scan.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._compares = False

    def describe(self, advance: Advance) -> str:
        """Return the state of the scan after an advance."""
        if advance.compares != self._compares:
            self._compares = advance.compares
            self._seen = deque([(self._seen[-1][0], 0)])
        rate = self._rate(advance.done)
        what = "dirs" if advance.compares else "names"
        if advance.behind:
            what += f", most behind {advance.behind}"
        count = _short(advance.done)
        left = advance.total - advance.done
        if left <= 0:
            return f"{count} {what}, {rate:,.0f}/s"
        about = "" if advance.compares else "~"
        text = f"{count} of {about}{_short(advance.total)} {what}, {rate:,.0f}/s"
        return f"{text}, {about}{format_duration(left / rate)} left" if rate else text

    def _rate(self, done: int) -> float:
        now_s = self._clock()
        self._seen.append((now_s, done))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        since_s, before = self._seen[0]
        return (done - before) / max(now_s - since_s, 1e-3)


def _short(count: int) -> str:
    """Return a count as a short text: `12,000`, `1.23M`."""
    return format_count(count) if count < MILLION else f"{count / MILLION:.2f}M"


def scan_line(path: str, state: str) -> str:
    """Return the line of a scan; a long path is shortened to its end."""
    line = f"scanning {path}: {state}"
    excess = len(line) - LINE_CHARACTERS
    if excess <= 0 or len(path) <= PATH_CHARACTERS_MIN:
        return line
    kept = max(len(path) - excess, PATH_CHARACTERS_MIN) - len("...")
    return f"scanning ...{path[-kept:]}: {state}"
