"""Formats of Record files: detection by the first bytes, and indexing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from monarch.records.arrays import (
    HDF5_MAGIC,
    NPY_MAGIC,
    index_hdf5,
    index_hdf5_in,
    index_npy,
)
from monarch.records.columns import PARQUET_MAGIC, index_parquet
from monarch.records.errors import RecordsError
from monarch.records.headers import HeaderReader, Opens
from monarch.records.index import RecordIndex, RecordObject
from monarch.records.lmdb_pages import index_lmdb, is_lmdb
from monarch.records.streams import index_tar, index_tfrecord, is_tar, is_tfrecord

START_BYTES: Final = 1024
"""Bytes at the start of a file that identify its format."""
_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}


class Format(NamedTuple):
    """How files of one format are indexed.

    Attributes:
        needs_part: a part must be named after the path; None: a part may be named.
        reads_headers: a HeaderReader reads it; else a library, which needs a path.
        of_file: indexes an open file; None: its library needs a path.
    """

    build: Callable[[Path, str, Opens], RecordIndex]
    needs_part: bool | None = False
    reads_headers: bool = True
    of_file: Callable[[BinaryIO, RecordObject, str], RecordIndex] | None = None


_LMDB: Final = Format(index_lmdb, None)
_NPY: Final = Format(lambda path, _, opens: index_npy(path, opens))
_HDF5: Final = Format(
    *(lambda path, part, _: index_hdf5(path, part), True, False), index_hdf5_in
)
_PARQUET: Final = Format(lambda path, part, _: index_parquet(path, part), True, False)
_TAR: Final = Format(lambda path, _, opens: index_tar(path, opens))
_TFRECORD: Final = Format(lambda path, _, opens: index_tfrecord(path, opens))


def format_of(path: str, start: bytes) -> Format:
    """Return the format of a file.

    Args:
        path: for messages; an empty file with "tfrecord" in its name is one.
        start: its first START_BYTES.

    Raises:
        RecordsError: it is of no known format.
    """
    if is_lmdb(start):
        return _LMDB
    if start.startswith(NPY_MAGIC):
        return _NPY
    if start.startswith(HDF5_MAGIC):
        return _HDF5
    if start.startswith(PARQUET_MAGIC):
        return _PARQUET
    if is_tar(start):
        return _TAR
    name = path.rpartition("/")[2]
    if is_tfrecord(start) or (not start and "tfrecord" in name):
        return _TFRECORD
    for magic, compression in _COMPRESSED.items():
        if start.startswith(magic):
            text = f"{path} is compressed by {compression}; uncompress it first"
            raise RecordsError(text)
    raise RecordsError(
        f"{path} has no known format; use LMDB, TFRecord, tar, HDF5, npy, "
        "parquet, or a folder"
    )


def index_by(
    path: Path, part: str, start: bytes, opens: Opens = HeaderReader
) -> RecordIndex:
    """Return the index of a local file.

    Args:
        opens: opens it, if its headers are read.

    Raises:
        RecordsError: it cannot be read, or is of no known format.
    """
    found = format_of(str(path), start)
    if found.needs_part is not None and bool(part) != found.needs_part:
        example = f"{path}::NAME" if found.needs_part else f"{path}"
        raise RecordsError(f"{path}: its records are named {example}")
    return found.build(path, part, opens)
