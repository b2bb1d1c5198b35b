"""Fill finds the best number of concurrent copies, on simulated origins."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.agent.staging import Staging
from monarch.native import Pace
from monarch.stager.concurrency import (
    FIRST,
    MOST,
    Concurrency,
    FillConcurrency,
    Window,
)

Latency = Callable[[int, int, float], float]
"""Seconds of a copy, by how many run at once, its bytes, and the time it begins."""

POLL_S = 0.1
IMAGE = 110_000


def bound_by_latency(parallel: float, copy_s: float = 0.008) -> Latency:
    """Each operation takes its time, as long as not too many run."""
    return lambda running, _size, _now: copy_s * max(1.0, running / parallel)


def bound_by_bandwidth(bytes_per_s: float, copy_s: float = 0.001) -> Latency:
    """All copies share one link."""
    return lambda running, size, _now: copy_s + size * running / bytes_per_s


def thrashing(beyond: float, copy_s: float = 0.008) -> Latency:
    """Of more than these copies, each slows all others down."""
    return lambda running, _size, _now: copy_s * max(1.0, running / beyond) ** 2


def from_then_on(at_s: float, first: Latency, second: Latency) -> Latency:
    """Behaves like one origin and then like another."""
    return lambda running, size, now: (first if now < at_s else second)(
        running, size, now
    )


def after(pace: Pace, size: int, took_s: float, *, is_fill: bool, stale: bool) -> Pace:
    """Return the totals with one more copy."""
    ns = int(took_s * 1e9)
    return Pace(
        pace.files + 1,
        pace.reads + 1,
        pace.bytes + size,
        pace.ns + ns,
        pace.fill_ns + ns * is_fill,
        pace.stale + stale,
    )


@dataclass
class Origin:
    """Copies that end one after the other, while fill keeps as many as it may begun.

    Attributes:
        limits: each change of the limit, with its time.
        homes: the best limit known, at each look.
    """

    latency: Latency
    size_of: Callable[[random.Random, float], int] = lambda _random, _now: IMAGE
    noise: float = 0.0
    readers: int = 0
    supply: int = MOST
    fill: FillConcurrency = field(default_factory=lambda: FillConcurrency(None))
    limits: list[tuple[float, int]] = field(default_factory=list)
    homes: list[tuple[float, int]] = field(default_factory=list)
    files: list[float] = field(default_factory=list)

    def run(self, seconds: float, seed: int = 1) -> None:
        """Let simulated time pass."""
        numbers = itertools.count()
        chance, now, noted = random.Random(seed), 0.0, 0.0
        running: list[tuple[float, int, bool, int, float, int]] = []
        totals, fills = Pace(0, 0, 0, 0, 0, 0), 0

        def begin(is_fill: bool) -> None:
            size = self.size_of(chance, now)
            took = self.latency(len(running) + 1, size, now)
            took *= 1 + self.noise * (2 * chance.random() - 1)
            copy = (now + took, next(numbers), is_fill, size, took, len(self.limits))
            heapq.heappush(running, copy)

        for _ in range(self.readers):
            begin(is_fill=False)
        while now < seconds:
            while fills < min(self.fill.limit, self.supply):
                begin(is_fill=True)
                fills += 1
            now, _, is_fill, size, took, limits = heapq.heappop(running)
            stale = limits != len(self.limits)
            totals = after(totals, size, took, is_fill=is_fill, stale=stale)
            self.files.append(now)
            if is_fill:
                fills -= 1
            else:
                begin(is_fill=False)
            if now - noted >= POLL_S:
                noted = now
                if self.fill.note(totals, now):
                    self.limits.append((now, self.fill.limit))
                self.homes.append((now, self.fill.home))

    def homes_after(self, at_s: float) -> list[int]:
        """Return the limits that were settled on after some time."""
        return [home for now, home in self.homes if now >= at_s]

    def rate(self, since_s: float, until_s: float) -> float:
        """Return how many copies ended in a second of a span."""
        ended = sum(since_s <= now < until_s for now in self.files)
        return ended / (until_s - since_s)


NOISES = (0.0, 0.2)
SEEDS = range(6)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("parallel", "lowest"), [(1000, 56), (40, 34), (16, 13)])
def test_a_latency_bound_origin_gets_as_many_as_it_serves_at_once(
    parallel: int, lowest: int, noise: float
) -> None:
    origin = Origin(bound_by_latency(parallel), noise=noise, readers=2)

    origin.run(20)

    assert origin.limits[0][1] == 2 * FIRST
    assert min(origin.homes_after(10)) >= lowest
    best = min(MOST + 2, parallel) / 0.008
    assert origin.rate(10, 20) > 0.95 * best


@pytest.mark.parametrize("noise", NOISES)
def test_a_bandwidth_bound_origin_gets_no_more_than_fill_begins_with(
    noise: float,
) -> None:
    origin = Origin(bound_by_bandwidth(100e6), noise=noise, readers=2)

    origin.run(40)

    assert max(origin.homes_after(0.2)) <= FIRST
    # 100 MB/s are 909 files a second; each has some idle time between its bytes.
    assert origin.rate(20, 40) > 800


@pytest.mark.parametrize(("noise", "most"), [(0.0, 1), (0.1, 4)])
def test_few_large_files_on_one_link_are_soon_read_by_few(
    noise: float, most: int
) -> None:
    found, rates = [], []
    for seed in SEEDS:
        chunks = Origin(
            bound_by_bandwidth(100e6, copy_s=1e-4), lambda _random, _now: 1 << 20, noise
        )
        chunks.run(20, seed)
        found.append(max(chunks.homes_after(6)))
        rates.append(chunks.rate(6, 20))

    assert sorted(found)[len(found) // 2] <= most
    assert min(rates) > 93  # of 95 chunks a second, the capacity of the link


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("beyond", [4, 8, 20, 40])
def test_a_collapsing_origin_stays_near_its_best(beyond: int, noise: float) -> None:
    origin = Origin(thrashing(beyond), noise=noise, readers=2)

    origin.run(40)

    assert all(abs(home + 2 - beyond) <= 2 for home in origin.homes_after(25))
    assert origin.rate(25, 40) > 0.9 * beyond / 0.008


def test_the_limit_falls_for_an_origin_that_collapses_later() -> None:
    latency = from_then_on(20, bound_by_latency(1000), thrashing(8))
    origin = Origin(latency, noise=0.2)

    origin.run(80)

    assert origin.rate(10, 20) > 0.9 * MOST / 0.008
    assert max(origin.homes_after(60)) <= 10
    assert origin.rate(60, 80) > 0.85 * 8 / 0.008


def test_the_limit_rises_for_an_origin_that_serves_more_later() -> None:
    latency = from_then_on(20, thrashing(8), bound_by_latency(1000))
    origin = Origin(latency, noise=0.2)

    origin.run(80)

    assert max(limit for now, limit in origin.limits if 10 < now < 20) <= 10
    assert origin.rate(70, 80) > 0.9 * MOST / 0.008


def test_the_limit_stays_for_an_origin_that_becomes_slower_as_a_whole() -> None:
    latency = bound_by_latency(32)
    slower = bound_by_latency(32, copy_s=0.032)
    origin = Origin(from_then_on(20, latency, slower), noise=0.2)

    origin.run(60)

    assert min(origin.homes_after(40)) >= 28
    assert origin.rate(40, 60) > 0.9 * 32 / 0.032


def mixed(chance: random.Random, _now: float) -> int:
    """Return a size from 1 KB to 10 MB, each order of magnitude as often."""
    return int(10 ** (3 + 4 * chance.random()))


def test_mixed_sizes_do_not_hide_the_throughput_of_an_origin() -> None:
    origin = Origin(lambda _n, size, _now: 0.004 + size / 20e6, mixed, noise=0.2)
    link = Origin(bound_by_bandwidth(100e6), mixed, noise=0.2)

    origin.run(60)
    link.run(120)

    assert min(origin.homes_after(20)) >= 40
    assert max(link.homes_after(20)) <= 32


def test_small_files_after_large_ones_are_not_mistaken_for_a_gain() -> None:
    """The files become small just when the limit is doubled."""

    def sizes(_chance: random.Random, _now: float) -> int:
        return 10_000 if origin.limits else 1_000_000

    origin = Origin(bound_by_bandwidth(20e6, copy_s=0.0), sizes)

    origin.run(30)

    first = [limit for _, limit in origin.limits[:4]]
    assert first == [2 * FIRST, FIRST, 2 * FIRST, FIRST // 2]
    assert max(origin.homes_after(0)) == FIRST


@pytest.mark.parametrize("supply", [1, 3, 5])
def test_nothing_is_learned_while_something_else_limits_fill(supply: int) -> None:
    origin = Origin(bound_by_latency(1000), supply=supply)

    origin.run(10)

    assert origin.limits == []
    assert origin.fill.limit == FIRST


def rate_of_windows(
    rate_at: Callable[[int], float], noise: float, count: int, seed: int
) -> list[int]:
    """Return the best limit known after each of many windows, whole ones noisy."""
    chance, search, homes = random.Random(seed), Concurrency(), []
    for _ in range(count):
        limit = search.limit
        files = max(32, 4 * limit)
        rate = rate_at(limit) * (1 + noise * (2 * chance.random() - 1))
        seconds = files / rate
        busy_s = limit * seconds
        search = search.after(
            Window(files, files * IMAGE, seconds, busy_s, fill_s=busy_s)
        )
        homes.append(search.home)
    return homes


STEADY = {
    "latency-bound": lambda limit: 100.0 * limit,
    "16 in parallel": lambda limit: 100.0 * min(limit, 16),
    "less and less gain": lambda limit: limit / (1 + limit / 16),
    "collapse": lambda limit: 100.0 * limit if limit <= 8 else 6400.0 / limit,
}


@pytest.mark.parametrize("rate_at", STEADY.values(), ids=STEADY)
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_limit_that_was_settled_on_stays_within_a_factor_of_two(
    rate_at: Callable[[int], float], seed: int, noise: float
) -> None:
    settled = rate_of_windows(rate_at, noise, 1200, seed)[600:]

    assert max(settled) <= 2 * min(settled)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_gain_the_limit_only_falls(seed: int, noise: float) -> None:
    settled = rate_of_windows(lambda _limit: 100.0, noise, 900, seed)

    assert max(settled) <= 1.5 * FIRST
    assert settled[-1] < FIRST


@pytest.mark.parametrize("rate_at", STEADY.values(), ids=STEADY)
@pytest.mark.parametrize("seed", SEEDS)
def test_whole_windows_that_err_by_a_fifth_cost_little(
    rate_at: Callable[[int], float], seed: int
) -> None:
    settled = rate_of_windows(rate_at, 0.2, 900, seed)[300:]

    mean = sum(map(rate_at, settled)) / len(settled)
    assert mean > 0.6 * max(map(rate_at, range(1, MOST + 1)))


windows = st.builds(
    Window,
    reads=st.integers(1, 10**6),
    size_bytes=st.integers(0, 1 << 50),
    seconds=st.floats(1e-6, 1e6),
    busy_s=st.floats(1e-9, 1e9),
    fill_s=st.floats(0, 1e9),
)


@given(st.lists(windows, max_size=200))
def test_the_limit_stays_between_1_and_64_whatever_is_measured(
    measured: list[Window],
) -> None:
    search = Concurrency()

    for window in measured:
        before, search = search, search.after(window)
        assert 1 <= search.limit <= MOST
        assert 1 <= search.home <= MOST
        if not window.reaches(before.limit):
            assert search == before


def seconds_of_fill(copies: int, stale: int = 0) -> Pace:
    """Return the totals after so many background copies of one second each."""
    return Pace(copies, copies, copies * IMAGE, copies * 10**9, copies * 10**9, stale)


def test_a_limit_that_was_set_holds() -> None:
    fill = FillConcurrency(5)

    for second in range(100):
        assert not fill.note(seconds_of_fill(64 * second), float(second))

    assert (fill.limit, fill.home, fill.most, fill.is_found) == (5, 5, 5, False)


class FakeEngine:
    """Gives as many copies of one second at once as it is told to."""

    def __init__(self) -> None:
        self.limit = FIRST
        self.done = 0

    def pace(self) -> Pace:
        """Return the totals of one more second."""
        self.done += self.limit
        return seconds_of_fill(self.done)

    def demands(self) -> list[tuple[int, int]]:
        """Return that no program has waited."""
        return []

    def set_background(self, limit: int, beside: int) -> None:
        """Note the limit; nothing waits, so that nothing is known of the other one."""
        assert beside == 0
        self.limit = limit


def test_the_engine_of_an_agent_follows_the_found_limit() -> None:
    engine: Any = FakeEngine()
    nothing: Any = None
    staging = Staging(nothing, engine, nothing, nothing, FillConcurrency(None), nothing)

    limits = []
    for second in range(100):
        staging.adapt(float(second))
        limits.append(engine.limit)

    assert limits[:4] == [FIRST] * 4
    assert limits[-1] >= MOST - 1


def test_transfers_begun_under_another_limit_are_not_counted() -> None:
    fill = FillConcurrency(None)

    assert not fill.note(seconds_of_fill(0), 0.0)
    measured = [fill.is_measured]
    assert fill.note(seconds_of_fill(32), 4.0)
    assert fill.limit == 2 * FIRST
    assert [*measured, fill.is_measured] == [False, True]
    # More than a window ends, and some of it began before.
    for step in range(1, 5):
        assert not fill.note(seconds_of_fill(32 + 80 * step, step), 4.0 + 5 * step)
    assert not fill.note(seconds_of_fill(352 + 63, 4), 27.9)
    assert fill.note(seconds_of_fill(352 + 64, 4), 28.0)
    assert fill.limit == 4 * FIRST
