"""Datasets that libraries read: HDF5, parquet, LMDB, npy and safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from format_streams import FEW, MIB, ROW, Piece, Share, paths_of, piece

GROUP = 16 * MIB
TENSOR = 4 * MIB
VALUE, COMMIT = 100_000, 1000


def make_hdf5(root: Path, size: int, chunked: bool) -> None:
    """One array of rows of a MiB."""
    import h5py

    rows = size // ROW
    chunks = (1, ROW // 8) if chunked else None
    with h5py.File(root / "train.h5", "w") as file:
        array = file.create_dataset("x", (rows, ROW // 8), "u8", chunks=chunks)
        for row in range(rows):
            array[row] = piece(row, ROW)


def read_hdf5(root: Path, share: Share) -> Iterator[Piece]:
    """Rows in random order where they are chunks, else in their order."""
    import h5py

    with h5py.File(root / "train.h5", "r") as file:
        array = file["x"]
        rows = range(len(array))
        for row in share.deal(rows) if array.chunks else share.span(len(rows)):
            yield row, array[row]


def make_parquet(root: Path, size: int) -> None:
    """Tables of row groups, each a column as it is in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    groups = size // GROUP // FEW
    schema = pa.schema([("x", pa.uint64())])
    for number in range(FEW):
        place = root / f"{number:03}.parquet"
        plain = {"compression": "none", "use_dictionary": False}
        with parquet.ParquetWriter(place, schema, **plain) as writer:
            for group in range(groups):
                values = piece(number * groups + group, GROUP)
                writer.write_table(pa.table([values], schema), GROUP)


def read_parquet(root: Path, share: Share, mapped: bool) -> Iterator[Piece]:
    """Row groups in random order."""
    from pyarrow import parquet

    files = [parquet.ParquetFile(path, memory_map=mapped) for path in paths_of(root)]
    groups = [
        (n, g) for n, file in enumerate(files) for g in range(file.num_row_groups)
    ]
    for number, group in share.deal(groups):
        [chunk] = files[number].read_row_group(group).column(0).chunks
        yield number << 20 | group, chunk.buffers()[1]
    for file in files:
        file.close(force=True)


def make_lmdb(root: Path, size: int) -> None:
    """One environment; its lock file is not a part of the dataset."""
    import lmdb

    count = size // VALUE
    with lmdb.open(str(root), map_size=2 * size, lock=False) as env:
        for first in range(0, count, COMMIT):
            put_records(env, range(first, min(first + COMMIT, count)))


def put_records(env: Any, numbers: range) -> None:
    """Write some records in one transaction."""
    with env.begin(write=True) as records:
        for number in numbers:
            body = piece(number, VALUE).tobytes()
            records.put(b"%08d" % number, body, append=True)


def read_lmdb(root: Path, share: Share) -> Iterator[Piece]:
    """Records in the order of their keys."""
    import lmdb

    with (
        lmdb.open(str(root), readonly=True, lock=False) as env,
        env.begin(buffers=True) as records,
        records.cursor() as cursor,
    ):
        span = share.span(records.stat()["entries"])
        cursor.set_range(b"%08d" % span.start)
        yield from zip(span, cursor.iternext(keys=False), strict=False)


def make_npy(root: Path, size: int) -> None:
    """One array."""
    rows = size // ROW
    array = np.lib.format.open_memmap(
        root / "train.npy", "w+", np.dtype(np.uint64), (rows, ROW // 8)
    )
    for row in range(rows):
        array[row] = piece(row, ROW)


def read_npy(root: Path, share: Share) -> Iterator[Piece]:
    """Rows of a memmap."""
    array = np.load(root / "train.npy", mmap_mode="r")
    for row in share.span(len(array)):
        yield row, array[row]


def make_safetensors(root: Path, size: int) -> None:
    """Parts of a model."""
    from safetensors.numpy import save_file

    tensors = size // TENSOR // FEW
    for number in range(FEW):
        numbers = range(number * tensors, (number + 1) * tensors)
        part = {f"{one:06}": piece(one, TENSOR) for one in numbers}
        save_file(part, root / f"model-{number:03}.safetensors")


def read_safetensors(root: Path, share: Share) -> Iterator[Piece]:
    """Tensors in random order, those of a file together."""
    from safetensors import safe_open

    for number, path in enumerate(paths_of(root)):
        with safe_open(path, framework="numpy") as file:
            for name in share.deal(sorted(file.keys())):
                yield number << 20 | int(name), file.get_tensor(name)
