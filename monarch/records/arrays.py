"""The Records of arrays: the rows of npy files and of HDF5 datasets."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from monarch.records.errors import RecordsError, read_by_library
from monarch.records.headers import HeaderReader, Opens
from monarch.records.index import RecordIndex, RecordObject, units_of

NPY_MAGIC: Final = b"\x93NUMPY"
HDF5_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_HEADER_BYTES: Final = 1 << 16
_ROWS_DECODED: Final = 1024
"""Rows of a unit if the file has no chunks, but its rows must be decoded."""


def index_npy(path: Path, opens: Opens = HeaderReader) -> RecordIndex:
    """Return the index of the rows of a npy file.

    Raises:
        RecordsError: its rows are not consecutive bytes.
    """
    with opens(str(path)) as file:
        start = io.BytesIO(file.fresh(0, _HEADER_BYTES))
        with read_by_library(file.path):
            version = np.lib.format.read_magic(start)
            if version == (1, 0):
                header = np.lib.format.read_array_header_1_0(start)
            else:
                header = np.lib.format.read_array_header_2_0(start)
        shape, fortran, dtype = header
        if min(shape, default=0) < 0:
            raise file.refuse(f"is damaged: its shape is {shape}")
        if dtype.hasobject or not shape or (fortran and len(shape) > 1):
            raise file.refuse("needs rows of plain numbers in C order")
        row_bytes = dtype.itemsize * math.prod(shape[1:])
        if start.tell() + shape[0] * row_bytes > file.size:
            raise file.refuse("is truncated")
        file.check_unchanged()
        offsets = start.tell() + np.arange(shape[0], dtype=np.uint64) * row_bytes
        lengths = np.full(shape[0], row_bytes, np.uint64)
        units = units_of(offsets, lengths, file.path)
        return RecordIndex("npy", (file.object,), units, details=_array(dtype, shape))


def index_hdf5(path: Path, name: str) -> RecordIndex:
    """Return the index of the rows of a dataset in a HDF5 file.

    Rows of consecutive bytes are Records. Rows in filtered chunks, and rows of variable
    length, are decoded by h5py.

    Raises:
        RecordsError: no such dataset, or h5py is not installed.
    """
    return _index_hdf5(str(path), RecordObject.of(path), name)


def index_hdf5_in(file: BinaryIO, found: RecordObject, name: str) -> RecordIndex:
    """Return the index of the rows of a dataset in a HDF5 file that has no path.

    Raises:
        RecordsError: as for `index_hdf5`, or the rows must be decoded.
    """
    index = _index_hdf5(file, found, name)
    if index.is_decoded:
        text = (
            "its rows are packed, or of variable length, and cannot be read by ranges"
        )
        raise RecordsError(f"{found.path}::{name}: {text}; ingest it, or copy it")
    return index


def _index_hdf5(file: str | BinaryIO, found: RecordObject, name: str) -> RecordIndex:
    path = found.path
    try:
        import h5py
    except ImportError as error:
        raise RecordsError(f"{path}: HDF5 needs h5py: pip install h5py") from error
    with read_by_library(path), h5py.File(file, "r") as opened:
        dataset = opened.get(name)
        if not isinstance(dataset, h5py.Dataset):
            raise RecordsError(f"{path} has no dataset {name!r}; {_names(opened)}")
        return _index_dataset(dataset, found)


def _names(file: Any) -> str:
    import h5py

    names: list[str] = []

    def note(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset) and found.shape:
            names.append(f"::/{name}")

    file.visititems(note)
    return f"use one of {', '.join(names[:10])}" if names else "it has none"


def _index_dataset(dataset: Any, found: RecordObject) -> RecordIndex:
    if not dataset.shape:
        raise RecordsError(f"{found.path}::{dataset.name} has no rows")
    rows, dtype = int(dataset.shape[0]), dataset.dtype
    offsets = None if dtype.hasobject else _row_offsets(dataset)
    if offsets is None:
        return _encoded(dataset, found)
    row_bytes = dtype.itemsize * math.prod(dataset.shape[1:])
    lengths = np.full(rows, row_bytes, np.uint64)
    if rows and int(offsets.max()) + row_bytes > found.bytes:
        raise RecordsError(f"{found.path} is truncated")
    units = units_of(offsets, lengths, found.path)
    details = {"dataset": dataset.name, **_array(dtype, dataset.shape)}
    return RecordIndex("hdf5", (found,), units, details=details)


def _row_offsets(dataset: Any) -> npt.NDArray[np.uint64] | None:
    """Return the offset of each row; None: rows are not consecutive plain bytes."""
    shape, chunks = dataset.shape, dataset.chunks
    row_bytes = dataset.dtype.itemsize * math.prod(shape[1:])
    numbers = np.arange(shape[0], dtype=np.uint64)
    if not shape[0]:
        return numbers
    if chunks is None:
        start = dataset.id.get_offset()
        if start is None or dataset.external:
            return None
        return numbers * np.uint64(row_bytes) + np.uint64(start)
    plist = dataset.id.get_create_plist()
    if plist.get_nfilters() or chunks[1:] != shape[1:]:
        return None
    starts = np.zeros(-(-shape[0] // chunks[0]), np.uint64)

    def note(chunk: Any) -> None:
        starts[chunk.chunk_offset[0] // chunks[0]] = chunk.byte_offset

    dataset.id.chunk_iter(note)
    if not starts.all():
        return None  # a chunk was never written: its rows have the fill value
    inside = numbers % np.uint64(chunks[0]) * np.uint64(row_bytes)
    offsets: npt.NDArray[np.uint64] = np.repeat(starts, chunks[0])[: shape[0]] + inside
    return offsets


def _encoded(dataset: Any, found: RecordObject) -> RecordIndex:
    """Return the index of decoded rows, by chunks of the first dimension."""
    rows = int(dataset.shape[0])
    step = dataset.chunks[0] if dataset.chunks else _ROWS_DECODED
    count = -(-rows // step)
    begins = np.full(count, found.bytes, np.uint64)
    sizes = np.zeros(count, np.uint64)

    def note(chunk: Any) -> None:
        unit = chunk.chunk_offset[0] // step
        begins[unit] = min(int(begins[unit]), chunk.byte_offset)
        sizes[unit] += np.uint64(chunk.size)

    if dataset.chunks:
        dataset.id.chunk_iter(note)
    elif rows:
        begins[:], sizes[:] = 0, dataset.id.get_storage_size() // count
    firsts = np.minimum(np.arange(count + 1, dtype=np.uint64) * np.uint64(step), rows)
    details = {"dataset": dataset.name, "decoder": "hdf5"}
    if not dataset.dtype.hasobject:
        details |= _array(dataset.dtype, dataset.shape)
    units = units_of(begins, sizes, found.path)
    return RecordIndex("hdf5", (found,), units, firsts.astype(np.uint64), details)


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the type and shape of the rows of an array."""
    if dtype.fields:
        return {}
    return {"dtype": dtype.str, "shape": [int(size) for size in shape[1:]]}
