"""What a Policy says of each File, alone and in a cluster, and the order of fill."""

import numpy as np
import pytest

from monarch.placement import Mode, Node, Placement
from monarch.stager import Destination, Policy
from monarch.stager.fill import FillOrder

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


def test_fill_takes_due_files_in_catalog_order_and_each_only_once():
    order = FillOrder(range(10))

    first = order.take(3, lambda file: file % 2 == 0)
    second = order.take(9, lambda file: file % 2 == 0)

    assert (first, second) == ([0, 2, 4], [6, 8])
    assert order.remaining == 0


def test_one_look_ahead_is_bounded_where_nothing_is_due():
    order = FillOrder(range(1000))

    assert order.take(1, lambda file: False) == []
    assert order.remaining == 1000 - 64


def test_an_order_knows_how_far_it_has_come():
    order = FillOrder(range(200))

    order.take(50, lambda file: True)

    assert order.part == 0.25
    assert order.before(0.5) == 50
    assert order.before(0.1) == 0
    assert FillOrder(range(0)).part == 1.0
