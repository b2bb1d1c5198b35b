"""What a Policy says of each File, alone and in a cluster, and the order of fill."""

import numpy as np
import pytest

from monarch.native import NO_SOURCE, SOURCES_MAX
from monarch.placement import Mode, Node, Placement
from monarch.stager import Destination, Policy

PAGE = 4096
NODES = 4


def placed(mode: Mode, files: int = 1000, room_files: int = 1 << 18) -> Placement:
    """Files of one page each on some nodes, each with the same room."""
    needs = np.full(files, PAGE, np.uint64)
    nodes = [Node(f"n{number}", room_files * PAGE) for number in range(NODES)]
    return Placement(nodes, needs, 7, mode)


def destinations(policy: Policy) -> set[Destination]:
    return {Destination(number) for number in policy.destinations.tolist()}


def test_a_node_alone_keeps_all_and_reads_the_origin():
    policy = Policy.alone(5)

    assert destinations(policy) == {Destination.TIER}
    assert [list(policy.sources(file)) for file in range(5)] == [[]] * 5
    assert all(policy.owns(file) for file in range(5))
    assert (list(policy.to_read), list(policy.to_fetch)) == ([0, 1, 2, 3, 4], [])
    assert not policy.uses_pool


@pytest.mark.parametrize(
    ("mode", "others"),
    [(Mode.PARTITION, Destination.POOL), (Mode.AUTO, Destination.SPARE)],
)
def test_what_a_node_of_a_cluster_does_not_keep_passes_through(mode, others):
    placement = placed(mode, room_files=300)

    policy = Policy.cluster(placement, 1)

    kept = placement.kept(1)
    assert (policy.kept == kept).all()
    assert {Destination(n) for n in policy.destinations[~kept].tolist()} == {others}
    assert policy.uses_pool


def test_a_file_that_no_node_has_room_for_goes_nowhere():
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


@pytest.mark.parametrize("mode", Mode)
def test_the_rows_name_the_peers_that_are_asked_first_for_each_extent(mode):
    placement = placed(mode, files=200, room_files=180)
    first = np.cumsum([0, *np.random.default_rng(3).integers(1, 4, 200).tolist()])
    for own in range(NODES):
        policy = Policy.cluster(placement, own)

        rows = policy.rows(first.astype(np.uint64))

        assert len(rows) == first[-1]
        for file in range(200):
            asked = list(policy.sources(file))[:SOURCES_MAX]
            asked += [NO_SOURCE] * (SOURCES_MAX - len(asked))
            for row in rows[first[file] : first[file + 1]]:
                assert row["sources"].tolist() == asked
                assert row["destination"] == policy.destination(file)


def test_the_rows_of_a_node_alone_ask_nobody_and_keep_all():
    rows = Policy.alone(5).rows(np.arange(6, dtype=np.uint64))

    assert set(rows["sources"].ravel().tolist()) == {NO_SOURCE}
    assert set(rows["destination"].tolist()) == {Destination.TIER}
