"""Records of packed files are byte for byte those of the formats' own libraries."""

import io
import os
import random
import struct
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.records import RecordsError, members, open_records
from monarch.records.index import RecordIndex
from monarch.records.streams import masked_crc, sample_key

SIZES = (0, 1, 5, 100, 1500, 2029, 2030, 2031, 2038, 2039, 9000)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def contents(path):
    """All Records of a path."""
    records = open_records(path)
    try:
        return [records[number] for number in range(len(records))]
    finally:
        records.close()


def tfrecord(path, values):
    with open(path, "wb") as out:
        for value in values:
            length = struct.pack("<Q", len(value))
            out.write(length + struct.pack("<I", masked_crc(length)))
            out.write(value + struct.pack("<I", masked_crc(value)))


def archive(path, files, style=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=style) as out:
        for name, value in files:
            info = tarfile.TarInfo(name)
            info.size = len(value)
            out.addfile(info, io.BytesIO(value))


# -- LMDB ------------------------------------------------------------------------------

in_both_formats = pytest.mark.parametrize("lib_version", [0, 1], ids=["v0.9", "v1.0"])


def database(path, values, **options):
    """Write values by random keys; return them in the order of the keys."""
    lmdb = pytest.importorskip("lmdb")
    rng = random.Random(len(values))
    keys = rng.sample(range(10**6), len(values))
    name = options.pop("name", None)
    with lmdb.open(str(path), map_size=1 << 28, max_dbs=4, **options) as env:
        opened = env.open_db(name.encode()) if name else None
        with env.begin(write=True, db=opened) as transaction:
            for key, value in zip(keys, values, strict=True):
                transaction.put(b"%06d" % key, value)
        with env.begin(db=opened) as transaction:
            return [bytes(value) for _, value in transaction.cursor()]


def values_of(count, seed=1):
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice(SIZES)) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 40, 3000])
@pytest.mark.parametrize("subdir", [True, False])
@in_both_formats
def test_records_of_lmdb_are_those_of_a_cursor(tmp_path, count, subdir, lib_version):
    path = tmp_path / "train.lmdb"
    expected = database(path, values_of(count), subdir=subdir, lib_version=lib_version)

    assert contents(path) == expected


@in_both_formats
@pytest.mark.parametrize("key_bytes", [1, 2, 3, 4, 5, 7, 8, 9, 100, 511])
def test_values_lie_behind_keys_of_any_length(tmp_path, key_bytes, lib_version):
    lmdb = pytest.importorskip("lmdb")
    path = tmp_path / "keys.lmdb"
    told = {"map_size": 1 << 24, "subdir": False, "lib_version": lib_version}
    with lmdb.open(str(path), **told) as env, env.begin(write=True) as transaction:
        for number, value in enumerate(values_of(9, key_bytes)):
            transaction.put(b"%0*d" % (key_bytes, number), value)

    assert contents(path) == values_of(9, key_bytes)


@in_both_formats
def test_records_of_a_named_database_are_those_of_its_cursor(tmp_path, lib_version):
    path = tmp_path / "train.lmdb"
    expected = database(
        path, values_of(300), name="images", subdir=False, lib_version=lib_version
    )
    labels = database(
        path, values_of(20, 2), name="labels", subdir=False, lib_version=lib_version
    )

    assert contents(f"{path}::images") == expected
    assert contents(f"{path}::labels") == labels


@in_both_formats
def test_a_database_that_holds_named_ones_lists_their_names(tmp_path, lib_version):
    path = tmp_path / "train.lmdb"
    database(path, values_of(3), name="images", subdir=False, lib_version=lib_version)

    with pytest.raises(RecordsError, match="add ::NAME, such as of images"):
        open_records(path)
    with pytest.raises(RecordsError, match="no database 'masks'; it has images"):
        open_records(f"{path}::masks")


def test_duplicate_keys_of_lmdb_are_refused(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "d"), map_size=1 << 20, max_dbs=1) as env:
        opened = env.open_db(b"many", dupsort=True)
        with env.begin(write=True, db=opened) as transaction:
            transaction.put(b"a", b"1")
            transaction.put(b"a", b"2")

    with pytest.raises(RecordsError, match="DUPSORT"):
        open_records(f"{tmp_path / 'd'}::many")


@in_both_formats
def test_the_index_of_lmdb_reads_few_of_its_bytes(tmp_path, lib_version):
    from monarch.records.headers import HeaderReader
    from monarch.records.lmdb_pages import Tree, newest_meta

    path = tmp_path / "train.lmdb"
    database(path, [bytes(12_000)] * 2000, subdir=False, lib_version=lib_version)

    with HeaderReader(str(path)) as file:
        tree = Tree(file, newest_meta(file))
        found = sum(len(nodes.at) for nodes in tree.leaves(tree.root_of("")))

    assert found == 2000
    assert file.read_bytes <= 0.03 * file.size


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_lmdb_is_refused_or_read_but_never_crashes(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "train.lmdb"
    version = data.draw(st.integers(0, 1))
    database(path, values_of(60), subdir=False, lib_version=version)
    with open(path, "r+b") as file:
        for _ in range(data.draw(st.integers(1, 8))):
            file.seek(data.draw(st.integers(0, os.path.getsize(path) - 1)))
            file.write(bytes([data.draw(st.integers(0, 255))]))
        if data.draw(st.booleans()):
            file.truncate(data.draw(st.integers(0, os.path.getsize(path))))

    try:
        units = open_records(path).index.units
    except RecordsError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert str(path) in refused
        return
    assert all(
        int(u["offset"]) + int(u["length"]) <= path.stat().st_size for u in units
    )


# -- TFRecord and tar ------------------------------------------------------------------


@given(st.lists(st.binary(max_size=9000), max_size=40))
@settings(deadline=None, max_examples=40)
def test_records_of_tfrecord_are_those_that_were_written(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("records") / "train.tfrecord"
    tfrecord(path, values)

    assert contents(path) == values


def test_records_of_tfrecord_are_those_of_tensorflow(tmp_path):
    tf = pytest.importorskip("tensorflow")
    path = tmp_path / "train.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as out:
        for value in values_of(50):
            out.write(value)

    assert contents(path) == values_of(50)


@pytest.mark.parametrize("cut", [1, 5, 13, 40])
def test_a_truncated_tfrecord_is_refused_with_the_record(tmp_path, cut):
    path = tmp_path / "train.tfrecord"
    tfrecord(path, [bytes(30)] * 3)
    os.truncate(path, path.stat().st_size - cut)

    with pytest.raises(RecordsError, match="truncated or damaged at record 2"):
        open_records(path)


@pytest.mark.parametrize(
    "style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_records_of_tar_are_samples_with_the_members_of_tarfile(tmp_path, style):
    rng = random.Random(3)
    long = "d" * 90 + "/" + "n" * 60 if style != tarfile.USTAR_FORMAT else "short"
    files = []
    for number in range(30):
        name = f"{long}/{number:04}.x" if number % 7 == 0 else f"a/{number:04}"
        name = name.removesuffix(".x")
        files.append((f"{name}.jpg", rng.randbytes(rng.randrange(5000))))
        files += [(f"{name}.cls", b"%d" % number)] * (number % 3 > 0)
    path = tmp_path / "train.tar"
    archive(path, files, style)

    found = [list(members(record)) for record in contents(path)]

    assert [(n, bytes(v)) for sample in found for n, v in sample] == files
    assert len(found) == 30
    assert all(len({sample_key(n) for n, _ in sample}) == 1 for sample in found)


@pytest.mark.parametrize("place", [124, 148])
def test_a_damaged_tar_is_refused_with_the_place(tmp_path, place):
    path = tmp_path / "train.tar"
    archive(path, [("a.jpg", bytes(600)), ("b.jpg", bytes(600))])
    data = bytearray(path.read_bytes())
    data[3 * 512 + place] ^= 0x15
    path.write_bytes(data)

    with pytest.raises(RecordsError, match="damaged at byte 1536"):
        open_records(path)


# -- arrays and columns ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 3), (1,), (7, 4, 2), (100, 33)])
@pytest.mark.parametrize("dtype", ["<f4", "u1", ">i8"])
def test_records_of_npy_are_its_rows(tmp_path, shape, dtype):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(tmp_path / "a.npy", array)

    records = open_records(tmp_path / "a.npy")

    assert [records[i] for i in range(len(records))] == [row.tobytes() for row in array]
    assert records.index.details == {"dtype": array.dtype.str, "shape": [*shape[1:]]}


def test_a_npy_file_without_plain_rows_is_refused(tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(np.ones((3, 4))))

    with pytest.raises(RecordsError, match="in C order"):
        open_records(tmp_path / "f.npy")


@pytest.mark.parametrize(
    ("options", "is_decoded"),
    [
        ({}, False),
        ({"chunks": (4, 6)}, False),
        ({"chunks": (1, 6)}, False),
        ({"chunks": (4, 3)}, True),
        ({"chunks": (4, 6), "compression": "gzip"}, True),
        ({"chunks": (8, 6), "shuffle": True, "compression": "lzf"}, True),
    ],
)
def test_records_of_hdf5_are_its_rows(tmp_path, options, is_decoded):
    h5py = pytest.importorskip("h5py")
    array = np.random.default_rng(1).integers(0, 1000, (37, 6)).astype("<i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("train/images", data=array, **options)

    records = open_records(f"{tmp_path / 'a.h5'}::/train/images")

    assert records.index.is_decoded == is_decoded
    assert [records[i] for i in range(37)] == [row.tobytes() for row in array]
    assert records.index.details["dtype"] == "<i4"


def test_rows_of_variable_length_of_hdf5_are_decoded(tmp_path):
    h5py = pytest.importorskip("h5py")
    rows = [np.frombuffer(value, np.uint8) for value in values_of(2500)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        kind = h5py.vlen_dtype(np.uint8)
        dataset = file.create_dataset("images", (2500,), kind)
        for number, row in enumerate(rows):
            dataset[number] = row

    assert contents(f"{tmp_path / 'a.h5'}::images") == values_of(2500)


def test_a_chunk_that_was_never_written_has_the_fill_value(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("x", (8, 2), "u1", chunks=(4, 2), fillvalue=7)
        dataset[:4] = 1

    assert contents(f"{tmp_path / 'a.h5'}::x") == [b"\1\1"] * 4 + [b"\7\7"] * 4


def test_a_missing_dataset_of_hdf5_is_refused_with_the_existing_ones(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train/images"] = np.ones((3, 2))

    with pytest.raises(RecordsError, match="use one of ::/train/images"):
        open_records(f"{tmp_path / 'a.h5'}::/images")


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_of_parquet_are_the_values_of_a_column(tmp_path, codec):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    values = values_of(500)
    table = pyarrow.table({"image": values, "label": list(range(500))})
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path, row_group_size=64, compression=codec)

    assert contents(f"{path}::image") == values
    labels = contents(f"{path}::label")
    assert [int.from_bytes(v, "little") for v in labels] == list(range(500))
    with pytest.raises(RecordsError, match="use one of ::image, ::label"):
        open_records(f"{path}::mask")


# -- paths and saved indexes -----------------------------------------------------------


def test_a_folder_has_a_record_for_each_file_in_the_order_of_paths(tmp_path):
    files = {f"c{n % 3}/{n}.jpg": bytes([n]) * n for n in range(20)}
    for name, value in files.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)

    assert contents(tmp_path / "data") == [files[name] for name in sorted(files)]


def test_several_files_are_joined_in_their_order_and_patterns_are_sorted(tmp_path):
    for number in range(3):
        tfrecord(tmp_path / f"train-{number}.tfrecord", [b"%d" % number] * number)
    names = [tmp_path / f"train-{number}.tfrecord" for number in (2, 1)]

    assert contents(names) == [b"2", b"2", b"1"]
    assert contents(str(tmp_path / "train-*.tfrecord")) == [b"1", b"2", b"2"]


def test_decoded_records_of_several_files_are_joined(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for number in range(3):
        table = pyarrow.table({"x": [b"%d-%d" % (number, row) for row in range(10)]})
        parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=4)

    expected = [b"%d-%d" % (number, row) for number in range(3) for row in range(10)]
    assert contents(f"{tmp_path}/*.parquet::x") == expected


def test_an_index_is_saved_and_made_anew_when_the_file_has_changed(tmp_path):
    path = tmp_path / "train.tfrecord"
    tfrecord(path, [b"a"])
    assert open_records(path).indexed
    assert not open_records(path).indexed
    before = open_records(path).index.fingerprint()

    tfrecord(path, [b"a", b"b"])

    assert open_records(path).indexed
    assert open_records(path).index.fingerprint() != before
    assert contents(path) == [b"a", b"b"]


def test_a_file_that_changes_after_its_index_was_loaded_is_refused(tmp_path):
    path = tmp_path / "train.tfrecord"
    tfrecord(path, [b"a"])
    records = open_records(path)
    tfrecord(path, [b"a", b"b"])

    with pytest.raises(RecordsError, match="was changed since its index was made"):
        records[0]


@pytest.mark.parametrize("damage", [b"", b"MONARCHR", b"x" * 100])
def test_a_damaged_saved_index_is_made_anew(tmp_path, damage):
    path = tmp_path / "train.tfrecord"
    tfrecord(path, [b"a"])
    open_records(path)
    (saved,) = (tmp_path / "state").rglob("*.records")
    saved.write_bytes(damage)

    assert contents(path) == [b"a"]


def test_an_index_takes_16_bytes_for_a_record(tmp_path):
    path = tmp_path / "train.tfrecord"
    tfrecord(path, [b"abc"] * 1000)
    index = open_records(path).index
    index.save(tmp_path / "saved")

    assert (tmp_path / "saved").stat().st_size <= 16 * 1000 + 4096
    loaded = RecordIndex.load(tmp_path / "saved")
    assert loaded.fingerprint() == index.fingerprint()
    assert (loaded.units == index.units).all()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello", "no known format"),
        (b"\x1f\x8b\x08rest", "compressed by gzip"),
        (None, "No such file"),
    ],
)
def test_a_path_that_cannot_be_opened_is_refused_in_one_line(tmp_path, content, words):
    path = tmp_path / "train"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(RecordsError, match=words) as caught:
        open_records(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_within_a_file_are_asked_for_and_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))

    with pytest.raises(RecordsError, match="are named"):
        open_records(f"{tmp_path / 'a.npy'}::x")
