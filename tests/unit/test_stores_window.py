"""The window of requests in flight, over simulated networks."""

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from monarch.records.stores.window import LEAST, SHRINK, Window

BYTES = 110_000
NO_LIMIT = 1 << 40
TURN_S = 0.0005
"""How often requests may leave that the pace has held back."""


@dataclass
class Network:
    """A way to a store, with a bottleneck on the way back.

    Args:
        rate: bytes a second.
        queue_bytes: what waits at most for the bottleneck; the rest is dropped.
        late: the share of replies that take ten times as long.
    """

    delay_s: float
    rate: float
    queue_bytes: float = float("inf")
    late: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    free_s: float = 0.0

    def answer(self, now_s: float) -> tuple[float, bool]:
        """When a request that is sent now is answered, and whether it was dropped."""
        there_s = now_s + self.delay_s / 2
        waits_s = max(0.0, self.free_s - there_s)
        if waits_s * self.rate > self.queue_bytes:
            return there_s + self.delay_s / 2, True
        self.free_s = max(self.free_s, there_s) + BYTES / self.rate
        slow_s = 9 * self.delay_s if self.chance.random() < self.late else 0.0
        return self.free_s + self.delay_s / 2 + slow_s, False


@dataclass
class Played:
    """The result of a run over a network."""

    served: list[float]
    requests: int
    dropped: int
    most: int
    window: Window

    def rate(self, from_s: float, to_s: float) -> float:
        """Replies a second between two times."""
        return sum(from_s <= at < to_s for at in self.served) / (to_s - from_s)


def play(network: Network, window: Window, until_s: float) -> Played:
    """Keeps the window full for a while."""
    events: list[tuple[float, int, float, bool]] = []
    serial, now_s, flying = count(), 0.0, 0
    played = Played([], 0, 0, 0, window)
    while now_s < until_s:
        before, most = flying, window.pace(now_s)
        while flying < before + most and window.allows(flying, flying * BYTES, BYTES):
            at_s, dropped = network.answer(now_s)
            heapq.heappush(events, (at_s, next(serial), now_s, dropped))
            flying += 1
            played.requests += 1
        window.sent(flying - before)
        played.most = max(played.most, flying)
        if not events or events[0][0] > now_s + TURN_S:
            now_s += TURN_S
            continue
        now_s, _, sent_s, dropped = heapq.heappop(events)
        flying -= 1
        if dropped:
            played.dropped += 1
            window.lost(now_s)
        else:
            played.served.append(now_s)
            window.replied(now_s, now_s - sent_s)
    return played


def test_a_window_doubles_with_each_round_trip_up_to_its_limit() -> None:
    window = Window(64, 1088, NO_LIMIT)

    played = play(Network(0.1, 1e12), window, 2.0)

    assert window.size == 1088
    served = [played.rate(0.0, at_s) * at_s for at_s in (0.19, 0.29, 0.39)]
    assert served == pytest.approx([64, 192, 448], rel=0.07)
    assert played.rate(1.0, 2.0) == pytest.approx(10_880, rel=0.02)


def test_a_chosen_limit_is_reached_whatever_the_delays_are() -> None:
    """A busy reader delays its own replies; the user has chosen to fill the way."""
    network = Network(0.1, 60e6)

    chosen = play(network, Window(64, 1088, NO_LIMIT, by_delay=False), 4.0)
    followed = play(Network(0.1, 60e6), Window(64, 1088, NO_LIMIT), 4.0)

    assert chosen.window.size == 1088
    assert followed.window.size < 300
    chosen.window.lost(5.0)
    assert chosen.window.size == int(1088 * SHRINK)


@pytest.mark.parametrize("start", [8, 64])
@pytest.mark.parametrize(
    ("delay_s", "rate"), [(0.1, 125e6), (0.1, 60e6), (0.02, 125e6), (0.05, 250e6)]
)
def test_a_link_with_a_short_queue_is_filled_with_few_drops(
    start: int, delay_s: float, rate: float
) -> None:
    """125 MB/s and a queue of 1 MB that drops, from the tenth round trip on."""
    window = Window(start, 1088, NO_LIMIT)
    network = Network(delay_s, rate, queue_bytes=1e6)

    played = play(network, window, 6.0)

    filled = min(rate / BYTES, 1088 / delay_s)
    assert played.rate(11 * delay_s, 60 * delay_s) >= 0.9 * filled
    assert played.dropped <= 0.05 * played.requests


def test_requests_are_spread_over_a_round_trip_once_that_is_known() -> None:
    window = Window(100, 100, NO_LIMIT)
    assert window.pace(0.0) >= 100
    window.sent(100)
    for _ in range(100):
        window.replied(0.1, 0.1)

    leave = []
    for turn in range(100, 200):
        leave.append(window.pace(turn / 1000))
        window.sent(leave[-1])

    assert max(leave) <= 3
    assert sum(leave) == pytest.approx(125, abs=5)


def test_a_near_store_is_asked_without_a_pace() -> None:
    window = Window(64, 1088, NO_LIMIT)
    window.replied(0.001, 0.001)

    assert window.pace(0.001) >= 1088


def test_a_long_queue_is_not_filled() -> None:
    window = Window(64, 100_000, NO_LIMIT)

    played = play(Network(0.1, 125e6), window, 6.0)

    fills = 0.1 * 125e6 / BYTES
    assert played.rate(2.0, 6.0) >= 0.95 * 125e6 / BYTES
    assert played.most <= 2.5 * fills
    assert 0.95 * fills <= window.size <= 1.3 * fills


def test_late_replies_alone_do_not_shrink_a_window() -> None:
    window = Window(64, 1088, NO_LIMIT)

    play(Network(0.1, 1e12, late=0.05), window, 3.0)

    assert window.size == 1088


@pytest.mark.parametrize("delay_s", [0.0002, 0.01])
def test_a_near_store_gets_its_whole_window(delay_s: float) -> None:
    window = Window(64, 256, NO_LIMIT)

    play(Network(delay_s, 1e12), window, 300 * delay_s)

    assert window.size == 256


def test_the_window_of_an_overloaded_store_shrinks_once_in_a_round_trip() -> None:
    window = Window(64, 1088, NO_LIMIT)
    play(Network(0.1, 1e12), window, 2.0)
    before = window.size

    for number in range(200):
        window.lost(10.0 + number * 1e-4)

    assert window.size == int(before * SHRINK)
    for number in range(60):
        window.lost(11.0 + number)
    assert window.size == LEAST


def test_a_window_recovers_from_a_loss() -> None:
    window = Window(64, 128, NO_LIMIT)
    network = Network(0.01, 1e12)
    play(network, window, 1.0)
    window.lost(1.0)

    network.free_s = 0.0
    play(network, window, 3.0)

    assert window.size == 128


def test_bytes_in_flight_are_limited_but_for_one_request() -> None:
    window = Window(64, 1088, 10 * BYTES)

    assert window.allows(9, 9 * BYTES, BYTES)
    assert not window.allows(10, 10 * BYTES, BYTES)
    assert window.allows(0, 0, 1000 * BYTES)
    assert not window.allows(64, 0, 1)


def test_an_unfilled_window_does_not_grow() -> None:
    window = Window(8, 1000, NO_LIMIT)

    for number in range(500):
        window.replied(number * 0.1, 0.1, is_full=False)

    assert window.size == 8
