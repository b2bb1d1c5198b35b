"""The order of background fill."""

import numpy as np

from monarch.placement import FillOrder, Mode, Node, Placement, fill_files


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


def test_the_files_of_a_node_and_of_others_are_all_that_it_keeps():
    needs = np.full(1000, 4096, np.uint64)
    nodes = [Node(f"n{number}", 1 << 30) for number in range(4)]
    placement = Placement(nodes, needs, 7, Mode.REPLICATE)

    lists = [fill_files(placement, placement.kept(node), node) for node in range(4)]

    owned = np.concatenate([mine for mine, _ in lists])
    assert sorted(owned.tolist()) == list(range(1000))
    for node, (mine, others) in enumerate(lists):
        assert (placement.owners[mine] == node).all()
        assert sorted([*mine.tolist(), *others.tolist()]) == list(range(1000))
        assert (np.diff(mine.astype(int)) > 0).all()
        assert (np.diff(others.astype(int)) > 0).all()


def test_an_order_tells_how_far_it_has_come():
    order = FillOrder(range(200))

    order.take(50, lambda file: True)

    assert order.part == 0.25
    assert order.before(0.5) == 50
    assert order.before(0.1) == 0
    assert FillOrder(range(0)).part == 1.0
