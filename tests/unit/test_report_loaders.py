"""The figures that loaders send the agent, and their part of a report."""

import pytest

from monarch.agent.loaders import LoaderRows
from monarch.errors import MonarchError
from monarch.loader.figures import LoaderCounts
from monarch.report.loaders import loader_lines, loader_summary, together
from monarch.report.model import LoaderFigures

READER = {"requests": 10, "request_bytes": 5000, "memory_peak_bytes": 700}


def told_by(rank, waits_s, busy_s=3.0, reader_pid=1, **reader):
    counts = LoaderCounts()
    for wait_s in waits_s:
        counts.add_wait(wait_s)
        counts.add_batch(4, 1000, 2, 8)
    counts.busy_s = busy_s
    figures = {**READER, **reader, "reader_pid": reader_pid}
    return {"rank": rank, "number": 1, "stats": counts.stats(figures, restarts=0)}


def test_the_slowest_rank_and_the_sums_of_all_are_reported():
    rows = LoaderRows()
    rows.take(told_by(0, [0.1, 0.1]), pid=1)
    rows.take(told_by(1, [0.5, 0.5, 2.0], requests=12), pid=2)

    found = loader_summary(rows.figures())

    assert found is not None
    assert (found["ranks"], found["batches"], found["bytes"]) == (2, 5, 5000)
    assert (found["slowest_rank"], found["waited_s"]) == (1, 3.0)
    assert (found["wait_p50_s"], found["wait_max_s"]) == (0.5, 2.0)
    assert found["utilization_min"] == 0.5
    # Both have the same reader, whose figures grow.
    assert (found["requests"], found["request_bytes"]) == (12, 5000)
    assert found["read_per_delivered"] == 1.0
    lines = loader_lines({"loader": found})
    assert "2 ranks took 5 batches" in lines[0]
    assert "rank 1 waited 3.0 s in all" in lines[0]
    assert "12 requests of 416 B on average" in lines[1]
    assert "read 1.00 x the delivered bytes" in lines[1]


def test_a_store_is_reported_with_its_servers():
    store = {
        "store_delay_p50_s": 0.1,
        "store_delay_p99_s": 0.2,
        "store_window": 1088,
        "store_reconnects": 1,
        "retries": 4,
        "hedges": 2,
    }
    rows = LoaderRows()
    rows.take(told_by(0, [0.1], store_servers={"h1:1": 30, "h2:1": 10}, **store), pid=1)
    store |= {"store_delay_p50_s": 0.3}
    other = told_by(1, [0.1], 3.0, 2, store_servers={"h1:1": 10}, **store)
    rows.take(other, pid=2)

    found = loader_summary(rows.figures())

    assert found is not None
    assert (found["retries"], found["store_reconnects"]) == (8, 2)
    assert found["store_delay_p50_s"] == 0.3
    assert dict(zip(found["store_servers"], found["store_served"], strict=True)) == {
        "h1:1": 40,
        "h2:1": 10,
    }
    assert loader_lines({"loader": found})[2] == (
        "  loaders: the store answered in 300 ms (p50), 200 ms (p99), up to 1,088 "
        "requests in flight; 8 retries, 4 hedges, 2 lost connections; by server: "
        "h1:1 80.0%, h2:1 20.0%"
    )


def test_later_figures_of_a_loader_replace_earlier_ones():
    rows = LoaderRows()
    rows.take(told_by(0, [0.1]), pid=1)
    rows.take(told_by(0, [0.1, 0.1]), pid=1)

    assert (rows.figures().ranks, rows.figures().batches) == (1, 2)


def test_nodes_are_summed_up_and_readers_of_different_nodes_are_different_ones():
    nodes = []
    for rank in range(3):
        rows = LoaderRows()
        rows.take(told_by(rank, [0.1 * (rank + 1)]), pid=1)
        nodes.append(rows.figures())

    found = together(nodes)

    assert (found.ranks, found.requests, found.memory_bytes) == (3, 30, 2100)
    assert found.slowest_rank == 2


def test_a_report_without_loaders_does_not_mention_them():
    assert loader_summary(LoaderFigures()) is None
    assert loader_lines({"loader": None}) == []
    assert loader_lines({}) == []


@pytest.mark.parametrize(
    "asked",
    [{}, {"stats": 3, "rank": 0, "number": 1}, {"stats": {}, "rank": 0, "number": 1}],
)
def test_invalid_figures_of_a_loader_are_refused(asked):
    with pytest.raises(MonarchError, match="not the figures of a loader"):
        LoaderRows().take(asked, pid=1)


def test_quality_is_one_where_each_batch_is_of_as_many_groups_as_chance_gives():
    counts = LoaderCounts()
    for _ in range(100):
        counts.add_batch(8, 800, 8, 1000)

    assert counts.stats({}, 0)["shuffle_quality"] == pytest.approx(1.0)
    counts.add_batch(800, 800, 1, 1000)
    assert counts.stats({}, 0)["shuffle_quality"] < 0.8
