"""The forecast of a Placement: it counts what the nodes themselves would hold."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.placement import Mode, Node, Placement
from monarch.placement.forecast import forecast
from monarch.stager.capacity import footprints

SIZES = st.lists(st.integers(0, 150_000), max_size=120).map(
    lambda sizes: np.array(sizes, np.uint64)
)
CAPACITIES = st.lists(st.integers(0, 4_000_000), min_size=1, max_size=7)


@settings(max_examples=40, deadline=None)
@given(SIZES, CAPACITIES, st.sampled_from(Mode))
def test_each_share_is_what_the_node_itself_would_hold(sizes, capacities, mode):
    nodes = [Node(f"node{number}", room) for number, room in enumerate(capacities)]
    placement = Placement(nodes, footprints(sizes), 3, mode)

    found = forecast(placement, sizes)

    kept = [placement.kept(node) for node in range(len(nodes))]
    copies = np.sum([mask.astype(int) for mask in kept], axis=0)
    for node, share in enumerate(found.shares):
        assert share.held_files == kept[node].sum()
        assert share.held_bytes == sizes[kept[node]].sum()
        assert share.room_bytes == placement.needs[kept[node]].sum()
        assert share.room_bytes <= share.capacity_bytes
        assert share.owned_files == np.count_nonzero(placement.owners == node)
        assert share.only_here_bytes == sizes[kept[node] & (copies == 1)].sum()
    assert found.held_files == np.count_nonzero(copies)
    assert found.left_bytes == sizes[copies == 0].sum()
    assert round(found.copies * found.held_files) == copies.sum()


def test_sums_are_exact_where_floats_are_not():
    sizes = np.array([2**53 + 1, 1], np.uint64)
    placement = Placement([Node("one", 2**62)], sizes, 0, Mode.AUTO)

    assert forecast(placement, sizes).shares[0].held_bytes == 2**53 + 2


def test_the_origin_gives_held_files_once_and_the_others_each_time():
    sizes = np.array([4096] * 10, np.uint64)
    placement = Placement([Node("one", 6 * 4096)], sizes, 0, Mode.AUTO)

    found = forecast(placement, sizes)

    assert found.origin_bytes(epochs=0, readers=1) == 0
    assert found.origin_bytes(epochs=1, readers=1) == 10 * 4096
    assert found.origin_bytes(epochs=3, readers=2) == (6 + 3 * 2 * 4) * 4096
