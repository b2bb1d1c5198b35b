"""The Records of a column of a parquet file, and decoding of encoded units."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from monarch.records.errors import RecordsError, read_by_library
from monarch.records.index import RecordIndex, RecordObject, units_of

PARQUET_MAGIC: Final = b"PAR1"


def index_parquet(path: Path, column: str) -> RecordIndex:
    """Return the index of a column of a parquet file, by its row groups.

    Raises:
        RecordsError: no such column, or pyarrow is not installed.
    """
    found = RecordObject.of(path)
    with read_by_library(path), _parquet(str(path)) as file:
        metadata = file.metadata
        first = metadata.row_group(0) if metadata.num_row_groups else None
        leaves = [] if first is None else _leaves(first)
        if first is not None and leaves.count(column) != 1:
            known = ", ".join(f"::{name}" for name in dict.fromkeys(leaves))
            raise RecordsError(f"{path} has no column {column!r}; use one of {known}")
        number = leaves.index(column) if leaves else 0
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = [group.column(number) for group in groups]
        begins = [
            min(
                chunk.dictionary_page_offset or chunk.data_page_offset,
                chunk.data_page_offset,
            )
            for chunk in chunks
        ]
        sizes = [chunk.total_compressed_size for chunk in chunks]
        rows = np.cumsum([0, *(group.num_rows for group in groups)], dtype=np.uint64)
        units = units_of(begins, sizes, found.path)
        details = {"column": column, "decoder": "parquet"}
        return RecordIndex("parquet", (found,), units, rows, details)


def _leaves(group: Any) -> list[str]:
    """Return the columns that are not parts of a nested one."""
    paths = [group.column(i).path_in_schema for i in range(group.num_columns)]
    return [path if "." not in path else "" for path in paths]


def _parquet(path: str) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise RecordsError(f"{path}: parquet needs pyarrow: pip install pyarrow") from (
            error
        )
    return parquet.ParquetFile(path)


# -- decoding --------------------------------------------------------------------------


class UnitDecoder:
    """Decodes the Records of the encoded units of an index.

    It keeps one file open, and is not thread-safe.
    """

    def __init__(self, index: RecordIndex) -> None:
        self._index = index
        self._decode = {"hdf5": self._hdf5, "parquet": self._parquet}[
            index.details["decoder"]
        ]
        self._number = -1
        self._file: Any = None

    def __repr__(self) -> str:
        return f"<UnitDecoder {self._index!r}>"

    def records(self, unit: int) -> Sequence[memoryview]:
        """Return the bytes of the Records of a unit.

        Raises:
            RecordsError: its file cannot be read.
        """
        number = int(self._index.units[unit]["object"])
        path = self._index.objects[number].path
        with read_by_library(path):
            self._open(number)
            found = self._decode(unit)
        _, first, end = self._place(unit)
        if len(found) != end - first:
            raise RecordsError(f"{path} is damaged: records of a unit are missing")
        return found

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            self._file.close()
        self._number, self._file = -1, None

    def _open(self, number: int) -> None:
        if number == self._number:
            return
        self.close()
        path = self._index.objects[number].path
        if self._index.details["decoder"] == "hdf5":
            import h5py

            self._file = h5py.File(path, "r")
        else:
            self._file = _parquet(path)
        self._number = number

    def _place(self, unit: int) -> tuple[int, int, int]:
        """Return the number of a unit in its file, and the range of its rows there."""
        firsts = self._index.first_records
        assert firsts is not None
        start = int(np.searchsorted(self._index.units["object"], self._number))
        first, end = int(firsts[unit]), int(firsts[unit + 1])
        base = int(firsts[start])
        return unit - start, first - base, end - base

    def _hdf5(self, unit: int) -> list[memoryview]:
        _, first, end = self._place(unit)
        rows = self._file[self._index.details["dataset"]][first:end]
        return [_bytes_of(row) for row in rows]

    def _parquet(self, unit: int) -> list[memoryview]:
        number, _, _ = self._place(unit)
        column = self._index.details["column"]
        table = self._file.read_row_group(number, columns=[column])
        return [_bytes_of(value.as_py()) for value in table.column(0)]


def _bytes_of(value: Any) -> memoryview:
    """Return the bytes of a value that a library has decoded."""
    if value is None:
        return memoryview(b"")
    if isinstance(value, str):
        return memoryview(value.encode())
    if isinstance(value, bytes):
        return memoryview(value)
    return memoryview(np.asarray(value).tobytes())
