"""How many requests of a store are in flight: a window that follows the network.

It begins with one batch and doubles with each round trip, until it has reached its
limit, or a queue builds up on the way; then a few requests more or less with each round
trip keep that queue short (Brakmo and Peterson, "TCP Vegas", 1995), fewer near what the
way carried before a loss (Ha, Rhee and Xu, "CUBIC", 2008). The end of the
doubling by a rising delay is HyStart's (Ha and Rhee, 2011). Time-outs, lost connections
and a store that asks for fewer requests shrink it (AIMD: Chiu and Jain, 1989). A limit
that the user has chosen is reached whatever the delays are: only losses shrink it.

Once the round trip is known, requests leave evenly over it, as a burst would overflow a
short queue that the same requests, one after the other, never fill (Aggarwal, Savage
and Anderson, "Understanding the Performance of TCP Pacing", 2000).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

SHRINK: Final = 0.7
"""What is left of the window after a loss."""
LOSS_ROUNDS: Final = 1.5
"""After a loss, others within so many round trips are of the same burst."""
FIRST_ROUNDS: Final = 2
"""The first requests leave as a burst: a loss within so many round trips does not show
what the way carries."""
SAMPLES: Final = 8
"""The least of so many delays shows a queue: single replies may be late."""
QUEUE_MIN_S: Final = 0.004
QUEUE_SHARE: Final = 1 / 16
"""A delay above the minimum by the larger of these indicates a queue."""
QUIET_SHARE: Final = 1 / 4
"""Of that, a delay above the minimum by less indicates that there is no queue."""
LATE_SHARE: Final = 1 / 4
"""The last part of a round trip, whose least delay shows the queue at its end."""
LEAST: Final = 4
STEP_SHARE: Final = 1 / 16
"""Of the window, by which it follows the queue in a round trip, at most."""
BELOW_SHARE: Final = 1 / 8
"""The same, as long as it is less than nine tenths of what the way has carried."""
NEAR_SHARE: Final = 1 / 32
"""The same, up to eleven tenths of that."""
NEAR: Final = 0.1
CARRIED_DECAY: Final = 0.98
"""What the way has carried in a round trip is forgotten by this factor each."""
DELAY_LIFE_S: Final = 10.0
"""After so long the least delay is measured anew: a way may have become longer."""

PACED_MIN_S: Final = 0.005
"""On a shorter way requests leave at once."""
PACE_FACTOR: Final = 1.25
"""They leave faster than the window is turned over, by this: else it is never full."""
BURST_S: Final = 0.002
"""What could have left in this time may leave together."""
AT_ONCE: Final = 1 << 30

DELAYS: Final = 512
"""How many delays are remembered."""
DELAYS_MIN: Final = 64
DEADLINE_MIN_S: Final = 1.0
DEADLINE_FACTOR: Final = 4.0
"""A reply that takes longer than this times the 99th percentile is not waited for."""
_LATE_SHARE: Final = 0.99


class Delays:
    """How long the last replies took.

    Attributes:
        deadline_s: after so long a reply is not waited for any more; 0: too few came.
    """

    def __init__(self) -> None:
        self.deadline_s = 0.0
        self._last: deque[float] = deque(maxlen=DELAYS)
        self._left = DELAYS_MIN

    def __repr__(self) -> str:
        return f"<Delays {len(self._last)}, deadline {self.deadline_s} s>"

    def note(self, delays_s: Sequence[float]) -> None:
        """Note some replies."""
        self._last.extend(delays_s)
        self._left -= len(delays_s)
        if self._left <= 0:
            self._left = DELAYS_MIN
            late_s = self.of_share(_LATE_SHARE) or 0.0
            self.deadline_s = max(DEADLINE_MIN_S, DEADLINE_FACTOR * late_s)

    def of_share(self, share: float) -> float | None:
        """Return the delay that a share of the last replies did not exceed, in s."""
        found = sorted(self._last)
        return found[min(len(found) - 1, int(len(found) * share))] if found else None


class Window:
    """The window of one store.

    Args:
        start: requests of the first round trip, such as a batch.
        limit: more are never in flight.
        bytes_max: the same for bytes, as far as lengths are known.
        by_delay: a rising delay ends its growth.
    """

    def __init__(
        self, start: int, limit: int, bytes_max: int, *, by_delay: bool = True
    ) -> None:
        self._by_delay = by_delay
        self.limit = max(1, limit)
        self._bytes_max = bytes_max
        self._size = float(max(1, min(start, self.limit)))
        self._doubles = True
        self._least_s = float("inf")
        self._least_until_s = float("inf")
        self._recent: deque[float] = deque(maxlen=SAMPLES)
        self._rounds = 0
        self._round_until_s = 0.0
        self._round_least_s = float("inf")
        self._round_replies = 0
        self._most = 0.0  # replies of a round trip
        self._carried = 0.0  # the same, at the last queue or loss
        self._shrunk_until_s = 0.0
        self._paced_s = 0.0
        self._credit = 0.0

    def __repr__(self) -> str:
        return f"<Window of {self.size}>"

    @property
    def size(self) -> int:
        """How many requests may be in flight."""
        return int(self._size)

    @property
    def round_trip_s(self) -> float:
        """The least delay of a reply; 0: there was none yet."""
        return 0.0 if self._least_s == float("inf") else self._least_s

    def allows(self, requests: int, size_bytes: int, next_bytes: int) -> bool:
        """Return whether one more request may be sent.

        Args:
            requests: those in flight.
            size_bytes: theirs together.
            next_bytes: of the one more; below 0: not known. A first one is always
                allowed.
        """
        if not requests:
            return True
        return requests < self.size and size_bytes + next_bytes <= self._bytes_max

    @property
    def is_paced(self) -> bool:
        """Whether requests leave evenly.

        Not on a short way, nor in a window that the user has chosen, before a loss.
        """
        has_lost = self._shrunk_until_s > 0
        return (self._by_delay or has_lost) and self.round_trip_s >= PACED_MIN_S

    def pace(self, now_s: float) -> int:
        """Return how many requests may leave now, as far as the pace allows.

        `sent` tells how many have left.
        """
        if not self.is_paced:
            return AT_ONCE
        rate = PACE_FACTOR * self._size / self.round_trip_s
        earned = (now_s - self._paced_s) * rate
        self._credit = min(self._credit + earned, max(1.0, BURST_S * rate))
        self._paced_s = now_s
        return int(self._credit)

    def sent(self, requests: int) -> None:
        """Note that requests have left."""
        self._credit -= requests

    def replied(
        self, now_s: float, delay_s: float, count: int = 1, *, is_full: bool = True
    ) -> None:
        """Note replies that came together.

        Args:
            delay_s: since their requests were sent, at least.
            is_full: the window held requests back; else a larger one helps nobody.
        """
        self._note_delay(now_s, delay_s)
        self._round_replies += count
        if self._doubles and self._has_queue(min(self._recent)):
            self._doubles = len(self._recent) < SAMPLES
        if self._doubles and is_full:
            self._size = min(self._size + count, float(self.limit))
        if now_s >= self._round_until_s:
            self._end_round(now_s, is_full)

    def lost(self, now_s: float) -> None:
        """Note a time-out, a lost connection, or a store that is overloaded."""
        if now_s < self._shrunk_until_s:
            return  # it is of the same round trip
        self._doubles = self._doubles and self._rounds < FIRST_ROUNDS
        self._carried = self._most
        self._size = max(float(min(LEAST, self.limit)), self._size * SHRINK)
        self._shrunk_until_s = now_s + LOSS_ROUNDS * max(self.round_trip_s, QUEUE_MIN_S)

    def _note_delay(self, now_s: float, delay_s: float) -> None:
        if delay_s <= self._least_s or now_s >= self._least_until_s:
            self._least_s = delay_s
            self._least_until_s = now_s + DELAY_LIFE_S
        self._recent.append(delay_s)
        if now_s >= self._round_until_s - LATE_SHARE * self._least_s:
            self._round_least_s = min(self._round_least_s, delay_s)

    @property
    def _slack_s(self) -> float:
        return max(QUEUE_MIN_S, QUEUE_SHARE * self._least_s)

    def _has_queue(self, delay_s: float) -> bool:
        return self._by_delay and delay_s > self._least_s + self._slack_s

    def _step(self, is_full: bool) -> float:
        """Return the share by which the window grows or shrinks after a round trip.

        The queue is to be half as long as one that ends the doubling.
        """
        delay_s, least_s = self._round_least_s, self._least_s
        if self._by_delay and delay_s > least_s + QUIET_SHARE * self._slack_s:
            self._carried = self._most
            share = (least_s + self._slack_s / 2) / delay_s - 1
            return min(max(share, -STEP_SHARE), STEP_SHARE)
        if not is_full:
            return 0.0
        if self._size < (1 - NEAR) * self._carried:
            return BELOW_SHARE
        if self._size < (1 + NEAR) * self._carried:
            return NEAR_SHARE
        return max(1 / self._size, STEP_SHARE)

    def _end_round(self, now_s: float, is_full: bool) -> None:
        if not self._doubles:
            size = self._size * (1 + self._step(is_full))
            self._size = min(max(size, min(LEAST, self.limit)), float(self.limit))
        self._rounds += 1
        self._most = max(self._round_replies, CARRIED_DECAY * self._most)
        self._round_replies = 0
        self._round_until_s = now_s + self._least_s
        self._round_least_s = float("inf")
