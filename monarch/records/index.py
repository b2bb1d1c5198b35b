"""The Record index: the place of each Record, as arrays mapped from a file.

A Record is a range of bytes in an object, such as a file. If a format compresses
Records together (HDF5 with filters, parquet), the index lists these encoded units and
the number of Records in each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128

from monarch.atomic_file import whole_file
from monarch.records.array_file import (
    Array,
    header_text,
    load_arrays,
    raw_bytes,
    write_arrays,
)
from monarch.records.errors import RecordsError
from monarch.records.keys import KeyIndex

Units = npt.NDArray[np.void]
"""Rows of type UNIT, one for each unit."""

UNIT: Final = np.dtype([("offset", "<u8"), ("length", "<u4"), ("object", "<u4")])
LENGTH_MAX: Final = (1 << 32) - 1
VERSION: Final = 3
_MAGIC: Final = b"MONARCHR"
_KIND: Final = "a record index"
_MODE: Final = 0o600


Progress = Callable[[str, int, int], None]
"""Called with the current step, the number done, and the total; a total of 0: unknown.
"""


def no_progress(step: str, done: int, count: int) -> None:
    """Show nothing."""


class Range(NamedTuple):
    """Bytes of an object.

    Attributes:
        object: its number in the index.
        offset: in bytes.
        length: in bytes.
    """

    object: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RecordObject:
    """A file that holds Records, with the values that reveal a change.

    Attributes:
        bytes: its size.
        mtime_ns: time of its last change.
    """

    path: str
    bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> RecordObject:
        """Examine a file.

        Raises:
            RecordsError: it cannot be examined.
        """
        try:
            found = os.stat(path)
        except OSError as error:
            raise RecordsError(f"{path}: {error.strerror}") from error
        return cls(os.path.abspath(path), found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True, eq=False)
class RecordIndex:
    """The places of the Records of some objects, by Record number.

    Args:
        format: name of the format, such as "lmdb".
        objects: the objects that `units["object"]` refers to by number.
        units: the range of bytes of each Record, or of each encoded unit.
        first_records: the first Record of each encoded unit, then the total number of
            Records; None: a unit is a Record.
        details: values that the format needs to decode units, and `dtype` and `shape`
            of a Record if it is an array.
    """

    format: str
    objects: tuple[RecordObject, ...] | KeyIndex
    units: Units
    first_records: npt.NDArray[np.uint64] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of Records."""
        if self.first_records is None:
            return len(self.units)
        return int(self.first_records[-1])

    def __repr__(self) -> str:
        return f"<RecordIndex {self.format}, {len(self)} records>"

    @property
    def keys(self) -> KeyIndex | None:
        """Return the objects of a store; None: they are files."""
        return self.objects if isinstance(self.objects, KeyIndex) else None

    @property
    def is_keyed(self) -> bool:
        """Return whether each Record is an object of a store."""
        return self.keys is not None and len(self.keys) >= len(self.units)

    @property
    def files(self) -> tuple[RecordObject, ...]:
        """Return the objects that are files."""
        return () if isinstance(self.objects, KeyIndex) else self.objects

    @property
    def bytes(self) -> int:
        """Return the bytes of all units."""
        return int(self.units["length"].sum(dtype=np.uint64))

    @property
    def is_decoded(self) -> bool:
        """Return whether units hold several Records, which are decoded together."""
        return self.first_records is not None

    def range_of(self, unit: int) -> Range:
        """Return the bytes of a unit."""
        offset, length, number = self.units[unit].item()
        return Range(number, offset, length)

    def unit_of(self, record: int) -> int:
        """Return the unit that holds a Record."""
        if self.first_records is None:
            return record
        return int(np.searchsorted(self.first_records, record, "right")) - 1

    def fingerprint(self) -> str:
        """Return a digest that changes with any Record and any object."""
        arrays = self._arrays()
        digest = xxh3_128(header_text(self._header(), arrays))
        for array in arrays.values():
            digest.update(raw_bytes(array))
        return digest.hexdigest()

    def save(self, file: Path) -> None:
        """Write the index to a file.

        Raises:
            OSError: it cannot be written.
        """
        with whole_file(file, mode=_MODE, durable=False) as out:
            self.write(out)

    def write(self, out: BinaryIO) -> None:
        """Write the index to an open file.

        Raises:
            OSError: it cannot be written.
        """
        write_arrays(out, _MAGIC, self._header(), self._arrays())

    @classmethod
    def load(cls, file: Path) -> RecordIndex:
        """Map an index from a file; its pages are read on first use.

        Raises:
            OSError: it cannot be read.
            RecordsError: it is no index of this version.
        """
        header, arrays = load_arrays(file, _MAGIC, _KIND, VERSION)
        try:
            units = arrays.pop("units")
            firsts = arrays.pop("first_records", None)
            keys, objects = header["keys"], header["objects"]
            found: tuple[RecordObject, ...] | KeyIndex
            if keys is not None:
                found = KeyIndex.of_parts(file, keys, arrays)
            else:
                found = tuple(RecordObject(**one) for one in objects)
            if units.dtype != UNIT:
                raise ValueError(f"units of type {units.dtype}")
            return cls(header["format"], found, units, firsts, header["details"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordsError(f"{file} is not {_KIND}: {error}") from error

    def _header(self) -> dict[str, Any]:
        keys = self.keys
        return {
            "version": VERSION,
            "format": self.format,
            "objects": [] if keys is not None else [asdict(one) for one in self.files],
            "keys": None if keys is None else keys.header(),
            "details": dict(self.details),
        }

    def _arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {"units": self.units}
        if self.first_records is not None:
            arrays["first_records"] = self.first_records
        return arrays if self.keys is None else arrays | self.keys.arrays()


def units_of(
    offsets: npt.ArrayLike, lengths: npt.ArrayLike, path: str, number: int = 0
) -> Units:
    """Return the units of one object.

    Raises:
        RecordsError: a unit is too long.
    """
    sizes = np.asarray(lengths, np.uint64)
    if sizes.size and int(sizes.max()) > LENGTH_MAX:
        raise RecordsError(f"{path}: a record is larger than 4 GiB")
    units = np.empty(sizes.shape, UNIT)
    units["offset"], units["length"], units["object"] = offsets, sizes, number
    return units


def joined(indexes: Sequence[RecordIndex]) -> RecordIndex:
    """Return one index of the Records of several, in their order.

    Raises:
        RecordsError: their Records are not of one kind.
    """
    first = indexes[0]
    objects: list[RecordObject] = []
    parts, firsts, records = [], [], 0
    for index in indexes:
        if (index.format, index.details) != (first.format, first.details):
            names = f"{index.objects[0].path} and {first.objects[0].path}"
            raise RecordsError(f"{names} have records of different kinds")
        units = np.array(index.units)
        units["object"] += len(objects)
        objects += index.files
        parts.append(units)
        if index.first_records is not None:
            firsts.append(np.asarray(index.first_records[:-1]) + np.uint64(records))
        records += len(index)
    rows = None
    if first.first_records is not None:
        rows = np.concatenate([*firsts, np.array([records], np.uint64)])
    units = np.concatenate(parts)
    return RecordIndex(first.format, tuple(objects), units, rows, first.details)
