"""Damaged, hostile and changed files: refused in one line, and never a wrong Record."""

import io
import os
import random
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.records import RecordsError, members, open_records, saved
from monarch.records.headers import HeaderReader
from monarch.records.lmdb_pages import Tree, newest_meta
from monarch.records.streams import masked_crc

h5py = pytest.importorskip("h5py")
lmdb = pytest.importorskip("lmdb")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

BLOCK = 512
ROWS = np.arange(400).reshape(100, 4)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


def make_tar(path):
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as out:
        for number in range(4):
            info = tarfile.TarInfo(f"{'n' * 120 * (number % 2)}{number}.jpg")
            info.size = 300
            out.addfile(info, io.BytesIO(bytes([number]) * 300))


def make_tfrecord(path):
    with open(path, "wb") as out:
        for number in range(20):
            length = (number * 7).to_bytes(8, "little")
            out.write(length + masked_crc(length).to_bytes(4, "little"))
            out.write(bytes(number * 7 + 4))


def make_hdf5(path, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=ROWS, **options)


MAKE = {
    "a.tar": make_tar,
    "a.tfrecord": make_tfrecord,
    "a.npy": lambda path: np.save(path, ROWS),
    "a.h5::x": make_hdf5,
    "chunks.h5::x": lambda path: make_hdf5(path, chunks=(10, 4), compression="gzip"),
    "a.parquet::x": lambda path: parquet.write_table(
        pyarrow.table({"x": [bytes(n) for n in range(100)]}), path, row_group_size=20
    ),
}


@pytest.mark.parametrize("name", MAKE)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_damaged_file_is_refused_in_one_line_or_read(tmp_path_factory, name, data):
    path = tmp_path_factory.mktemp("damaged") / name.partition("::")[0]
    MAKE[name](path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        # The headers of most formats are at the beginning or at the end.
        place = data.draw(st.integers(-1500, 1500)) % len(content)
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])

    told = ""
    try:
        records = open_records(f"{path.parent}/{name}")
        for number in range(len(records)):
            records[number]
    except RecordsError as error:
        told = str(error)

    assert not told or (str(path) in told and told.isprintable())


def with_header(path, block, **fields):
    """Writes fields of a header of an archive, and its checksum."""
    places = {"size": 124, "kind": 156}
    content = bytearray(path.read_bytes())
    header = content[BLOCK * block : BLOCK * (block + 1)]
    for name, value in fields.items():
        header[places[name] : places[name] + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    content[BLOCK * block : BLOCK * (block + 1)] = header
    path.write_bytes(content)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", [b"0", b"V"])
@pytest.mark.parametrize("size", [b"-0000010000\0", b"-0000000001\0", b"\xff" * 12])
def test_an_impossible_size_ends_the_index_of_a_tar(tmp_path, kind, size):
    make_tar(tmp_path / "a.tar")
    with_header(tmp_path / "a.tar", 2, size=size, kind=kind)

    with pytest.raises(RecordsError, match=r"damaged at byte 1024|truncated"):
        open_records(tmp_path / "a.tar")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("size", ["-9999", "many"])
def test_an_impossible_size_of_pax_is_refused(tmp_path, size):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as out:
        info = tarfile.TarInfo("a.jpg")
        info.pax_headers = {"size": size}
        out.addfile(info)

    with pytest.raises(RecordsError, match="damaged at byte 1024"):
        open_records(path)
    with pytest.raises(ValueError, match=r"negative|invalid literal"):
        list(members(path.read_bytes()[: 3 * BLOCK]))


@pytest.mark.parametrize("shape", ["(-5, 2)", "(2, -5)", f"({1 << 40}, {1 << 40})"])
def test_an_impossible_shape_is_refused(tmp_path, shape):
    np.save(tmp_path / "a.npy", ROWS)
    content = (tmp_path / "a.npy").read_bytes()
    changed = content.replace(b"(100, 4), }" + b" " * 30, f"{shape}, }}".encode())
    length = content.index(b"\n") - changed.index(b"\n")
    changed = changed.replace(b"\n", b" " * length + b"\n", 1)
    (tmp_path / "a.npy").write_bytes(changed)

    with pytest.raises(RecordsError, match=r"its shape is|is truncated"):
        open_records(tmp_path / "a.npy")


@pytest.mark.timeout(20)
def test_a_tree_of_lmdb_that_has_a_page_twice_is_refused(tmp_path):
    path = tmp_path / "a.lmdb"
    with lmdb.open(str(path), subdir=False, map_size=1 << 24) as env:
        with env.begin(write=True) as transaction:
            for number in range(2000):
                transaction.put(b"%06d" % number, bytes(500))
        size = env.stat()["psize"]
    with HeaderReader(str(path)) as file:
        meta = newest_meta(file)
        root = Tree(file, meta).root_of("")
        page = bytearray(file.fresh(root * size, size))
    count = (int.from_bytes(page[12:14], "little") - 16) // 2
    for number in range(count):  # all nodes of the root lead to it
        at = int.from_bytes(page[16 + 2 * number : 18 + 2 * number], "little")
        page[at : at + 6] = root.to_bytes(6, "little")
    with path.open("r+b") as file:
        file.seek(root * size)
        file.write(page)

    with pytest.raises(RecordsError, match=r"in its tree twice|too deep"):
        open_records(path)


def test_missing_records_of_a_parquet_unit_are_an_error(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    MAKE["a.parquet::x"](path)
    records = open_records(f"{path}::x")
    firsts = records.index.first_records
    assert firsts is not None
    firsts[1] += 1  # as in a damaged footer

    with pytest.raises(RecordsError, match="records of a unit are missing"):
        records[0]


# -- changed files, and indexes that cannot be kept ------------------------------------


@pytest.mark.parametrize("place", ["new.jpg", "a/new.jpg", "a/b/new.jpg"])
def test_another_file_anywhere_below_a_folder_is_noticed(tmp_path, place):
    root = tmp_path / "data"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "old.jpg").write_bytes(b"old")
    assert len(open_records(root)) == 1
    assert not open_records(root).indexed

    (root / place).write_bytes(b"new")

    assert len(open_records(root)) == 2


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    root = tmp_path / "data"
    (root / "below").mkdir(parents=True)
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("below"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)

    with pytest.raises(RecordsError, match="below: Permission denied"):
        open_records(root)


def test_records_are_read_even_without_room_for_the_index(tmp_path, monkeypatch):
    make_tfrecord(tmp_path / "a.tfrecord")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")

    records = open_records(tmp_path / "a.tfrecord")

    assert records.indexed
    assert records[19] == bytes(133)
    assert open_records(tmp_path / "a.tfrecord").indexed


def test_a_fresh_index_replaces_the_saved_one(tmp_path, state):
    make_tfrecord(tmp_path / "a.tfrecord")
    open_records(tmp_path / "a.tfrecord")
    (file,) = state.rglob("*.records")
    before = file.stat().st_ino

    assert open_records(tmp_path / "a.tfrecord", fresh=True).indexed
    assert file.stat().st_ino != before
    assert not open_records(tmp_path / "a.tfrecord").indexed


def test_kept_indexes_are_bounded_and_leftovers_removed(tmp_path, state, monkeypatch):
    monkeypatch.setattr(saved, "FILES_MAX", 3)
    folder = state / "monarch-staging" / "records"
    for number in range(5):
        path = tmp_path / f"{number}.tfrecord"
        make_tfrecord(path)
        open_records(path)
        if not number:  # as left by a killed process and by a later version
            (folder / ".x.records.a1").touch()
            os.utime(folder / ".x.records.a1", (1, 1))
            (folder / "y.records").write_bytes(b"MONARCHR of tomorrow")

    assert len(list(folder.iterdir())) == 3
    assert open_records(tmp_path / "0.tfrecord").indexed
    assert not open_records(tmp_path / "4.tfrecord").indexed


def test_a_hostile_name_is_printed_on_one_line(tmp_path):
    path = Path(f"{tmp_path}/evil\n\x1b[31mname")
    path.write_bytes(random.Random(1).randbytes(100))

    with pytest.raises(RecordsError) as caught:
        open_records(path)

    assert str(caught.value).isprintable()
