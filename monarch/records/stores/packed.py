"""Files of Records in a store, read by ranges: tar, TFRecord, LMDB, npy and HDF5."""

from __future__ import annotations

import fnmatch
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.formats import START_BYTES, format_of
from monarch.records.headers import Cursor, HeaderReader
from monarch.records.index import RecordIndex, RecordObject
from monarch.records.keys import KeyIndex
from monarch.records.stores.exchange import Wanted
from monarch.records.stores.source import Waiter

WINDOW_BYTES: Final = 16 << 20
"""Headers that lie close are read with all bytes between them: a round trip for each
would take longer."""
REQUEST_BYTES: Final = 4 << 20
FILE_BYTES: Final = 1 << 18
"""Piece size of the reads of a library that reads its own format."""
INDEXED_AT_ONCE: Final = 8


class StoreReader(HeaderReader):
    """An object of a store, read as HeaderReader reads a file.

    Args:
        number: number of the object in the index.
    """

    window_bytes = WINDOW_BYTES

    def __init__(self, waiter: Waiter, keys: KeyIndex, number: int) -> None:
        self.path = keys[number].path
        self.object = RecordObject(self.path, keys.length(number), 0)
        self.requests = 0
        self.read_bytes = 0
        self._waiter, self._keys, self._number = waiter, keys, number
        self._cursor = Cursor(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep the connections, which belong to the waiter."""

    def fresh(self, offset: int, length: int) -> bytes:
        """Read bytes from the store by parallel requests, and return them.

        Raises:
            RecordsError: they cannot be read, or the object has changed.
        """
        end = min(offset + length, self.size)
        key = self._keys.key(self._number)
        identity = self._keys.identity(self._number)
        wanted = [
            Wanted(key, at, min(REQUEST_BYTES, end - at), False, identity)
            for at in range(offset, end, REQUEST_BYTES)
        ]
        found = b"".join(self._waiter.fetch(wanted)) if wanted else b""
        self.requests += len(wanted)
        self.read_bytes += len(found)
        return found

    def check_unchanged(self) -> None:
        """Do nothing: each read checks the identity of the object."""


class _Ranges(io.RawIOBase):
    """An object of a store as an open file, for a library that parses its format."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the offset of the next read, and return it."""
        begins = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._reader.size}
        self._at = begins[whence] + offset
        return self._at

    def readinto(self, place: Any) -> int:
        """Fill a buffer; return the number of bytes, which is lower at the end."""
        found = self._reader.fresh(self._at, len(place))
        place[: len(found)] = found
        self._at += len(found)
        return len(found)


def matching(keys: KeyIndex, pattern: str) -> KeyIndex:
    """Return the objects whose keys match a shell pattern.

    Raises:
        RecordsError: none matches.
    """
    names = [key.decode(errors="surrogateescape") for key in keys.keys()]  # noqa: SIM118
    rows = [n for n, name in enumerate(names) if fnmatch.fnmatchcase(name, pattern)]
    if not rows:
        raise RecordsError(f"{keys.store}: no object matches")
    return keys.select(np.asarray(rows, np.int64))


def index_packed(
    waiter: Waiter,
    keys: KeyIndex,
    progress: Callable[[int, int], None] = lambda done, count: None,
    part: str = "",
) -> RecordIndex:
    """Return the index of the Records in objects that are files of one format.

    Args:
        part: the part of each file, such as a dataset of HDF5.

    Raises:
        RecordsError: one cannot be read, or its format is unknown or another one.
    """
    done: list[RecordIndex] = []
    with ThreadPoolExecutor(INDEXED_AT_ONCE, "index") as pool:
        for index in pool.map(
            partial(_index_one, waiter, keys, part), range(len(keys))
        ):
            done.append(index)
            progress(len(done), len(keys))
    return _joined(done, keys)


def _index_one(waiter: Waiter, keys: KeyIndex, part: str, number: int) -> RecordIndex:
    def opens(path: str, *, drops_pages: bool = False) -> StoreReader:
        return StoreReader(waiter, keys, number)

    path = keys[number].path
    reader = opens(path)
    found = format_of(path, reader.fresh(0, START_BYTES))
    if found.needs_part is not None and bool(part) != found.needs_part:
        example = f"{path}::NAME" if found.needs_part else path
        raise RecordsError(f"{path}: its records are named {example}")
    if found.of_file is not None:
        file = io.BufferedReader(_Ranges(reader), FILE_BYTES)
        return found.of_file(file, reader.object, part)
    if not found.reads_headers:
        text = "parquet cannot be read by ranges; ingest it, or copy it"
        raise RecordsError(f"{path}: {text}")
    return found.build(Path(keys.key(number).decode(errors="replace")), part, opens)


def _joined(indexes: Sequence[RecordIndex], keys: KeyIndex) -> RecordIndex:
    """Return the index of all objects, with their Records in the order of objects."""
    first = indexes[0]
    parts = []
    for number, index in enumerate(indexes):
        if (index.format, index.details) != (first.format, first.details):
            names = f"{keys[number].path} and {keys[0].path}"
            raise RecordsError(f"{names} have records of different kinds")
        units = np.array(index.units)
        units["object"] = number
        parts.append(units)
    return RecordIndex(first.format, keys, np.concatenate(parts), None, first.details)
