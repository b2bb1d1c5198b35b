"""The forecast of a Placement: it counts the files that the nodes would hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.placement import Mode, Node
from monarch.placement.forecast import forecast
from monarch.stager.capacity import footprints
from support.placements import EXTENT_BYTES, place_sizes, place_whole

PAGE = 4096

SIZES = st.lists(st.integers(0, 150_000), max_size=120).map(
    lambda sizes: np.array(sizes, np.uint64)
)
CAPACITIES = st.lists(st.integers(0, 4_000_000), min_size=1, max_size=7)


LARGE = st.lists(
    st.one_of(st.integers(0, 2 * PAGE), st.integers(0, 9 * EXTENT_BYTES)), max_size=40
).map(lambda sizes: np.array(sizes, np.uint64))
ROOMS = st.lists(st.integers(0, 60 * EXTENT_BYTES), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(SIZES, CAPACITIES, st.sampled_from(Mode))
def test_each_share_is_what_the_node_itself_would_hold(sizes, capacities, mode):
    nodes = [Node(f"node{number}", room) for number, room in enumerate(capacities)]
    placement = place_whole(nodes, footprints(sizes), 3, mode)

    check(placement, sizes)


@settings(max_examples=60, deadline=None)
@given(LARGE, ROOMS, st.sampled_from(Mode))
def test_each_share_is_what_the_node_itself_would_hold_of_large_files(
    sizes, capacities, mode
):
    nodes = [Node(f"node{number}", room) for number, room in enumerate(capacities)]

    check(place_sizes(nodes, sizes, 3, mode), sizes)


@pytest.mark.parametrize("mode", Mode)
def test_large_files_whose_extents_are_counted_in_several_steps_count_once(
    monkeypatch, mode
):
    monkeypatch.setattr("monarch.placement.placement.CHUNK", 7)
    sizes = np.array([40, 1, 13, 2, 2, 30], np.uint64) * EXTENT_BYTES
    for room in (5, 20, 60, 100):
        nodes = [Node(f"node{number}", room * EXTENT_BYTES) for number in range(3)]

        check(place_sizes(nodes, sizes, 3, mode), sizes)


def check(placement, sizes):
    """Compare a forecast with each node's own figures."""
    units, nodes = placement.units, placement.nodes
    lengths = units.spread(sizes)

    found = forecast(placement, sizes)

    kept = [placement.kept(node) for node in range(len(nodes))]
    copies = np.sum([mask.astype(int) for mask in kept], axis=0)
    for node, share in enumerate(found.shares):
        whole, some = units.all_of(kept[node]), units.any_of(kept[node])
        assert share.held_files == whole.sum()
        assert share.part_files == (some & ~whole).sum()
        assert share.held_bytes == lengths[kept[node]].sum()
        assert share.room_bytes == placement.needs[kept[node]].sum()
        assert share.room_bytes <= share.capacity_bytes
        owned = units.any_of(placement.owners == node)
        assert share.owned_files == np.count_nonzero(owned)
        assert share.only_here_bytes == lengths[kept[node] & (copies == 1)].sum()
    some, whole = units.any_of(copies > 0), units.all_of(copies > 0)
    assert found.held_files == np.count_nonzero(whole)
    assert found.partly_held_files == np.count_nonzero(some & ~whole)
    assert found.left_bytes == lengths[copies == 0].sum()
    assert found.room_bytes == placement.needs.sum()
    assert round(found.copies * np.count_nonzero(copies)) == copies.sum()


def test_sums_are_exact_where_floats_are_not():
    sizes = np.array([2**53 + 1, 1], np.uint64)
    placement = place_whole([Node("one", 2**62)], sizes, 0, Mode.AUTO)

    assert forecast(placement, sizes).shares[0].held_bytes == 2**53 + 2


def test_held_files_are_read_from_the_origin_once_and_others_each_time():
    sizes = np.array([4096] * 10, np.uint64)
    placement = place_whole([Node("one", 6 * 4096)], sizes, 0, Mode.AUTO)

    found = forecast(placement, sizes)

    assert found.origin_bytes(epochs=0, readers=1) == 0
    assert found.origin_bytes(epochs=1, readers=1) == 10 * 4096
    assert found.origin_bytes(epochs=3, readers=2) == (6 + 3 * 2 * 4) * 4096
