"""Groups of Records: each Record once, by few requests."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from monarch.cli.records import records as verb
from monarch.records import RecordIndex, RecordObject
from monarch.records.groups import GAP_MAX, group
from monarch.records.index import UNIT, units_of

MIB = 1 << 20


def index_of(rows, first_records=None):
    """An index of (object, offset, length)."""
    units = np.array(
        [(offset, length, number) for number, offset, length in rows], UNIT
    )
    count = 1 + max((number for number, _, _ in rows), default=0)
    objects = tuple(RecordObject(f"/o{n}", 1 << 40, 0) for n in range(count))
    return RecordIndex("test", objects, units, first_records)


lengths = st.integers(0, 3 * MIB)
rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1 << 33), lengths), max_size=60
)


@given(rows, st.integers(1, 8 * MIB))
def test_every_unit_is_in_one_group_and_within_its_requests(rows, group_bytes):
    index = index_of(rows)
    groups = group(index, group_bytes)

    units = [groups.units(n).tolist() for n in range(len(groups))]
    assert sorted(u for members in units for u in members) == list(range(len(rows)))
    requests = [groups.ranges(n) for n in range(len(groups))]
    for members, ranges in zip(units, requests, strict=True):
        for unit in members:
            one = index.range_of(unit)
            assert any(
                r.object == one.object
                and r.offset <= one.offset
                and one.offset + one.length <= r.offset + r.length
                for r in ranges
            )
    flat = [one for ranges in requests for one in ranges]
    assert groups.cost() == (len(flat), sum(r.length for r in flat))


def test_groups_have_the_requested_size():
    offsets = np.arange(20_000, dtype=np.uint64) * np.uint64(12_288)
    units = units_of(offsets, np.full(20_000, 12_288), "/o")
    groups = group(RecordIndex("x", (RecordObject("/o", 1 << 40, 0),), units), 4 * MIB)

    assert groups.cost() == (len(groups), 20_000 * 12_288)
    assert len(groups) == -(-20_000 * 12_288 // (4 * MIB))


@pytest.mark.parametrize(("gap", "requests"), [(GAP_MAX, 1), (GAP_MAX + 1, 2)])
def test_a_small_gap_is_read_and_a_large_one_is_not(gap, requests):
    groups = group(index_of([(0, 0, 100), (0, 100 + gap, 100)]), MIB)

    assert len(groups) == 1
    assert len(groups.ranges(0)) == requests


def test_small_files_share_a_group():
    groups = group(index_of([(n, 0, 1000) for n in range(10)]), MIB)

    assert len(groups) == 1
    assert [one.object for one in groups.ranges(0)] == list(range(10))


def test_groups_of_encoded_units_count_their_records():
    firsts = np.array([0, 10, 15, 15, 40], np.uint64)
    index = index_of([(0, n * MIB, MIB) for n in range(4)], firsts)

    assert group(index, 2 * MIB).record_counts().tolist() == [15, 25]
    assert [index.unit_of(n) for n in (0, 9, 10, 14, 15, 39)] == [0, 0, 1, 1, 3, 3]


def test_the_verb_prints_the_cost_of_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    np.save(tmp_path / "a.npy", np.zeros((1000, 4096), "u1"))

    told = CliRunner().invoke(verb, [str(tmp_path / "a.npy")])
    found = json.loads(
        CliRunner().invoke(verb, ["--json", str(tmp_path / "a.npy")]).stdout
    )

    assert told.exit_code == 0
    assert "npy: 1,000 records, 3.9 MiB in 1 file" in told.stdout
    assert found["epoch"][0] == {
        "group_bytes": MIB,
        "groups": 4,
        "requests": 4,
        "bytes": 4_096_000,
    }
    assert found["details"] == {"dtype": "|u1", "shape": [4096]}
