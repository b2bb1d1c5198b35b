"""Files of Records in a store, read by ranges: archives, TFRecords, LMDB and npy."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.formats import START_BYTES, format_of
from monarch.records.headers import HeaderReader
from monarch.records.index import RecordIndex, RecordObject
from monarch.records.keys import KeyIndex
from monarch.records.stores.exchange import Wanted
from monarch.records.stores.source import Waiter

WINDOW_BYTES: Final = 16 << 20
"""Headers that lie close are read with all that is between them: a round trip for each
would take longer than the bytes do."""
REQUEST_BYTES: Final = 4 << 20
INDEXED_AT_ONCE: Final = 8


class StoreReader(HeaderReader):
    """An object of a store, read as HeaderReader reads a file.

    Args:
        number: of the object in the index.
    """

    window_bytes = WINDOW_BYTES

    def __init__(self, waiter: Waiter, keys: KeyIndex, number: int) -> None:
        self.path = keys[number].path
        self.object = RecordObject(self.path, keys.length(number), 0)
        self.requests = 0
        self.read_bytes = 0
        self._waiter, self._keys, self._number = waiter, keys, number
        self._start, self._window = 0, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep the connections: they are the waiter's."""

    def fresh(self, offset: int, length: int) -> bytes:
        """Return bytes that are read now, several requests at once.

        Raises:
            RecordsError: they cannot be read, or the object was changed.
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
        """Do nothing: each range came with the identity of the object."""


def matching(keys: KeyIndex, pattern: str) -> KeyIndex:
    """Return the objects whose keys match a pattern, as those of a shell do.

    Raises:
        RecordsError: none does.
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
) -> RecordIndex:
    """Return the index of the Records in some objects, which are files of one format.

    Raises:
        RecordsError: one cannot be read, or is of no known format, or of another one.
    """
    done: list[RecordIndex] = []
    with ThreadPoolExecutor(INDEXED_AT_ONCE, "index") as pool:
        for index in pool.map(partial(_index_one, waiter, keys), range(len(keys))):
            done.append(index)
            progress(len(done), len(keys))
    return _joined(done, keys)


def _index_one(waiter: Waiter, keys: KeyIndex, number: int) -> RecordIndex:
    def opens(path: str, *, drops_pages: bool = False) -> HeaderReader:
        return StoreReader(waiter, keys, number)

    path = keys[number].path
    start = StoreReader(waiter, keys, number).fresh(0, START_BYTES)
    found = format_of(path, start)
    if not found.reads_headers:
        text = "HDF5 and parquet cannot be read by ranges; ingest it, or copy it"
        raise RecordsError(f"{path}: {text}")
    return found.build(Path(keys.key(number).decode(errors="replace")), "", opens)


def _joined(indexes: Sequence[RecordIndex], keys: KeyIndex) -> RecordIndex:
    """Return the index of all objects; the Records of one follow those before it."""
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
