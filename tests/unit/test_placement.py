"""Placement: balanced, within capacities, stable when nodes leave, deterministic."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.placement import Mode, Node
from monarch.placement.hashing import (
    FLAT_NODES_MAX,
    GROUP_NODES,
    Rendezvous,
    minus_log,
)
from monarch.placement.placement import fitting
from support.placements import place_whole

PAGE = 4096
SETTINGS = settings(max_examples=25, deadline=None)
DIGESTS = st.integers(0, 2**64 - 1)
NEEDS = st.lists(st.integers(1, 40), max_size=200).map(
    lambda pages: np.array(pages, np.uint64) * PAGE
)
CAPACITIES = st.lists(
    st.integers(0, 2000).map(lambda n: n * PAGE), min_size=1, max_size=9
)


def cluster(capacities):
    return [Node(f"node{number}", room) for number, room in enumerate(capacities)]


def evenly(count, file_count, digest=0, mode=Mode.PARTITION):
    """Files of one page on nodes that could hold them all."""
    needs = np.full(file_count, PAGE, np.uint64)
    return place_whole(cluster([file_count * PAGE] * count), needs, digest, mode)


def held(placement):
    return [placement.kept(node) for node in range(len(placement.nodes))]


def bytes_at(placement):
    return [int(placement.needs[kept].sum()) for kept in held(placement)]


# -- balance ------------------------------------------------------------------------


@SETTINGS
@given(DIGESTS, st.integers(1, 16))
def test_each_node_gets_its_share_within_a_tenth(digest, count):
    files = max(10_000, 3_000 * count)

    shares = np.bincount(evenly(count, files, digest).owners, minlength=count)

    assert shares.min() >= 0.9 * files / count
    assert shares.max() <= 1.1 * files / count


@SETTINGS
@given(DIGESTS, st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_each_node_gets_a_share_that_follows_its_capacity(digest, parts):
    files = 40_000
    needs = np.full(files, PAGE, np.uint64)
    # 1.5 times the needed capacity, but no node could hold everything.
    room = [int(1.5 * files * PAGE * part / sum(parts)) for part in parts]

    placement = place_whole(cluster(room), needs, digest, Mode.PARTITION)

    usable = np.minimum(room, files * PAGE)
    expected = files * usable / usable.sum()
    found = np.bincount(placement.owners, minlength=len(parts))
    assert np.all(np.abs(found - expected) <= 0.1 * expected)


def test_a_large_cluster_is_balanced_through_its_groups():
    count, files = 2 * FLAT_NODES_MAX + 1, 1_500_000

    shares = np.bincount(evenly(count, files).owners, minlength=count)

    assert np.abs(shares * count / files - 1).max() < 0.1


def test_a_node_without_room_owns_nothing_while_others_have_some():
    needs = np.full(500, PAGE, np.uint64)

    placement = place_whole(cluster([0, 10**9]), needs, 1, Mode.PARTITION)

    assert set(placement.owners.tolist()) == {1}


def test_nodes_that_all_lack_room_take_turns_as_owners():
    needs = np.full(10_000, PAGE, np.uint64)

    placement = place_whole(cluster([0, 0]), needs, 1, Mode.PARTITION)

    assert not placement.placed.any()
    assert np.bincount(placement.owners).min() > 4_500


# -- the same answer everywhere -----------------------------------------------------


@SETTINGS
@given(NEEDS, CAPACITIES, DIGESTS, st.sampled_from(Mode), st.randoms())
def test_the_placement_does_not_depend_on_the_order_of_queries(
    needs, capacities, digest, mode, random
):
    one = place_whole(cluster(capacities), needs, digest, mode)
    other = place_whole(cluster(capacities), needs.copy(), digest, mode)
    asked = list(range(len(capacities)))
    random.shuffle(asked)

    found = {node: other.kept(node) for node in asked}

    assert all(np.array_equal(kept, found[n]) for n, kept in enumerate(held(one)))
    assert np.array_equal(one.owners, other.owners)


@pytest.mark.parametrize("count", [1, 7, FLAT_NODES_MAX, FLAT_NODES_MAX + 1])
@pytest.mark.parametrize("weights", ["equal", "different"])
def test_one_file_alone_is_ranked_as_it_is_among_many(count, weights):
    given_weights = [1 if weights == "equal" else 1 + n % 3 for n in range(count)]
    ranks = Rendezvous([f"n{n}" for n in range(count)], given_weights, digest=5)
    files = np.arange(20_000)

    best = ranks.best(files)
    first = ranks.first(files, 5)

    for file in (0, 1, 9_000, 19_999):
        order = ranks.order(file)
        assert sorted(order) == list(range(count))
        assert best[file] == ranks.best(files[file : file + 1])[0] == order[0]
        assert first[file].tolist() == order[: first.shape[1]]
        for wanted in (1, 2, GROUP_NODES + 3, count):
            among = [
                node
                for number, group in enumerate(ranks.groups)
                for node, yes in zip(
                    group.tolist(),
                    ranks.among_first(np.array([file]), wanted, number)[:, 0],
                    strict=True,
                )
                if yes
            ]
            assert among == sorted(order[:wanted])


def mixed(word):
    """The finaliser of splitmix64 on whole numbers."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def test_the_lots_are_as_they_are_written_down():
    weights = {"alpha": 3, "beta": 1, "gamma": 2}

    def lot(name, file):
        seed = hashlib.blake2b(f"node {name}".encode(), digest_size=8).digest()
        key = mixed((file * 0x9E3779B97F4A7C15 + 0x1234) % 2**64)
        word = mixed(key ^ int.from_bytes(seed, "little"))
        return -math.log(((word >> 12) + 0.5) / 2**52) / weights[name]

    best = Rendezvous(list(weights), list(weights.values()), 0x1234).best(
        np.arange(500)
    )

    names = np.array(list(weights))[best].tolist()
    assert names == [min(weights, key=lambda n: lot(n, file)) for file in range(500)]


def test_a_logarithm_of_sums_and_products_is_one_to_nine_digits():
    words = np.random.default_rng(0).integers(0, 2**64, 10_000, dtype=np.uint64)
    edges = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)

    for numbers in (words, edges):
        found = minus_log(numbers)
        exact = -np.log(((numbers >> np.uint64(12)).astype(float) + 0.5) / 2.0**52)
        assert np.all(np.abs(found - exact) < 1e-9)
        assert np.all(found > 0)


# -- loss ---------------------------------------------------------------------------


@SETTINGS
@given(DIGESTS, st.integers(2, 12), st.data())
def test_the_loss_of_a_node_moves_its_own_files_and_no_others(digest, count, data):
    placement = evenly(count, 10_000, digest)
    lost = data.draw(st.integers(0, count - 1))

    moved = 0
    for file in range(0, 10_000, 50):
        alive = [node for node in placement.order(file) if node != lost]
        moved += alive[0] != placement.owners[file]
        assert (alive[0] != placement.owners[file]) == (placement.owners[file] == lost)

    assert np.mean(placement.owners == lost) <= 1 / count + 0.05
    assert moved == np.count_nonzero(placement.owners[::50] == lost)


@SETTINGS
@given(DIGESTS, st.integers(3, 12), st.data())
def test_a_job_without_one_of_the_nodes_places_the_other_files_alike(
    digest, count, data
):
    lost = data.draw(st.integers(0, count - 1))
    names = [f"node{number}" for number in range(count)]
    files = np.arange(10_000)

    before = Rendezvous(names, [1] * count, digest).best(files)
    rest = [number for number in range(count) if number != lost]
    after = Rendezvous([names[n] for n in rest], [1] * len(rest), digest).best(files)

    moved = np.array(rest)[after] != before
    assert np.array_equal(moved, before == lost)
    assert moved.mean() <= 1 / count + 0.05


def test_the_files_of_a_lost_node_are_shared_by_all_others():
    placement = evenly(5, 4_000)
    lost = np.flatnonzero(placement.owners == 2).tolist()

    heirs = np.bincount([placement.order(file)[1] for file in lost], minlength=5)

    expected = len(lost) / 4
    assert heirs[2] == 0
    assert all(abs(n - expected) < 0.3 * expected for n in np.delete(heirs, 2))


# -- room ---------------------------------------------------------------------------


@SETTINGS
@given(NEEDS, CAPACITIES, DIGESTS, st.sampled_from(Mode))
def test_no_node_holds_more_than_its_capacity(needs, capacities, digest, mode):
    placement = place_whole(cluster(capacities), needs, digest, mode)

    assert all(
        have <= room for have, room in zip(bytes_at(placement), capacities, strict=True)
    )


@SETTINGS
@given(NEEDS, CAPACITIES, DIGESTS, st.sampled_from(Mode))
def test_a_held_file_is_held_by_its_owner_and_a_left_one_by_no_node(
    needs, capacities, digest, mode
):
    placement = place_whole(cluster(capacities), needs, digest, mode)

    copies = np.sum([kept.astype(int) for kept in held(placement)], axis=0)
    assert np.array_equal(copies > 0, placement.placed)
    for node, kept in enumerate(held(placement)):
        assert np.all(kept[placement.placed & (placement.owners == node)])
    assert np.all(copies <= placement.copies)


@SETTINGS
@given(NEEDS, CAPACITIES, DIGESTS)
def test_a_file_is_left_only_where_its_node_has_no_room_for_it(
    needs, capacities, digest
):
    placement = place_whole(cluster(capacities), needs, digest, Mode.PARTITION)

    free = np.array(capacities) - bytes_at(placement)
    left = np.flatnonzero(~placement.placed)
    assert np.all(needs[left] > free[placement.owners[left]])


@given(st.lists(st.integers(0, 50)), st.integers(0, 400))
def test_each_file_that_fits_in_its_turn_gets_room(needs, free):
    taken, left = [], free
    for need in needs:
        taken.append(need <= left)
        left -= need if need <= left else 0

    assert fitting(np.array(needs, np.uint64), free).tolist() == taken


def test_a_file_that_does_not_fit_on_its_first_node_is_placed_on_the_next():
    needs = np.full(20_000, PAGE, np.uint64)
    # Chance makes the shares of some nodes larger than that.
    room = int(needs.sum() * 1.002 / 8)

    placement = place_whole(cluster([room] * 8), needs, 4, Mode.PARTITION)

    shares = np.bincount(placement.rendezvous.best(np.arange(20_000)))
    assert shares.max() * PAGE > room
    assert placement.placed.mean() > 0.998
    assert all(
        placement.order(file)[0] == placement.owners[file] for file in range(300)
    )


# -- copies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "shares", "copies"),
    [
        (Mode.PARTITION, [1.0, 1.0, 1.0], 1),
        (Mode.AUTO, [0.2, 0.2, 0.2], 1),
        (Mode.AUTO, [0.7, 0.7, 0.7], 2),
        (Mode.AUTO, [1.0, 1.0, 1.0], 3),
        (Mode.AUTO, [9.0, 0.5, 0.4], 1),
        (Mode.REPLICATE, [0.7, 0.7, 0.7], 3),
    ],
)
def test_auto_wants_as_many_copies_as_fit(mode, shares, copies):
    needs = np.full(1_000, PAGE, np.uint64)
    room = [int(share * 1_000) * PAGE for share in shares]

    assert place_whole(cluster(room), needs, 1, mode).copies == copies


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REPLICATE])
def test_a_dataset_that_fits_everywhere_is_held_everywhere(mode):
    assert all(kept.all() for kept in held(evenly(5, 10_000, mode=mode)))


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REPLICATE])
@pytest.mark.parametrize("share", [0.3, 0.55, 0.9])
def test_further_copies_never_displace_a_first_one(mode, share):
    needs = np.full(10_000, PAGE, np.uint64)
    room = [int(10_000 * share) * PAGE] * 4

    placement = place_whole(cluster(room), needs, 2, mode)

    assert placement.placed.all()
    assert sum(bytes_at(placement)) > 0.9 * min(
        sum(room), 10_000 * PAGE * placement.copies
    )


def test_a_large_cluster_keeps_capacities_and_copies_too():
    count = 2 * FLAT_NODES_MAX + 9
    needs = np.full(5_000, PAGE, np.uint64)

    placement = place_whole(cluster([100 * PAGE] * count), needs, 3, Mode.AUTO)

    assert placement.copies == 5
    assert max(bytes_at(placement)) <= 100 * PAGE
    assert placement.placed.all()
    everyone = np.sum([kept.astype(int) for kept in held(placement)], axis=0)
    assert everyone.mean() > 4.5


@pytest.mark.parametrize(
    "nodes", [[], [Node("same", 1), Node("same", 1)]], ids=["none", "twins"]
)
def test_a_cluster_without_nodes_or_with_twins_is_refused(nodes):
    with pytest.raises(ValueError, match=r"nodes|one name"):
        place_whole(nodes, np.ones(3, np.uint64), 0, Mode.AUTO)


def test_a_dataset_without_files_is_placed_everywhere_at_once():
    placement = place_whole(cluster([5, 6]), np.empty(0, np.uint64), 0, Mode.AUTO)

    assert [kept.tolist() for kept in held(placement)] == [[], []]


# -- requested copies ------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 9])
def test_each_unit_has_as_many_copies_as_are_asked_for(copies):
    files = 2_000
    needs = np.full(files, PAGE, np.uint64)
    nodes = cluster([files * PAGE] * 4)

    placement = place_whole(nodes, needs, 1, Mode.AUTO, copies)

    counts = np.sum(held(placement), axis=0)
    assert (counts == min(copies, 4)).all()


def test_copies_that_have_no_room_displace_no_first_copy():
    files = 4_000
    needs = np.full(files, PAGE, np.uint64)
    nodes = cluster([int(0.3 * files) * PAGE] * 4)

    placement = place_whole(nodes, needs, 1, Mode.PARTITION, 3)

    counts = np.sum(held(placement), axis=0)
    assert (counts >= 1).all()
    assert 1.1 < counts.mean() <= 1.2
