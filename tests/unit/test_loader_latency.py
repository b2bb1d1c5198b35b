"""The criteria C1-C8: sources that answer late, out of order, or not at all."""

import time
from typing import Any

import numpy as np
import pytest

from monarch.loader import LoaderError
from monarch.loader.options import depth
from monarch.loader.progress import Backlog
from monarch.records import Records, RecordsError
from support.latency_source import LatencySource, loader_of, outstanding, rate

RTT_S = 0.05
LATE: Any = {"late": 0.05}
SMALL = 1000
GIGABIT = 125e6


def source_of(count=4000, size=SMALL, rtt_s=RTT_S, **faults):
    return LatencySource(count, size, rtt_s, **faults)


def epoch_of(loader):
    found = []
    for batch in loader:
        for number, record in zip(batch.ids.tolist(), batch.records, strict=True):
            assert int.from_bytes(record[:8], "little") == number
        found.append(batch.ids.tolist())
    return found


def test_requests_ahead_hide_the_latency():
    """C1: as fast as without latency, and six times as fast as without prefetch."""
    big: Any = {"size": 100 << 10, "link": GIGABIT}
    with loader_of(source_of(rtt_s=0.1, **big), 16, prefetch_batches=0) as loader:
        alone = rate(loader, 5)
    with loader_of(source_of(rtt_s=0.1, **big), 16, prefetch_batches=12) as loader:
        # The link carries at most 76 batches a second; a machine may be busy once.
        ahead = max(rate(loader, 60, skip=10) for _ in range(2))

    assert ahead >= 6 * alone
    assert ahead >= 0.8 * 76


def test_a_late_record_does_not_hold_up_its_batch():
    """C2: 5% of the replies take ten times as long."""
    # A machine that is busy for some seconds hides the gain; it is not busy for long.
    gains = (gain_out_of_order() for _ in range(3))
    assert any(gain >= 2 for gain in gains)


def gain_out_of_order():
    far: Any = {"rtt_s": 0.15, **LATE}
    with loader_of(source_of(**far), 16, prefetch_batches=4) as loader:
        in_order = rate(loader, 16, skip=4)
    with loader_of(source_of(**far), 16, in_order=False, reorder_window=4) as loader:
        return rate(loader, 40, skip=4) / in_order


@pytest.mark.parametrize("ahead", [1, 4, 32])
@pytest.mark.parametrize("slow_start", [0, 1, 4])
def test_the_ramp_up_has_exact_numbers(ahead, slow_start):
    """C3: after k batches min(W, ceil(k / s)) are asked for ahead."""
    for k in range(200):
        wanted = min(ahead, -(-k // slow_start)) if slow_start else ahead
        assert depth(k, ahead, slow_start) == wanted
    if (ahead, slow_start) == (32, 4):
        full = next(k for k in range(200) if depth(k, ahead, slow_start) == ahead)
        assert full == (ahead - 1) * slow_start + 1


@pytest.mark.parametrize(("slow_start", "most"), [(0, 5), (8, 2)])
def test_a_slow_start_asks_for_one_batch_after_the_other(tmp_path, slow_start, most):
    """C3 at the source: requests that are outstanding after the first five batches."""
    log = tmp_path / "log"
    # None are neighbours; all requests are sent before the first reply arrives.
    source = source_of(200_000, rtt_s=1.0, log=str(log))
    options: Any = {"prefetch_batches": 4, "slow_start": slow_start}
    with loader_of(source, 16, **options) as loader:
        rate(loader, 5, skip=0)

    assert outstanding(log) == most * 16


def test_no_record_crosses_an_epoch_and_every_one_is_yielded_once():
    """C4, with late replies and lost ones."""
    source = source_of(500, rtt_s=0.01, late=0.05, lost=0.01)
    options: Any = {"in_order": False, "remainder": "uneven", "reorder_window": 4}
    with loader_of(source, 32, **options) as loader:
        epochs = [epoch_of(loader) for _ in range(3)]

    for batches in epochs:
        assert sorted(n for ids in batches for n in ids) == list(range(500))
        assert [len(ids) for ids in batches] == [32] * 15 + [20]


def test_the_order_repeats_or_follows_the_log(tmp_path):
    """C5: in order by the seed; out of order by the log."""
    fast = source_of(500, rtt_s=0.01, **LATE)
    with loader_of(fast, 32) as loader, loader_of(fast, 32) as again:
        assert epoch_of(loader) == epoch_of(again)
    options: Any = {"in_order": False, "reorder_window": 3}
    with loader_of(fast, 32, order_log=tmp_path / "log", **options) as loader:
        logged = epoch_of(loader)
    with loader_of(
        source_of(500, 1000, 0.0), 32, replay=tmp_path / "log", **options
    ) as (loader):
        assert epoch_of(loader) == logged


def test_a_slow_consumer_holds_no_more_than_it_asked_for(tmp_path):
    """C6: W batches ahead and the one that it has."""
    log = tmp_path / "log"
    with loader_of(source_of(log=str(log)), 16, prefetch_batches=3) as loader:
        for number, _ in enumerate(loader):
            time.sleep(0.05)
            begun = log.read_text().count("+")
            assert begun <= (number + 1 + 3) * 16
            if number == 8:
                break
        assert loader.stats()["memory_peak_bytes"] <= 5 * (64 << 10)


def test_lost_replies_are_requested_again():
    """C7: 1% is lost."""
    with loader_of(source_of(2000, rtt_s=0.01, lost=0.01), 50) as loader:
        found = epoch_of(loader)
        assert loader.stats()["retries"] > 0
    assert sorted(n for ids in found for n in ids) == list(range(2000))


def test_a_record_that_is_never_answered_is_named():
    with (
        loader_of(source_of(200, rtt_s=0.01, never=(77,)), 20) as loader,
        pytest.raises(LoaderError, match=r"record 77: no reply \(4 attempts\)"),
    ):
        epoch_of(loader)


def test_a_late_reply_is_requested_from_another_replica():
    with loader_of(source_of(**LATE, replicas=2), 64, prefetch_batches=4) as loader:
        rate(loader, 10, skip=4)
        stats = loader.stats()
    assert stats["hedges"] > 0


def test_ten_splits_of_200_000_records_touch_no_data(tmp_path):
    """C8; and a selection yields the Records that were selected."""
    log = tmp_path / "log"
    records = Records(source_of(200_000, log=str(log)), indexed=False)
    rng = np.random.default_rng(1)
    began_s = time.monotonic()
    splits = []
    for part in range(10):
        numbers = rng.permutation(200_000)[: 20_000 * (part + 1)]
        splits.append((numbers, records.select(numbers)))
    assert time.monotonic() - began_s < 2
    assert not log.exists()

    numbers, split = splits[3]
    assert len(split) == 80_000
    found = split.source.read([split.index.range_of(5)])[0]
    assert int.from_bytes(found[:8], "little") == numbers[5]
    with pytest.raises(RecordsError, match="cannot be selected"):
        records.select([200_000])


# -- delivery out of order -------------------------------------------------------------


def test_a_backlog_takes_ready_records_and_ends_with_its_epoch():
    backlog = Backlog([4, 8, 10], window=1)
    backlog.ask(9)
    assert backlog.open == list(range(8))
    assert backlog.choose(np.array([0, 1, 0, 1, 1, 0, 0, 0], bool)) is None

    chosen = backlog.choose(np.array([0, 1, 0, 1, 1, 0, 1, 1], bool))

    assert chosen == [1, 3, 4, 6]
    assert backlog.give(chosen) == 0
    assert (backlog.low, backlog.late()) == (0, (1, 3, 4, 6))
    again = Backlog([4, 8, 10], 1, 1, backlog.late())
    for one in (backlog, again):
        one.ask(9)
        assert one.open == [0, 2, 5, 7, 8, 9]
        assert one.late() == (1, 3, 4, 6)
    assert backlog.give([0, 2, 8, 9]) == 2
    backlog.ask(9)
    assert (backlog.size, backlog.choose(np.ones(2, bool))) == (2, [5, 7])
