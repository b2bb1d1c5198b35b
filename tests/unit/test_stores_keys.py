"""The index of the keys of a store: exact, small, and mapped."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.records.errors import RecordsError
from monarch.records.keys import NO_IDENTITY, KeyIndex
from monarch.records.labels import Column

MANY = 1_000_000
KEYS = st.lists(st.binary(max_size=20), max_size=40)


def full(keys: list[bytes]) -> KeyIndex:
    """An index with all that one can have."""
    count = len(keys)
    identities = np.frombuffer(
        b"".join(bytes([number % 3]) * 16 for number in range(count)), "V16"
    )
    columns = {
        "label": Column.of([f"l{number % 4}" for number in range(count)] or [""])
        if count
        else Column(np.zeros(0, np.uint8), ()),
        "tags": Column(np.arange(count * 2).reshape(count, 2)),
    }
    return KeyIndex.of(
        "s3://bucket/",
        keys,
        [number * 7 for number in range(count)],
        identities=identities,
        columns=columns,
        details={"table": "ks.t"},
    )


def seen(index: KeyIndex) -> list[tuple[object, ...]]:
    """All that an index holds for each Record."""
    label, tags = index.columns["label"], index.columns["tags"]
    return [
        (
            *(index.key(n), index.length(n), index.identity(n)),
            *(label.name_of(label.values[n]), tags.values[n].tolist()),
        )
        for n in range(len(index))
    ]


@given(KEYS)
def test_keys_are_returned_unchanged(keys: list[bytes]) -> None:
    index = KeyIndex.of("redis://h/0", keys)

    assert [*index.keys()] == keys
    assert [*index.keys(range(len(keys) - 1, -1, -1))] == keys[::-1]
    assert all(index.length(n) == -1 for n in range(len(keys)))
    assert index.total_bytes == (0 if not keys else None)


@given(KEYS, st.data())
def test_a_selection_keeps_the_details_of_its_records(
    keys: list[bytes], data: st.DataObject
) -> None:
    index = full(keys)
    numbers = st.integers(0, max(0, len(keys) - 1))
    rows = data.draw(st.lists(numbers, max_size=30)) if keys else []

    chosen = index.select(np.array(rows, np.int64))

    assert seen(chosen) == [seen(index)[row] for row in rows]
    assert chosen.details == index.details


@pytest.mark.parametrize("count", [0, 1, 50])
def test_an_index_survives_a_round_trip_by_its_file(tmp_path: Path, count: int) -> None:
    index = full([b"key%d" % number for number in range(count)])
    index.save(tmp_path / "keys")

    loaded = KeyIndex.load(tmp_path / "keys")

    assert seen(loaded) == seen(index)
    assert (loaded.store, dict(loaded.details)) == (index.store, dict(index.details))
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600


def test_an_identity_of_zeros_is_none() -> None:
    index = full([b"a", b"b"])

    assert index.identity(0) == b""
    assert index.identity(1) == b"\1" * 16
    assert len(NO_IDENTITY) == 16


def test_a_million_keys_are_small_and_loaded_at_once(tmp_path: Path) -> None:
    keys = [b"train/n%08d/%010d.jpg" % (n % 1000, n) for n in range(MANY)]
    identities = np.zeros(MANY, "V16")
    index = KeyIndex.of("s3://b/", keys, [110_000] * MANY, identities=identities)
    index.save(tmp_path / "keys")
    key_bytes = sum(map(len, keys))

    took_s = []
    for _ in range(5):
        began_s = time.perf_counter()
        loaded = KeyIndex.load(tmp_path / "keys")
        assert loaded.key(MANY - 1) == keys[-1]
        took_s.append(time.perf_counter() - began_s)

    assert sorted(took_s)[2] <= 0.05
    size = (tmp_path / "keys").stat().st_size
    assert size <= 24 * MANY + key_bytes + 4096


def test_a_record_of_more_than_4_gib_is_refused() -> None:
    with pytest.raises(RecordsError, match="large is larger than 4 GiB"):
        KeyIndex.of("s3://b/", [b"small", b"large"], [1, 1 << 32])


@pytest.mark.parametrize("size", [0, 7, 40, 200, 900])
def test_a_file_that_is_cut_is_refused(tmp_path: Path, size: int) -> None:
    full([b"key%d" % number for number in range(50)]).save(tmp_path / "keys")
    whole = (tmp_path / "keys").read_bytes()
    assert len(whole) > 1000
    (tmp_path / "keys").write_bytes(whole[:size])

    with pytest.raises(RecordsError, match=r"is (incomplete|not an index)"):
        KeyIndex.load(tmp_path / "keys")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"version": 1', b'"version": 2', "another version"),
        (b'"<u4", [50]', b'"<u4", [49]', "damaged|not whole"),
        (b'"|V16"', b'"|O16"', "not an index"),
        (b"MONARCHK", b"MONARCHR", "not an index"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, old: bytes, new: bytes, words: str
) -> None:
    full([b"key%d" % number for number in range(50)]).save(tmp_path / "keys")
    whole = (tmp_path / "keys").read_bytes()
    assert old in whole
    (tmp_path / "keys").write_bytes(whole.replace(old, new, 1))

    with pytest.raises(RecordsError, match=words):
        KeyIndex.load(tmp_path / "keys")
