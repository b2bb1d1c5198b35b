"""The order of background fill."""

from monarch.placement import FillOrder


def test_fill_takes_due_files_in_catalog_order_and_each_only_once():
    order = FillOrder(10)

    first = order.take(3, lambda file: file % 2 == 0)
    second = order.take(9, lambda file: file % 2 == 0)

    assert (first, second) == ([0, 2, 4], [6, 8])
    assert order.remaining == 0


def test_one_look_ahead_is_bounded_where_nothing_is_due():
    order = FillOrder(1000)

    assert order.take(1, lambda file: False) == []
    assert order.remaining == 1000 - 64
