"""Fill yields only where it makes programs wait longer: simulated."""

import heapq
import itertools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.agent.staging import Staging
from monarch.native import Pace
from monarch.stager.concurrency import MOST, FillConcurrency
from monarch.stager.yielding import (
    CALM_TURNS,
    DEMANDS,
    FALLS_MAX,
    LARGE_BYTES,
    PAUSE_MAX,
    DemandFirst,
    Waits,
    Yielding,
)

Latency = Callable[[int, int], float]
"""Seconds of a copy, by how many run at once and its bytes."""

POLL_S = 0.1
IMAGE = 110_000


def bound_by_latency(parallel: float, copy_s: float = 0.008) -> Latency:
    """Each operation takes its time, as long as not too many run."""
    return lambda running, _size: copy_s * max(1.0, running / parallel)


def bound_by_bandwidth(bytes_per_s: float, copy_s: float = 0.001) -> Latency:
    """All copies share one link."""
    return lambda running, size: copy_s + size * running / bytes_per_s


def thrashing(beyond: float, copy_s: float = 0.004) -> Latency:
    """Of more than these copies, each slows all others down."""
    return lambda running, _size: copy_s * max(1.0, running / beyond) ** 2


@dataclass
class Origin:
    """Readers that ask again at once, and fill beside them.

    Args:
        readers: how many there are, by the time.
        found: how many background copies the Origin gains by.
        yields: whether fill yields.

    Attributes:
        waits: when each copy ended that a program waited for, and how long it took.
        fills: when each background copy ended.
    """

    latency: Latency
    readers: Callable[[float], int]
    found: int
    yields: bool = True
    size_of: Callable[[random.Random], int] = lambda _random: IMAGE
    waits: list[tuple[float, float]] = field(default_factory=list)
    fills: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Let simulated time pass."""
        numbers, chance, now = itertools.count(), random.Random(1), 0.0
        first, changed, polled = DemandFirst(), 0.0, 0.0
        copies: list[tuple[int, int]] = []
        running: list[tuple[float, int, bool, int, float, float]] = []
        counts = {True: 0, False: 0}

        def begin(is_fill: bool) -> None:
            counts[is_fill] += 1
            size = self.size_of(chance)
            took = self.latency(sum(counts.values()), size)
            took *= 0.9 + 0.2 * chance.random()
            copy = (now + took, next(numbers), is_fill, size, took, now)
            heapq.heappush(running, copy)

        while now < seconds:
            while counts[False] < self.readers(now):
                begin(is_fill=False)
            beside = first.beside if self.yields and counts[False] else MOST
            while counts[True] < min(self.found, beside):
                begin(is_fill=True)
            now, _, is_fill, size, took, began = heapq.heappop(running)
            counts[is_fill] -= 1
            if is_fill:
                self.fills.append(now)
            else:
                self.waits.append((now, took))
                if began >= changed:
                    copies.append((size, int(took * 1e9)))
            if now - polled >= POLL_S:
                polled = now
                if first.note(copies, self.found):
                    changed = now
                    first.forget()
                copies = []

    def wait_s(self, since_s: float) -> float:
        """Return the median of the waits after some time."""
        return statistics.median(took for now, took in self.waits if now >= since_s)

    def rate(self, since_s: float, until_s: float) -> float:
        """Return how many copies of both kinds ended in a second of a span."""
        ended = [*self.fills, *(now for now, _ in self.waits)]
        return sum(since_s <= now < until_s for now in ended) / (until_s - since_s)


def some(count: int) -> Callable[[float], int]:
    return lambda _now: count


def test_a_latency_bound_origin_is_filled_at_full_concurrency_beside_two_readers() -> (
    None
):
    for parallel, found in [(1000, MOST), (16, 16)]:
        free = Origin(bound_by_latency(parallel), some(2), found, yields=False)
        origin = Origin(bound_by_latency(parallel), some(2), found)

        free.run(20)
        origin.run(20)

        assert len(origin.fills) > 0.95 * len(free.fills)


@pytest.mark.parametrize("readers", [2, 4, 16])
def test_on_one_link_programs_wait_little_longer_than_without_fill(
    readers: int,
) -> None:
    latency = bound_by_bandwidth(100e6)
    alone = Origin(latency, some(readers), found=0)
    without = Origin(latency, some(readers), found=16, yields=False)
    origin = Origin(latency, some(readers), found=16)

    for one in (alone, without, origin):
        one.run(20)

    assert without.wait_s(5) > 1.5 * alone.wait_s(5)
    assert origin.wait_s(5) < 1.4 * alone.wait_s(5)
    assert origin.rate(5, 20) > 0.97 * alone.rate(5, 20)
    assert len(origin.fills) > 100


@pytest.mark.parametrize("readers", [4, 8, 16])
def test_a_thrashing_origin_delivers_more_in_total_when_fill_yields(
    readers: int,
) -> None:
    without = Origin(thrashing(8), some(readers), found=8, yields=False)
    origin = Origin(thrashing(8), some(readers), found=8)

    without.run(20)
    origin.run(20)

    assert origin.rate(5, 20) > 1.25 * without.rate(5, 20)


def test_more_readers_are_not_mistaken_for_disturbing_fill() -> None:
    """Each of twelve waits six times as long as one of two, fill or not."""
    origin = Origin(bound_by_latency(2), lambda now: 2 if now < 10 else 12, found=4)

    origin.run(60)

    late = [now for now in origin.fills if now >= 30]
    assert len(late) > 100


def test_fill_resumes_when_programs_no_longer_wait() -> None:
    origin = Origin(
        bound_by_bandwidth(100e6), lambda now: 4 if now < 10 else 0, found=8
    )

    origin.run(20)

    beside = sum(5 <= now < 10 for now in origin.fills) / 5
    alone = sum(12 <= now < 20 for now in origin.fills) / 8
    assert alone > 3 * beside


def test_sizes_alone_are_no_reason_to_yield() -> None:
    def sizes(chance: random.Random) -> int:
        return int(10 ** (4 + 2 * chance.random()))

    free = Origin(bound_by_latency(64), some(4), 16, yields=False, size_of=sizes)
    origin = Origin(bound_by_latency(64), some(4), 16, size_of=sizes)

    free.run(20)
    origin.run(20)

    assert len(origin.fills) > 0.95 * len(free.fills)


def test_larger_files_take_longer_and_fill_continues() -> None:
    small = Waits.of([(1000, 0.001)] * DEMANDS)
    large = Waits.of([(100_000, 0.1)] * DEMANDS)

    assert large.slowdown_on(small) == pytest.approx(1.0)


class FakeEngine:
    """Programs that wait twice as long while more than three copies run beside them."""

    def __init__(self) -> None:
        self.beside = 0

    def demands(self) -> list[tuple[int, int]]:
        """Return copies that programs have waited for."""
        return [(IMAGE, 2 * 10**7 if self.beside > 3 else 10**7)] * DEMANDS

    def pace(self) -> Pace:
        """Return that nothing limits fill but demand."""
        return Pace(0, 0, 0, 0, 0, 0)

    def set_background(self, _limit: int, beside: int) -> None:
        """Note how many run beside demand."""
        self.beside = beside


def test_an_agent_has_fill_yield_in_its_engine() -> None:
    engine: Any = FakeEngine()
    nothing: Any = None
    staging = Staging(nothing, engine, nothing, nothing, FillConcurrency(16), nothing)

    beside = []
    for second in range(20):
        staging.adapt(float(second))
        beside.append(engine.beside)

    assert beside[:4] == [0, 1, 4, 2]
    assert set(beside[4:]) == {2, 3, 4}


def test_the_time_without_fill_is_measured_once_it_is_steady() -> None:
    """A parallel file system keeps reading ahead for files that no program reads."""
    yielding = Yielding()

    for copy_s in (0.1, 0.06, 0.03):
        yielding = yielding.after(Waits(copy_s, copy_s), found=8)
        assert yielding.beside == 0
    yielding = yielding.after(Waits(0.029, 0.029), found=8)

    assert yielding.quiet == Waits(0.029, 0.029)
    assert yielding.beside == 1


measured = st.builds(
    Waits,
    copy_s=st.floats(1e-6, 1e3),
    byte_s=st.floats(1e-12, 1e3),
)


@given(st.lists(st.tuples(measured, st.integers(1, MOST)), max_size=300))
def test_fill_never_rests_for_long_without_trying_again(
    seen: list[tuple[Waits, int]],
) -> None:
    yielding, rests = Yielding(), 0

    for waits, found in seen:
        yielding = yielding.after(waits, found)
        rests = 0 if yielding.beside else rests + 1
        assert 0 <= yielding.beside <= MOST
        assert rests <= FALLS_MAX * (PAUSE_MAX + 1)


def some_copies(copy_s: float) -> list[tuple[int, int]]:
    return [(IMAGE, int(copy_s * 1e9))] * DEMANDS


def test_other_nodes_are_asked_to_yield_only_while_programs_wait_too_long() -> None:
    first = DemandFirst()
    asked = [first.asked]
    for copy_s in (0.01, 0.01, 0.01, 0.05):
        first.note(some_copies(copy_s), found=8)
        asked.append(first.asked)
    assert (first.beside, asked) == (2, [MOST, MOST, MOST, MOST, 2])

    for _ in range(CALM_TURNS):
        first.note([], found=8)

    assert first.asked == MOST


def test_fill_obeys_other_nodes_and_learns_nothing_meanwhile() -> None:
    class Quiet(FakeEngine):
        """No program waits, and the origin delivers more and more."""

        files, limit = 0, 0

        def demands(self) -> list[tuple[int, int]]:
            """Return that no program waits."""
            return []

        def pace(self) -> Pace:
            """Return more files each time."""
            self.files += 1000
            return Pace(self.files, self.files, self.files * IMAGE, 0, 0, 0)

        def set_background(self, limit: int, _beside: int) -> None:
            """Note how many copies may run."""
            self.limit = limit

    engine: Any = Quiet()
    nothing: Any = None
    staging = Staging(nothing, engine, nothing, nothing, FillConcurrency(None), nothing)

    staging.adapt(0.0, 3)
    first = engine.limit
    for second in range(1, 20):
        staging.adapt(float(second), 3)
    held = engine.limit, staging.concurrency.limit
    staging.adapt(20.0, MOST)

    assert first == 3
    assert held == (3, 8)
    assert engine.limit == 8


def bursts(chunk_s: float) -> list[tuple[int, int]]:
    """Chunks of a file system that reads 32 of them at once and gives them then."""
    burst = [(LARGE_BYTES, 1000)] * 31 + [(LARGE_BYTES, int(32 * chunk_s * 1e9))]
    return burst * 4


def test_where_a_file_system_reads_far_ahead_the_mean_of_many_chunks_counts() -> None:
    first = DemandFirst()
    besides = []
    for chunk_s in (0.02, 0.02, 0.03):
        for part in range(4):
            first.note(bursts(chunk_s)[32 * part : 32 * part + 32], found=8)
        besides.append(first.beside)

    assert besides == [0, 1, 0]


@pytest.mark.parametrize(("files", "beside"), [(1900, 4), (1300, 0)])
def test_fill_continues_where_it_gains_more_than_programs_lose(
    files: int, beside: int
) -> None:
    """Each file that they wait for takes twice as long in both cases."""
    first = DemandFirst()
    for second, (copy_ms, total) in enumerate(
        [(1, 1000), (1, 2000), (2, 2000 + files)]
    ):
        first.note(some_copies(copy_ms / 1000), 8, (total, float(second)))

    assert first.beside == beside
