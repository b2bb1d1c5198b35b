"""The decisions of a Policy for each unit, alone and in a cluster; order of fill."""

import numpy as np
import pytest

from monarch.native import NO_SOURCE, SOURCES_MAX
from monarch.placement import Mode, Node, Placement
from monarch.stager import Destination, Policy
from support.placements import EXTENT_BYTES, place_sizes, place_whole, units_of

PAGE = 4096
NODES = 4


def placed(mode: Mode, files: int = 1000, room_files: int = 1 << 18) -> Placement:
    """Files of one page each on some nodes, each with the same room."""
    needs = np.full(files, PAGE, np.uint64)
    nodes = [Node(f"n{number}", room_files * PAGE) for number in range(NODES)]
    return place_whole(nodes, needs, 7, mode)


def alone(files: int) -> Policy:
    """The Policy of a node alone with Files of one page."""
    return Policy.alone(units_of(np.full(files, PAGE, np.uint64)))


def destinations(policy: Policy) -> set[Destination]:
    return {Destination(number) for number in policy.destinations.tolist()}


def test_a_node_alone_keeps_all_and_reads_the_origin():
    policy = alone(5)

    assert destinations(policy) == {Destination.TIER}
    assert [list(policy.sources(file)) for file in range(5)] == [[]] * 5
    assert all(policy.owns(file) for file in range(5))
    assert (list(policy.to_read), list(policy.to_fetch)) == ([0, 1, 2, 3, 4], [])
    assert not policy.uses_pool


@pytest.mark.parametrize(
    ("mode", "others"),
    [(Mode.PARTITION, Destination.POOL), (Mode.AUTO, Destination.SPARE)],
)
def test_files_that_a_node_of_a_cluster_does_not_keep_pass_through(mode, others):
    placement = placed(mode, room_files=300)

    policy = Policy.cluster(placement, 1)

    kept = placement.kept(1)
    assert (policy.kept == kept).all()
    assert {Destination(n) for n in policy.destinations[~kept].tolist()} == {others}
    assert policy.uses_pool


def test_a_file_that_no_node_has_room_for_is_stored_nowhere():
    placement = placed(Mode.PARTITION, room_files=100)

    policy = Policy.cluster(placement, 0)

    assert (policy.placed == placement.placed).all()
    nowhere = policy.destinations[~placement.placed]
    assert set(nowhere.tolist()) == {Destination.NOWHERE}


def test_peers_are_asked_in_the_order_of_the_placement_up_to_this_node():
    placement = placed(Mode.REPLICATE)
    for own in range(NODES):
        policy = Policy.cluster(placement, own)
        for file in range(50):
            order = placement.order(file)
            assert list(policy.sources(file)) == order[: order.index(own)]
            assert policy.owner(file) == order[0]


def test_the_files_that_fill_reads_and_fetches_are_all_that_the_node_keeps():
    placement = placed(Mode.REPLICATE)

    policies = [Policy.cluster(placement, node) for node in range(NODES)]

    owned = np.concatenate([policy.to_read for policy in policies])
    assert sorted(owned.tolist()) == list(range(1000))
    for node, policy in enumerate(policies):
        mine, others = np.array(policy.to_read), np.array(policy.to_fetch)
        assert (placement.owners[mine] == node).all()
        assert sorted([*mine.tolist(), *others.tolist()]) == list(range(1000))
        assert (np.diff(mine.astype(int)) > 0).all()
        assert (np.diff(others.astype(int)) > 0).all()


def mixed(count: int = 60) -> np.ndarray:
    """Sizes of small Files, and of large ones of some Extents."""
    random = np.random.default_rng(3)
    small = random.integers(0, EXTENT_BYTES, count)
    large = EXTENT_BYTES + random.integers(1, 9 * EXTENT_BYTES, count)
    return np.where(random.random(count) < 0.5, small, large).astype(np.uint64)


def cut(mode: Mode, share: float, above_bytes: int = EXTENT_BYTES) -> Placement:
    """Some large Files among small ones, on nodes with room for a share of them."""
    sizes = mixed()
    room = int(int(sizes.sum()) * share)
    nodes = [Node(f"n{number}", room) for number in range(NODES)]
    return place_sizes(nodes, sizes, 7, mode, above_bytes)


@pytest.mark.parametrize("above", [EXTENT_BYTES, 4 * EXTENT_BYTES, 1 << 62])
@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("mode", Mode)
def test_the_rows_hold_destination_and_first_source_of_each_unit(mode, share, above):
    placement = cut(mode, share, above)
    units = placement.units
    for own in range(NODES):
        policy = Policy.cluster(placement, own)

        rows = policy.rows()

        ends = np.append(units.rows_of(np.arange(len(units))), units.rows).tolist()
        assert len(rows) == ends[-1] == units.rows
        for unit, kept in enumerate(placement.kept(own).tolist()):
            asked = placement.order(unit)
            asked = asked[: asked.index(own)][:SOURCES_MAX]
            asked += [NO_SOURCE] * (SOURCES_MAX - len(asked))
            for row in rows[ends[unit] : ends[unit + 1]]:
                assert row["sources"].tolist() == asked
                assert (row["destination"] == Destination.TIER) == kept
                nowhere = row["destination"] == Destination.NOWHERE
                assert nowhere == (not placement.placed[unit])


def test_the_extents_of_a_large_file_differ_in_their_rows():
    rows = Policy.cluster(cut(Mode.PARTITION, 0.3), 1).rows()
    first = units_of(mixed()).first

    assert any(
        len(set(rows["destination"][first[file] : first[file + 1]].tolist())) > 1
        for file in range(len(mixed()))
    )


def test_the_rows_of_a_node_alone_ask_nobody_and_keep_all():
    for policy in (alone(5), Policy.alone(units_of(mixed(), 1 << 62))):
        rows = policy.rows()

        assert len(rows) == policy.units.rows
        assert set(rows["sources"].ravel().tolist()) == {NO_SOURCE}
        assert set(rows["destination"].tolist()) == {Destination.TIER}


def test_fill_reads_each_large_file_of_which_the_node_keeps_something():
    placement = cut(Mode.PARTITION, 0.3)
    units = placement.units
    for own in range(NODES):
        policy = Policy.cluster(placement, own)

        some = np.flatnonzero(units.any_of(placement.kept(own)))
        large = some[units.is_large[some]]
        small = some[~units.is_large[some]]
        owned = small[placement.owners[units.first[small]] == own]
        assert policy.to_read_in_part.tolist() == large.tolist()
        assert policy.to_read.tolist() == sorted([*large.tolist(), *owned.tolist()])
        assert policy.to_fetch.tolist() == sorted(set(small) - set(owned))
        assert len(large)
        assert len(owned)


def test_queries_for_a_large_file_as_one_use_its_first_extent():
    placement = cut(Mode.AUTO, 0.3)
    policy = Policy.cluster(placement, 2)
    for file in np.flatnonzero(placement.units.is_large).tolist():
        unit = int(placement.units.first[file])
        order = placement.order(unit)

        assert list(policy.sources(file)) == order[: order.index(2)]
        assert policy.owner(file) == order[0]
        assert policy.destination(file) == policy.destinations[unit]
        assert policy.owned(np.array([file])).tolist() == [file] * (order[0] == 2)


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REPLICATE])
def test_where_everything_fits_each_node_keeps_every_extent(mode):
    for own in range(NODES):
        policy = Policy.cluster(cut(mode, 1.1), own)

        assert policy.kept.all()
        assert policy.kept_whole.all()
