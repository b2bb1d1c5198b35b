"""Each epoch is a permutation of all Records, by seed and epoch alone."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.errors import UsageError
from monarch.loader.order import Batches, RecordOrder
from monarch.records import RecordIndex, RecordObject
from monarch.records.groups import group
from monarch.records.index import units_of

RECORD_BYTES = 100
SHUFFLES = ("global", "group", "none")
# Of the chi-square distribution with 15 degrees of freedom, at p = 0.01.
CHI_SQUARE_MAX = 30.58


def groups_of(records, per_group, encoded=1):
    """Groups of Records; an encoded unit holds several."""
    count = -(-records // encoded)
    units = units_of(np.arange(count) * RECORD_BYTES, [RECORD_BYTES] * count, "/o")
    firsts = None
    if encoded > 1:
        firsts = np.minimum(np.arange(count + 1) * encoded, records).astype(np.uint64)
    objects = (RecordObject("/o", 1 << 40, 0),)
    return group(RecordIndex("x", objects, units, firsts), per_group * RECORD_BYTES)


def order_of(records=1000, per_group=7, shuffle="group", **options):
    options = {"window": 3, "seed": 1, **options}
    return RecordOrder(groups_of(records, per_group), shuffle=shuffle, **options)


@settings(deadline=None)
@given(
    st.integers(0, 400),
    st.integers(1, 50),
    st.sampled_from(SHUFFLES),
    st.integers(1, 9),
    st.integers(0, 3),
    st.sampled_from([1, 4]),
)
def test_every_epoch_is_a_permutation_of_all_records(
    records, per_group, shuffle, window, epoch, encoded
):
    groups = groups_of(records, per_group, encoded)
    order = RecordOrder(groups, seed=5, shuffle=shuffle, window=window)

    found = order.epoch(epoch).records(0, records)

    assert sorted(found.tolist()) == list(range(records))


@settings(deadline=None)
@given(st.data())
def test_any_part_of_an_epoch_is_the_same_alone(data):
    records = data.draw(st.integers(1, 300))
    first = data.draw(st.integers(0, records))
    end = data.draw(st.integers(first, records))
    shuffle = data.draw(st.sampled_from(SHUFFLES))
    order = order_of(records, shuffle=shuffle)

    whole = order.epoch(2).records(0, records)

    assert order.epoch(2).records(first, end).tolist() == whole[first:end].tolist()


@settings(deadline=None)
@given(
    st.integers(0, 200),
    st.integers(1, 9),
    st.integers(1, 7),
    st.sampled_from(["drop", "pad", "uneven"]),
)
def test_ranks_have_equally_many_batches_and_every_record_once(
    records, batch_size, world_size, remainder
):
    ranks = [
        Batches(records, batch_size, rank, world_size, remainder)
        for rank in range(world_size)
    ]
    (count,) = {len(batches) for batches in ranks}
    dealt = [
        place
        for number in range(count)
        for batches in ranks
        for place in batches.places(number).tolist()
    ]

    whole = records // (batch_size * world_size) * batch_size * world_size
    wanted = [*range(whole if remainder == "drop" else records)]
    if remainder == "pad":
        assert dealt[:records] == wanted
        assert len(dealt) == count * batch_size * world_size
        assert dealt[records:] == [n % records for n in range(records, len(dealt))]
    else:
        assert dealt == wanted


def test_global_batches_do_not_change_with_the_number_of_ranks():
    epoch = order_of(1000).epoch(3)

    def batches(world_size):
        ranks = [
            Batches(1000, 24 // world_size, r, world_size) for r in range(world_size)
        ]
        return [
            [record for one in ranks for record in epoch_records(epoch, one.places(n))]
            for n in range(len(ranks[0]))
        ]

    assert batches(4) == batches(2) == batches(1)


def epoch_records(epoch, places):
    return epoch.records(int(places[0]), int(places[-1]) + 1).tolist()


@pytest.mark.parametrize("shuffle", ["global", "group"])
def test_orders_differ_between_epochs_and_seeds_and_are_the_same_again(shuffle):
    def of(seed, epoch):
        return order_of(shuffle=shuffle, seed=seed).epoch(epoch).records(0, 1000)

    assert (of(1, 0) == of(1, 0)).all()
    assert (of(1, 0) != of(1, 1)).any()
    assert (of(1, 0) != of(2, 0)).any()


def test_a_group_is_used_for_as_many_turns_as_groups_are_mixed():
    order = order_of(700, 7, window=4)
    epoch = order.epoch(1)
    begin = 0

    for turn, end in enumerate(epoch.ends.tolist()):
        found = epoch.records(begin, end)
        groups = {int(record) // 7 for record in found}
        assert groups <= set(epoch.groups[max(0, turn - 3) : turn + 1].tolist())
        assert epoch.first_position(begin) == max(0, turn - 3)
        assert epoch.end_position(end) == min(turn + 1, 100)
        begin = end
    assert begin == 700
    assert epoch.groups.tolist() != sorted(epoch.groups.tolist())


@pytest.mark.parametrize("shuffle", ["global", "group"])
def test_a_record_is_anywhere_in_an_epoch_equally_often(shuffle):
    """Y5: 200 epochs, 16 parts of an epoch, p > 0.01 for each of some records."""
    order = order_of(1600, 10, shuffle, window=8)
    places = np.empty((200, 1600), np.int64)
    for epoch in range(200):
        places[epoch, order.epoch(epoch).records(0, 1600)] = np.arange(1600)

    statistics = []
    for record in range(0, 1600, 40):
        counts = np.bincount(places[:, record] // 100, minlength=16)
        statistics.append(((counts - 12.5) ** 2 / 12.5).sum())

    # 40 tests at p = 0.01: three that fail are less probable than 1%.
    assert sum(value > CHI_SQUARE_MAX for value in statistics) < 3


def test_no_shuffle_keeps_the_order_in_which_records_lie():
    assert order_of(shuffle="none").epoch(7).records(0, 1000).tolist() == [*range(1000)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: order_of(shuffle="local"), "use one of global, group, none"),
        (lambda: order_of(seed=-1), "seed=-1 is negative"),
        (lambda: order_of(window=0), "groups_in_flight=0"),
        (lambda: Batches(9, 0), "batch_size=0"),
        (lambda: Batches(9, 1, 2, 2), "rank=2 of world_size=2"),
        (
            lambda: Batches(9, 1, remainder=cast("Any", "keep")),
            "use one of drop, pad, uneven",
        ),
    ],
)
def test_an_invalid_argument_is_refused_by_its_name(make, words):
    with pytest.raises(UsageError, match=words):
        make()
