"""Packed files in a bucket or behind HTTP, read by ranges without conversion."""

import io
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monarch.loader import Loader
from monarch.loader.wire import LoaderError
from monarch.records import Records, members, open_records
from monarch.records.errors import RecordsError
from support.fake_s3 import Act, FakeS3
from support.loaders import write_tfrecord

pytest.importorskip("botocore")
h5py = pytest.importorskip("h5py")
CHANCE = random.Random(6)
SAMPLES = 90
SHARDS = 3


def archive(first: int, count: int) -> bytes:
    """A tar of samples of two members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number in range(first, first + count):
            for suffix, size in (("jpg", CHANCE.randrange(1, 9000)), ("cls", 3)):
                member = tarfile.TarInfo(f"{number:05}.{suffix}")
                member.size = size
                tar.addfile(member, io.BytesIO(CHANCE.randbytes(size)))
    return out.getvalue()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeS3]:
    """A bucket with three archives, a TFRecord file and an array."""
    objects = {
        f"sets/train-{n}.tar": archive(n * SAMPLES, SAMPLES) for n in range(SHARDS)
    }
    write_tfrecord(tmp_path / "x", [CHANCE.randbytes(n * 10) for n in range(100)])
    objects["sets/one.tfrecord"] = (tmp_path / "x").read_bytes()
    rows = io.BytesIO()
    np.save(rows, np.arange(4000, dtype=np.float32).reshape(100, 40))
    objects["sets/rows.npy"] = rows.getvalue()
    objects["sets/notes.txt"] = b"no records"
    with FakeS3(objects).served() as server:
        server.use(monkeypatch)
        yield server


def copied(bucket: FakeS3, folder: Path, names: list[str]) -> Records:
    """The same files on a disk."""
    for name in names:
        (folder / name).write_bytes(bucket.objects[f"sets/{name}"])
    return open_records([folder / name for name in names])


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("sets/train-*.tar", [f"train-{n}.tar" for n in range(SHARDS)]),
        ("sets/one.tfrecord", ["one.tfrecord"]),
        ("sets/rows.npy", ["rows.npy"]),
    ],
)
def test_batches_are_those_of_the_same_files_on_a_disk(
    bucket: FakeS3, tmp_path: Path, address: str, names: list[str]
) -> None:
    stored = open_records(f"s3://bucket/{address}")
    files = copied(bucket, tmp_path, names)
    gets = len(bucket.gets)

    with Loader(stored, 16, seed=1) as one, Loader(files, 16, seed=1) as other:
        for batch, expected in zip(one, other, strict=True):
            assert batch.ids.tolist() == expected.ids.tolist()
            assert [*map(bytes, batch.records)] == [*map(bytes, expected.records)]

    size = sum(len(bucket.objects[f"sets/{name}"]) for name in names)
    assert len(bucket.gets) - gets <= size / (4 << 20) + 2 * len(names)


def hdf5(**options: Any) -> bytes:
    """A file with rows of numbers, in a group."""
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        rows = np.arange(20_000, dtype=np.int32).reshape(500, 40)
        file.create_dataset("/set/rows", data=rows, **options)
    return out.getvalue()


@pytest.mark.parametrize("options", [{}, {"chunks": (30, 40)}], ids=["plain", "chunks"])
def test_rows_of_hdf5_are_read_by_ranges(
    bucket: FakeS3, tmp_path: Path, options: dict[str, Any]
) -> None:
    for number in range(2):
        bucket.objects[f"sets/{number}.h5"] = content = hdf5(**options)
        (tmp_path / f"{number}.h5").write_bytes(content)
    files = open_records(
        [f"{tmp_path / f'{number}.h5'}::/set/rows" for number in (0, 1)]
    )

    stored = open_records("s3://bucket/sets/*.h5::/set/rows")

    assert len(stored) == len(files) == 1000
    with Loader(stored, 50, seed=2) as one, Loader(files, 50, seed=2) as other:
        for batch, expected in zip(one, other, strict=True):
            assert np.array_equal(batch.array, expected.array)
    by_http = open_records(f"{bucket.url}/bucket/sets/1.h5::/set/rows")
    assert by_http[7] == files[507]


def test_samples_of_an_archive_in_a_bucket_have_their_members(bucket: FakeS3) -> None:
    told: list[tuple[str, int, int]] = []
    stored = open_records(
        "s3://bucket/sets/train-*.tar", progress=lambda *step: told.append(step)
    )

    assert told[-1] == ("indexed", SHARDS, SHARDS)
    assert len(stored) == SHARDS * SAMPLES
    names = [name for name, _ in members(stored[SAMPLES + 1])]
    assert names == ["00091.jpg", "00091.cls"]


def test_an_index_of_the_same_objects_is_not_made_again(bucket: FakeS3) -> None:
    assert open_records("s3://bucket/sets/train-*.tar").indexed
    gets = len(bucket.gets)
    again = open_records("s3://bucket/sets/train-*.tar")
    assert not again.indexed
    assert len(bucket.gets) == gets

    bucket.objects["sets/train-1.tar"] = archive(7, SAMPLES)
    assert open_records("s3://bucket/sets/train-*.tar").indexed


def test_an_archive_that_was_replaced_is_refused_by_its_key(bucket: FakeS3) -> None:
    stored = open_records("s3://bucket/sets/train-*.tar")
    bucket.objects["sets/train-1.tar"] = bytes(len(bucket.objects["sets/train-1.tar"]))

    with (
        Loader(stored, 16) as loader,
        pytest.raises(LoaderError, match=r"train-1.tar: .*it was changed since"),
    ):
        sum(len(batch) for batch in loader)


def test_a_file_behind_http_is_read_by_ranges(bucket: FakeS3, tmp_path: Path) -> None:
    stored = open_records(f"{bucket.url}/bucket/sets/train-0.tar")
    files = copied(bucket, tmp_path, ["train-0.tar"])

    assert [stored[n] for n in range(SAMPLES)] == [files[n] for n in range(SAMPLES)]


def test_failed_ranges_are_requested_again(bucket: FakeS3) -> None:
    bucket.act = lambda serial, key: Act(resets=10) if serial % 2 else None
    stored = open_records("s3://bucket/sets/train-*.tar")

    assert len(stored) == SHARDS * SAMPLES


def test_files_that_cannot_be_read_by_ranges_are_reported(bucket: FakeS3) -> None:
    def refusal(address: str) -> str:
        with pytest.raises(RecordsError) as caught:
            open_records(address)
        return str(caught.value)

    bucket.objects["sets/x.h5"] = b"\x89HDF\r\n\x1a\n" + bytes(2000)
    bucket.objects["sets/gz.h5"] = hdf5(chunks=(30, 40), compression="gzip")
    bucket.objects["sets/x.parquet"] = b"PAR1" + bytes(2000)
    assert "x.h5: its records are named" in refusal("s3://bucket/sets/x.h5")
    assert "x.h5: " in refusal("s3://bucket/sets/x.h5::/set/rows")
    packed = refusal("s3://bucket/sets/gz.h5::/set/rows")
    assert "gz.h5::/set/rows: its rows are packed" in packed
    assert "use one of ::/set/rows" in refusal("s3://bucket/sets/gz.h5::/none")
    assert "parquet cannot be read" in refusal("s3://bucket/sets/x.parquet::image")
    assert "its records are named" in refusal("s3://bucket/sets/rows.npy::x")
    for address in (
        *("redis://127.0.0.1/0::x", "s3://bucket/sets/::x"),
        "s3://bucket/x.h5::/set/rows?index=all",
    ):
        assert "only a file has a part" in refusal(address)
    assert "no known format" in refusal("s3://bucket/sets/notes.txt")
    assert "no object found" in refusal("s3://bucket/sets/val-*.tar")
    assert "no object matches" in refusal("s3://bucket/sets/train-*.tgz")
    assert "s3://bucket/sets/ has objects" in refusal("s3://bucket/sets")
    assert "404" in refusal(f"{bucket.url}/bucket/sets/none.tar")
    assert "signed address" in refusal("https://host/a.tar?X-Amz-Signature=abc")
