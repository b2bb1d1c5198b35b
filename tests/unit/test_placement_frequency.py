"""How often a node reads each file: against known figures, and against streams."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.placement.frequency import (
    files_read_more_than,
    local_share_at_best,
    read_counts,
)

IMAGENET = 1_281_167


def streams(files, epochs, nodes, seed):
    """How often the first node reads each file, if each epoch is shuffled and dealt."""
    shuffled = np.random.default_rng(seed)
    counts = np.zeros(files, np.int64)
    for _ in range(epochs):
        counts[shuffled.permutation(files)[: files // nodes]] += 1
    return counts


def test_imagenet_on_16_nodes_matches_the_paper():
    found = files_read_more_than(10, IMAGENET, epochs=90, nodes=16)

    assert abs(found - 31_635) <= 1


@pytest.mark.parametrize(("epochs", "nodes"), [(90, 16), (30, 4), (10, 2), (40, 8)])
def test_simulated_streams_agree_with_the_model(epochs, nodes):
    files = 400_000
    read = streams(files, epochs, nodes, seed=7)

    for times in range(epochs):
        expected = files_read_more_than(times, files, epochs, nodes)
        if expected > 0.02 * files:  # where chance alone stays well below 2%
            assert (read > times).sum() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("room", [0.1, 0.25, 0.5])
def test_the_best_local_share_is_the_sum_over_the_most_read_files(room):
    files, epochs, nodes = 400_000, 20, 4
    read = np.sort(streams(files, epochs, nodes, seed=3))[::-1]
    share = read[: int(room * files)].sum() / read.sum()

    assert local_share_at_best(room, epochs, nodes) == pytest.approx(share, rel=0.02)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 50))
def test_shares_are_those_of_the_binomial_distribution(epochs, nodes):
    counts, shares = read_counts(epochs, nodes)

    for count, share in zip(counts.tolist(), shares.tolist(), strict=True):
        chance = math.comb(epochs, count) * (nodes - 1) ** (epochs - count)
        assert share == pytest.approx(chance / nodes**epochs, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("epochs", "nodes"), [(1_000_000, 2), (1_000_000, 65536)])
def test_many_epochs_and_nodes_are_counted_too(epochs, nodes):
    counts, shares = read_counts(epochs, nodes)

    assert float((counts * shares).sum()) == pytest.approx(epochs / nodes, rel=1e-6)


def test_keeping_all_or_nothing_answers_all_or_nothing():
    assert local_share_at_best(1.0, 5, 3) == pytest.approx(1)
    assert local_share_at_best(0.0, 5, 3) == 0
    assert local_share_at_best(0.5, 0, 3) == 0
    assert local_share_at_best(0.5, 7, 1) == pytest.approx(0.5)
