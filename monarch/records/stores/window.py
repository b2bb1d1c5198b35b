"""The window of requests in flight to a store, which adapts to the network.

It begins with one batch and doubles with each round trip, until it reaches its limit or
a queue builds up on the path. After that it changes by a few requests per round trip to
keep that queue short (Brakmo and Peterson, "TCP Vegas", 1995), and by fewer near the
rate that the path carried before a loss (Ha, Rhee and Xu, "CUBIC", 2008). Ending the
doubling at a rising delay is HyStart (Ha and Rhee, 2011). Time-outs, lost connections
and overload replies shrink the window (AIMD: Chiu and Jain, 1989). A limit chosen by
the user is reached at any delay: only losses shrink it.

When the round trip is known, requests are sent evenly over it: a burst would overflow a
short queue that the same requests, sent one after the other, never fill (Aggarwal,
Savage and Anderson, "Understanding the Performance of TCP Pacing", 2000).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

SHRINK: Final = 0.7
"""Factor of the window after a loss."""
LOSS_ROUNDS: Final = 1.5
"""Further losses within this many round trips belong to the same burst."""
FIRST_ROUNDS: Final = 2
"""The first requests are sent as a burst: a loss within this many round trips does not
show the capacity of the path."""
SAMPLES: Final = 8
"""Delays whose minimum indicates a queue: single replies may be late."""
QUEUE_MIN_S: Final = 0.004
QUEUE_SHARE: Final = 1 / 16
"""A delay above the minimum by the larger of these indicates a queue."""
QUIET_SHARE: Final = 1 / 4
"""A delay above the minimum by less than this share of that indicates no queue."""
LATE_SHARE: Final = 1 / 4
"""The last part of a round trip, whose minimum delay shows the queue at its end."""
LEAST: Final = 4
STEP_SHARE: Final = 1 / 16
"""Maximum share of the window by which the queue changes it in a round trip."""
BELOW_SHARE: Final = 1 / 8
"""Growth per round trip below nine tenths of the requests that the path carried."""
NEAR_SHARE: Final = 1 / 32
"""Growth per round trip from there up to eleven tenths."""
NEAR: Final = 0.1
CARRIED_DECAY: Final = 0.98
"""Decay, per round trip, of the most requests that the path carried in one."""
DELAY_LIFE_S: Final = 10.0
"""Lifetime of the minimum delay, which may rise when the path changes."""

PACED_MIN_S: Final = 0.005
"""With a shorter round trip, requests are sent immediately."""
PACE_FACTOR: Final = 1.25
"""Factor by which the pace exceeds the window per round trip, which would otherwise
never be full."""
BURST_S: Final = 0.002
"""Requests of this much time may be sent together."""
AT_ONCE: Final = 1 << 30

DELAYS: Final = 512
"""Number of remembered delays."""
DELAYS_MIN: Final = 64
DEADLINE_MIN_S: Final = 1.0
DEADLINE_FACTOR: Final = 4.0
"""A reply is late after this multiple of the 99th percentile."""
_LATE_SHARE: Final = 0.99


class Delays:
    """The delays of the last replies.

    Attributes:
        deadline_s: delay after which a reply is late; 0: too few replies yet.
    """

    def __init__(self) -> None:
        self.deadline_s = 0.0
        self._last: deque[float] = deque(maxlen=DELAYS)
        self._left = DELAYS_MIN

    def __repr__(self) -> str:
        return f"<Delays {len(self._last)}, deadline {self.deadline_s} s>"

    def note(self, delays_s: Sequence[float]) -> None:
        """Add the delays of some replies."""
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
        limit: maximum requests in flight.
        bytes_max: maximum bytes in flight, as far as lengths are known.
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
        """Maximum requests in flight."""
        return int(self._size)

    @property
    def round_trip_s(self) -> float:
        """The minimum delay of a reply; 0: no reply yet."""
        return 0.0 if self._least_s == float("inf") else self._least_s

    def allows(self, requests: int, size_bytes: int, next_bytes: int) -> bool:
        """Return whether one more request may be sent.

        Args:
            requests: requests in flight; with none, one is always allowed.
            size_bytes: their bytes.
            next_bytes: bytes of the next request; below 0: unknown.
        """
        if not requests:
            return True
        return requests < self.size and size_bytes + next_bytes <= self._bytes_max

    @property
    def is_paced(self) -> bool:
        """Whether requests are sent evenly.

        Not with a short round trip, nor before a loss in a window chosen by the user.
        """
        has_lost = self._shrunk_until_s > 0
        return (self._by_delay or has_lost) and self.round_trip_s >= PACED_MIN_S

    def pace(self, now_s: float) -> int:
        """Return how many requests the pace allows to send now.

        The caller reports the sent ones by `sent`.
        """
        if not self.is_paced:
            return AT_ONCE
        rate = PACE_FACTOR * self._size / self.round_trip_s
        earned = (now_s - self._paced_s) * rate
        self._credit = min(self._credit + earned, max(1.0, BURST_S * rate))
        self._paced_s = now_s
        return int(self._credit)

    def sent(self, requests: int) -> None:
        """Note that requests were sent."""
        self._credit -= requests

    def replied(
        self, now_s: float, delay_s: float, count: int = 1, *, is_full: bool = True
    ) -> None:
        """Note replies that arrived together.

        Args:
            delay_s: the minimum of their delays.
            is_full: the window held requests back; otherwise it need not grow.
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
        """Note a time-out, a lost connection, or an overloaded store."""
        if now_s < self._shrunk_until_s:
            return  # it belongs to the same burst
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

        The target is a queue half as long as one that ends the doubling.
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
