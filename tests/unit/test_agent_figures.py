"""Figures of a report that are computed from one part of an agent."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from monarch.agent.figures import file_sizes, versions, wait_buckets, wait_totals


@given(st.lists(st.integers(0, 1 << 40), max_size=50))
def test_each_file_is_in_the_class_of_its_size(sizes: list[int]) -> None:
    found = file_sizes(np.array(sizes, np.uint64))

    for one in found:
        within = [n for n in sizes if one.from_bytes <= n < one.to_bytes]
        assert (one.files, one.bytes) == (len(within), sum(within))
    assert sum(one.files for one in found) == len(sizes)


def test_empty_files_and_powers_of_four_begin_their_classes() -> None:
    found = file_sizes(np.array([0, 1, 4, 16, 1 << 30], np.uint64))

    assert [one.from_bytes for one in found] == [0, 1, 4, 16, 1 << 30]


def test_waits_are_reported_by_their_source() -> None:
    waits = {"origin": ([0, 2], 3000), "peer": ([1, 0], 0)}

    buckets = wait_buckets(waits)

    assert {(one.source, one.count) for one in buckets if one.count} == {
        ("origin", 2),
        ("peer", 1),
    }
    assert [one.source for one in wait_totals(waits)] == ["origin"]


def test_versions_name_what_a_bug_report_needs() -> None:
    assert set(versions()) == {"monarch", "python", "kernel", "libc"}
    assert all(versions().values())
