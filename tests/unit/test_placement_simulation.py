"""The model of epochs: their limits, and known results."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.placement.simulation import (
    Reading,
    Site,
    TierRate,
    simulate,
    without_monarch,
)

SIZE = 100_000.0
FILES = 10_000
TOTAL = int(FILES * SIZE)


def site(*shares, **more):
    """A site whose origin delivers 100 MB/s, and whose tiers are far faster."""
    tiers = tuple(TierRate(f"tier{n}", share, 4e9) for n, share in enumerate(shares))
    usual = {"origin_bytes_per_s": 1e8, "origin_latency_s": 1e-3}
    return Site(**{**usual, "network_bytes_per_s": 1e9, "tiers": tiers, **more})


def reading(**more):
    usual = {"files": FILES, "file_bytes": SIZE, "held": 1.0}
    return Reading(**{**usual, "nodes": 1, "passes": 1, "readers": 4, **more})


def test_the_origin_limits_the_first_epoch_and_tiers_the_later_ones():
    first, later = simulate(site(1.0), reading())

    assert first.limited_by == "origin"
    assert first.seconds == pytest.approx(10, rel=0.02)
    assert first.origin_bytes == pytest.approx(TOTAL, rel=0.01)
    assert later.limited_by == "tier0"
    # Four readers that share a tier of 4 GB/s.
    assert later.seconds == pytest.approx(TOTAL / 4e9, rel=0.02)
    assert later.read == {"origin": 0, "peers": 0, "tier0": TOTAL}
    assert later.origin_bytes == 0


def test_files_without_room_are_read_from_the_origin_in_each_epoch():
    _, later = simulate(site(0.25), reading(held=0.25))

    assert later.seconds == pytest.approx(7.5, rel=0.02)
    assert later.origin_bytes == later.read["origin"] == pytest.approx(0.75 * TOTAL)


def test_computing_hides_reading_where_readers_read_ahead():
    first, later = simulate(site(1.0), reading(compute_s=2e-3))

    assert (first.limited_by, later.limited_by) == ("compute", "compute")
    assert [first.seconds, later.seconds] == pytest.approx([20, 20])


def test_readers_that_compute_themselves_wait_too():
    compute = reading(compute_s=4e-3, in_readers=True)
    no_fill = replace(site(1.0), fill_copies=0)
    alone = 4e-3 + 2 * 1e-3 + 1e-3  # computing, two requests, the bytes

    first, _ = simulate(no_fill, compute)

    assert first.seconds == pytest.approx(FILES * alone / 4, rel=0.02)


def test_fill_reads_ahead_of_readers_that_wait_for_each_file():
    slow = reading(readers=1, compute_s=1e-3, in_readers=True)
    filled, _ = simulate(site(1.0), slow)
    reactive, _ = simulate(site(1.0, fill_copies=0), slow)

    assert reactive.limited_by == "origin latency"
    assert reactive.seconds == pytest.approx(FILES * 4e-3, rel=0.02)
    assert filled.seconds < 0.5 * reactive.seconds
    assert filled.origin_bytes == reactive.origin_bytes == pytest.approx(TOTAL)


def test_more_readers_help_where_latency_limits():
    few = without_monarch(site(), reading(readers=1))
    many = without_monarch(site(), reading(readers=2))

    assert few.limited_by == "origin latency"
    assert many.seconds == pytest.approx(few.seconds / 2)


def test_a_slow_network_limits_nodes_that_share():
    slow = site(0.5, network_bytes_per_s=1e7)

    _, later = simulate(slow, reading(nodes=2))

    assert later.limited_by == "network"
    # Each node reads half of the files, and half of these from the other one.
    assert later.seconds == pytest.approx(TOTAL / 4 / 1e7)
    assert later.read["peers"] == pytest.approx(TOTAL / 2)


def test_nodes_that_read_everything_share_one_read_of_the_origin():
    everything = reading(nodes=4, passes=4)
    first, later = simulate(site(0.25), everything)
    direct = without_monarch(site(), everything)

    assert first.origin_bytes == pytest.approx(TOTAL, rel=0.02)
    assert first.seconds == pytest.approx(direct.seconds / 4, rel=0.05)
    assert sum(later.read.values()) == pytest.approx(4 * TOTAL)


def test_tiers_are_read_as_fast_as_they_are():
    tiers = (TierRate("ram", 0.5, 1e9), TierRate("ssd", 0.5, 1e8))

    _, later = simulate(replace(site(), tiers=tiers), reading(readers=64))

    assert later.limited_by == "ssd"
    assert later.seconds == pytest.approx(5)


def test_an_empty_dataset_takes_no_time():
    first, later = simulate(site(1.0), reading(files=0))

    assert first.seconds == later.seconds == 0


@settings(max_examples=80, deadline=None)
@given(
    held=st.floats(0, 1),
    nodes=st.integers(1, 9),
    everything=st.booleans(),
    compute_ms=st.floats(0, 5),
    serial=st.booleans(),
)
def test_all_bytes_are_read_and_none_twice_from_the_origin(
    held, nodes, everything, compute_ms, serial
):
    passes = nodes if everything else 1
    read = reading(
        held=held,
        nodes=nodes,
        passes=passes,
        compute_s=compute_ms / 1000,
        in_readers=serial,
    )
    here = site(held / nodes)
    first, later = simulate(here, read)
    direct = without_monarch(here, read)

    for epoch in (first, later):
        assert sum(epoch.read.values()) == pytest.approx(passes * TOTAL, rel=1e-3)
    left = passes * (1 - held) * TOTAL
    assert first.origin_bytes == pytest.approx(left + held * TOTAL, rel=0.02)
    assert later.origin_bytes == pytest.approx(left, rel=1e-3, abs=1000)
    # The network is faster than this origin, so that Monarch gains.
    assert later.seconds <= first.seconds * 1.01 <= direct.seconds * 1.03
