"""Choices of Records by the columns beside them: exact, and without a payload."""

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.records import open_records
from monarch.records.errors import RecordsError
from monarch.records.labels import Column, balanced, parted, where
from monarch.records.opening import Records

LABELS = ["cat", "dog", "cat", "owl", "dog", "cat"]
COLUMNS = {
    "label": Column.of(LABELS),
    "year": Column.of([2001, 2002, 2001, 2003, 2002, 2002]),
    "tags": Column.of([[1, 0], [0, 1], [1, 1], [0, 0], [0, 1], [1, 0]]),
}


@pytest.mark.parametrize(
    ("conditions", "rows"),
    [
        ({"label": "cat"}, [0, 2, 5]),
        ({"label": ["owl", "dog"]}, [1, 3, 4]),
        ({"label": "cat", "year": 2001}, [0, 2]),
        ({"year": {2003, 2002}}, [1, 3, 4, 5]),
        ({"label": "newt"}, []),
        ({"tags": 1}, [1, 2, 4]),
        ({"tags": [0, 1]}, [0, 1, 2, 4, 5]),
        ({"tags": 0, "label": "cat"}, [0, 2, 5]),
    ],
)
def test_records_are_found_by_their_columns(conditions, rows) -> None:
    assert where(COLUMNS, conditions).tolist() == rows


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({}, "needs a condition"),
        (
            {"labels": "cat"},
            "unknown column 'labels'; the columns are: label, year, tags; did you mean",
        ),
        ({"label": 1}, "1 is no text"),
        ({"year": "2001"}, "'2001' is a text"),
    ],
)
def test_a_condition_that_cannot_be_met_is_refused(conditions, words) -> None:
    with pytest.raises(RecordsError, match=words):
        where(COLUMNS, conditions)


@pytest.mark.parametrize("values", [[1, "a"], [None], [[1], [1, 2]], [[[1]]], [b"x"]])
def test_values_of_several_kinds_are_no_column(values) -> None:
    if values == [1, "a"] or values == [b"x"]:  # numpy converts these to text
        assert Column.of(values).names
        return
    with pytest.raises(RecordsError):
        Column.of(values)


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=60), st.integers(0, 9))
def test_a_balance_has_equal_numbers_of_each_value(
    labels: list[str], seed: int
) -> None:
    column = Column.of(labels)

    rows = balanced(column, seed)

    least = min(Counter(labels).values())
    assert Counter(labels[row] for row in rows) == dict.fromkeys(set(labels), least)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert rows.tolist() == balanced(column, seed).tolist()


def test_a_balance_by_weights_has_their_ratio() -> None:
    labels = ["a"] * 100 + ["b"] * 40 + ["c"] * 7

    rows = balanced(Column.of(labels), 1, {"a": 3, "b": 1.5})

    assert Counter(labels[row] for row in rows) == {"a": 80, "b": 40}
    with pytest.raises(RecordsError, match="'z', which no record has"):
        balanced(Column.of(labels), 1, {"z": 1})
    with pytest.raises(RecordsError, match="above 0"):
        balanced(Column.of(labels), 1, {"a": -1})
    with pytest.raises(RecordsError, match="multilabel"):
        balanced(COLUMNS["tags"], 1)


def test_another_seed_draws_others() -> None:
    column = Column.of(["a"] * 500 + ["b"] * 50)

    assert balanced(column, 1).tolist() != balanced(column, 2).tolist()


@given(
    st.lists(st.sampled_from("abc"), max_size=80),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_parts_are_disjoint_and_of_their_sizes(
    labels: list[str], weights: list[int]
) -> None:
    shares = {f"p{n}": weight / sum(weights) for n, weight in enumerate(weights)}
    column = Column.of(labels) if labels else None

    for by in (None, column):
        parts = parted(len(labels), shares, 7, by)

        assert sorted(np.concatenate([*parts.values()])) == list(range(len(labels)))
        for name, rows in parts.items():
            for value in set(labels) if by is not None else {None}:
                there = [one for one in labels if value in (None, one)]
                got = [row for row in rows if value in (None, labels[row])]
                assert abs(len(got) - shares[name] * len(there)) <= 1


@pytest.mark.parametrize("shares", [{}, {"a": 0.7, "b": 0.4}, {"a": 0}, {"a": -0.1}])
def test_invalid_shares_are_refused(shares) -> None:
    with pytest.raises(RecordsError, match="shares"):
        parted(10, shares, 1)


def test_ten_splits_of_200_000_records_are_made_at_once() -> None:
    chance = np.random.default_rng(1)
    columns = {
        "label": Column.of(chance.integers(0, 1000, 200_000)),
        "split": Column.of(chance.choice(["train", "val", "test"], 200_000)),
    }
    began_s = time.process_time()

    for seed in range(10):
        parts = parted(200_000, {"a": 0.8, "b": 0.1, "c": 0.1}, seed, columns["label"])
        assert sum(map(len, parts.values())) == 200_000
    rows = where(columns, {"split": "train"})
    assert 0 < len(balanced(columns["label"].take(rows), 1)) <= len(rows)

    assert time.process_time() - began_s < 2


def folder(path: Path) -> Records:
    """A folder whose files are Records, with a column beside them."""
    path.mkdir()
    for number, label in enumerate(LABELS):
        (path / str(number)).write_text(f"{label}{number}")
    records = open_records(path)
    return Records(records.source, records.indexed, {"label": Column.of(LABELS)})


def test_chosen_records_keep_their_columns_and_their_bytes(tmp_path: Path) -> None:
    records = folder(tmp_path / "data")

    cats = records.where(label="cat")
    parts = records.split({"half": 0.5, "rest": 0.5}, seed=1, by="label")
    level = records.balance("label", seed=1).where(label=["dog", "owl"])

    assert [cats[n] for n in range(len(cats))] == [b"cat0", b"cat2", b"cat5"]
    assert sum(len(part) for part in parts.values()) == len(LABELS)
    assert len(level) == 2
    assert {level[n][:3] for n in range(2)} == {b"dog", b"owl"}
    with pytest.raises(
        RecordsError, match="unknown column 'breed'; the columns are: label"
    ):
        records.where(breed="x")
    with pytest.raises(RecordsError, match="are: none"):
        open_records(tmp_path / "data").where(label="cat")
