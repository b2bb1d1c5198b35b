"""Headers found from many places at once equal those of a single walk."""

import io
import random
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.records import RecordsError, streams
from monarch.records.streams import TarWalk, TFRecordWalk, crcs_at, masked_crc
from monarch.records.walking import (
    Damaged,
    Entries,
    Make,
    Parts,
    walk_in_parts,
    walk_on,
)


class Memory:
    """Bytes that are read at places, and how often."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def at(self, offset: int, length: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + length]


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def one_by_one(make: Make, data: bytes) -> Entries:
    found = Entries()
    walk_on(make(), Memory(data), found, len(data))
    return found


def in_parts(
    make: Make, data: bytes, pool: ThreadPoolExecutor, count: int, window: int = 4096
) -> Entries:
    parts = Parts(lambda: Memory(data), len(data), count, window, pool)
    return walk_in_parts(make, parts)


def same(one: Entries, other: Entries) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("ats", "begins", "lengths", "keys", "end", "is_over")
    )


def tfrecord(values: list[bytes]) -> bytes:
    parts = []
    for value in values:
        length = len(value).to_bytes(8, "little")
        parts.append(length + masked_crc(length).to_bytes(4, "little") + value)
    return b"".join(part + bytes(4) for part in parts)


def random_tar(rng: random.Random, depth: int = 1) -> bytes:
    """An archive with long names, links, folders and archives in it."""
    style = rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    headers = {"comment": "made by a test"} if rng.random() < 0.3 else None
    if style == tarfile.PAX_FORMAT and rng.random() < 0.2:
        headers = {"path": "all/the/same"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style, pax_headers=headers) as tar:
        for number in range(rng.randrange(1, 60)):
            long = "n" * rng.choice(
                [1, 60, 130 if style != tarfile.USTAR_FORMAT else 9]
            )
            info = tarfile.TarInfo(f"d{number // 3}/{long}{number // 2}.{number % 2}")
            kinds = [tarfile.DIRTYPE, tarfile.SYMTYPE]
            info.type = rng.choice([*kinds, *[tarfile.REGTYPE] * 6])
            value = b""
            if info.type == tarfile.REGTYPE:
                is_nested = depth and rng.random() < 0.1
                value = rng.randbytes(rng.randrange(6000))
                value = random_tar(rng, depth - 1) if is_nested else value
            info.linkname = "target" if info.type == tarfile.SYMTYPE else ""
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))
    return out.getvalue()


@given(st.binary(min_size=8, max_size=200))
def test_checksums_at_all_places_are_those_of_each(data):
    expected = [masked_crc(data[at : at + 8]) for at in range(len(data) - 7)]

    assert crcs_at(data).tolist() == expected


@given(
    st.lists(st.binary(max_size=3000), max_size=60),
    st.integers(1, 40),
    st.integers(16, 9000),
)
@settings(deadline=None, max_examples=80)
def test_tfrecords_are_the_same_from_any_places(pool, values, count, window):
    data = tfrecord(values)

    found = in_parts(TFRecordWalk, data, pool, count, window)

    assert same(found, one_by_one(TFRecordWalk, data))
    payloads = zip(found.begins, found.lengths, strict=True)
    assert [data[begin : begin + length] for begin, length in payloads] == values


def test_tfrecords_within_a_tfrecord_are_no_records(pool):
    inner = tfrecord([b"x" * 300] * 400)
    data = tfrecord([b"a" * 500, inner, b"b" * 70_000, inner, b"c"])

    found = in_parts(TFRecordWalk, data, pool, 16)

    assert found.lengths.tolist() == [500, len(inner), 70_000, len(inner), 1]


@given(st.integers(0, 1 << 30), st.integers(1, 24))
@settings(deadline=None, max_examples=120)
def test_members_of_tar_are_the_same_from_any_places(pool, seed, count):
    data = random_tar(random.Random(seed))

    found = in_parts(TarWalk, data, pool, count)

    assert same(found, one_by_one(TarWalk, data))


def test_data_behind_the_end_of_an_archive_are_ignored(pool):
    first, second = (random_tar(random.Random(seed), depth=0) for seed in (4, 5))
    data = first + second

    found = in_parts(TarWalk, data, pool, 12)

    assert found.is_over
    assert same(found, one_by_one(TarWalk, first))


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_damage_is_reported_with_its_record_wherever_it_is(pool, place):
    values = [b"v" * 700] * 500
    data = bytearray(tfrecord(values))
    number = int(len(values) * place)
    data[number * 716 : number * 716 + 8] = b"\xff" * 8

    with pytest.raises(Damaged) as raised:
        in_parts(TFRecordWalk, bytes(data), pool, 20)

    assert raised.value.entry == number


def test_a_read_that_fails_in_the_middle_is_reported(pool):
    data = tfrecord([b"v" * 700] * 500)

    class Failing(Memory):
        def at(self, offset: int, length: int) -> bytes:
            if offset > 200_000:
                raise RecordsError("the disk has gone")
            return super().at(offset, length)

    with pytest.raises(RecordsError, match="the disk has gone"):
        walk_in_parts(
            TFRecordWalk, Parts(lambda: Failing(data), len(data), 8, 4096, pool)
        )


def test_the_walks_share_the_headers(pool):
    data = tfrecord([b"v" * 7000] * 2000)
    cursors: list[Memory] = []

    def cursor() -> Memory:
        cursors.append(Memory(data))
        return cursors[-1]

    found = walk_in_parts(TFRecordWalk, Parts(cursor, len(data), 16, 16384, pool))

    assert len(found) == 2000
    assert max(one.reads for one in cursors) <= 2000 / 16 + 10
    assert sum(one.reads for one in cursors) <= 2000 + 100


def test_a_false_beginning_that_cannot_be_read_is_skipped(pool):
    number = b"9" * 5000
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(number) + 8
    inner = info.tobuf(tarfile.USTAR_FORMAT) + (number + b" path=x").ljust(5120, b"\0")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("a", "b", "c"):
            member = tarfile.TarInfo(name)
            member.size = 8 * len(inner)
            tar.addfile(member, io.BytesIO(8 * inner))
    data = out.getvalue()

    found = in_parts(TarWalk, data, pool, 12)

    assert same(found, one_by_one(TarWalk, data))
    with pytest.raises(Damaged, match="is damaged at byte 0"):
        one_by_one(TarWalk, inner)


def test_an_unknown_checksum_is_no_beginning():
    window = bytes(4096)

    assert TFRecordWalk().starts(window, 0, 10**6) == []
    assert TFRecordWalk().starts(window[:5], 0, 10**6) == []
    assert TarWalk().starts(window, 100, 10**6) == []
    assert streams.is_tar(random_tar(random.Random(1))[:512])
