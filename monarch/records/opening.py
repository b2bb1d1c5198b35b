"""Opening Records by a path: its format and its saved index."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, zip_longest
from pathlib import Path
from threading import Event
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.records.columns import UnitDecoder
from monarch.records.errors import RecordsError
from monarch.records.formats import START_BYTES, index_by
from monarch.records.headers import HeaderReader, Opens
from monarch.records.index import (
    Progress,
    RecordIndex,
    RecordObject,
    joined,
    no_progress,
    units_of,
)
from monarch.records.labels import Columns, balanced, column_of, parted, where
from monarch.records.lmdb_pages import index_lmdb
from monarch.records.saved import THREADS, SavedRecordIndexes
from monarch.records.shard_memory import NO_SHARDS, ShardMemory
from monarch.records.shards import Shards, is_alone
from monarch.records.sharing import gathered, node_name, share_index, told_by_first
from monarch.records.sources import FileSource, Source
from monarch.records.workers import Workers

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_PART: Final = "::"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_LMDB_FILE: Final = "data.mdb"


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """The Records of some files.

    Attributes:
        source: reads the Records, and has their index.
        indexed: whether the index was made now rather than loaded.
        columns: values of each Record beside its payload, such as its label.
    """

    source: Source
    indexed: bool
    columns: Columns = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of Records."""
        return len(self.index)

    def __getitem__(self, number: int) -> bytes:
        """Read one Record; a loader reads many at once.

        Raises:
            IndexError: no such Record.
            RecordsError: it cannot be read.
        """
        if not 0 <= number < len(self.index):
            raise IndexError(f"record {number} of {len(self.index)}")
        if not self.index.is_decoded:
            return bytes(self.source.read([self.index.range_of(number)])[0])
        unit = self.index.unit_of(number)
        firsts = self.index.first_records
        assert firsts is not None
        decoder = UnitDecoder(self.index)
        try:
            return bytes(decoder.records(unit)[number - int(firsts[unit])])
        finally:
            decoder.close()

    @property
    def index(self) -> RecordIndex:
        """Return the index of the Records."""
        return self.source.index

    def select(self, numbers: Sequence[int] | npt.NDArray[Any]) -> Records:
        """Return a selection of the Records, such as a split; no payload is read.

        Record `n` of the selection is Record `numbers[n]` of these.

        Raises:
            RecordsError: no such Record, or Records are decoded together.
        """
        index = self.index
        if index.is_decoded:
            name = index.objects[0].path
            raise RecordsError(f"{name}: records that are decoded cannot be selected")
        wanted = np.asarray(numbers, np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(index):
            text = f"records {wanted.min()} to {wanted.max()} of {len(index)}"
            raise RecordsError(f"{text} cannot be selected")
        some = replace(index, units=index.units[wanted])
        columns = {name: column.take(wanted) for name, column in self.columns.items()}
        return Records(self.source.selected(some), self.indexed, columns)

    def where(self, **conditions: Any) -> Records:
        """Return the Records whose columns have given values; no payload is read.

        Args:
            conditions: a value, or a list of values, by the name of a column. In a
                multilabel column, a number selects a label.

        Raises:
            RecordsError: a column is missing, or has values of another kind.
        """
        return self.select(where(self.columns, conditions))

    def balance(
        self, column: str, seed: int, weights: Mapping[Any, float] | None = None
    ) -> Records:
        """Return equally many random Records of each value of a column, or by weights.

        Raises:
            RecordsError: the column is missing, or a weight cannot be used.
        """
        return self.select(balanced(column_of(self.columns, column), seed, weights))

    def split(
        self, shares: Mapping[str, float], seed: int, by: str | None = None
    ) -> dict[str, Records]:
        """Return disjoint random parts of the Records, by name.

        Args:
            shares: share of each part; at most 1 in total.
            by: all parts have the same shares of each value of this column.

        Raises:
            RecordsError: the shares cannot be used, or the column is missing.
        """
        column = None if by is None else column_of(self.columns, by)
        parts = parted(len(self), shares, seed, column)
        return {name: self.select(rows) for name, rows in parts.items()}

    def close(self) -> None:
        """Close the files."""
        self.source.close()


def open_records(
    paths: Paths,
    *,
    fresh: bool = False,
    comm: Any = None,
    environ: Mapping[str, str] = os.environ,
    progress: Progress = no_progress,
) -> Records:
    """Open the Records of one or more files of the same kind.

    The index is made once and saved for later. Processes that open the same paths at
    the same time share the work.

    Args:
        paths: an LMDB database, a TFRecord, tar or npy file, `FILE.h5::/DATASET`,
            `FILE.parquet::COLUMN`, a folder (each file is a Record), a pattern such as
            `train-*.tar`, or a list of those; or the address of a store, such as
            `redis://HOST/0?index=NAME`.
        fresh: make a new index, even if one is saved.
        comm: a communicator as of mpi4py: its ranks call this together, share the work
            on files, and get the same index.
        progress: called by any thread while a store is listed or files are indexed.

    Raises:
        RecordsError: a path cannot be opened, or is of no known format.
    """
    making = Making(fresh=fresh, are_read=True, environ=environ, progress=progress)
    return making.records(paths, comm)


def records_of(index: RecordIndex, made: bool) -> Records:
    """Return the Records of an index.

    Args:
        made: it was made now rather than loaded.
    """
    if index.keys is None:
        return Records(FileSource(index), made)
    from monarch.records.stores.source import StoreSource

    columns = index.keys.columns
    index = replace(index, objects=index.keys.without_columns())
    return Records(StoreSource(index), made, columns)


@dataclass(frozen=True, slots=True)
class Making:
    """How an index is made, see `open_records`.

    Attributes:
        are_read: the Records are read next: shards are then read whole for their index
            if their bytes stay in memory, see `shards`.
        are_awaited: a program waits for the index.
        memory: gets shards that are read whole for their index.
        stopped: set when the index is no longer needed.
    """

    fresh: bool = False
    are_read: bool = False
    are_awaited: bool = False
    stopped: Event = field(default_factory=Event)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    progress: Progress = no_progress
    memory: ShardMemory = NO_SHARDS

    def records(self, paths: Paths, comm: Any) -> Records:
        """Return the Records of paths, see `open_records`."""
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        names = [os.fspath(one) for one in given]
        if comm is None:
            return records_of(*self.whole(expanded(names)))
        return records_of(*self.shared(comm, names))

    def whole(self, names: Sequence[str]) -> Made:
        """Return the index of all paths, and whether any part of it was made now.

        Raises:
            RecordsError: it cannot be made.
        """
        if is_store(names[0]):
            from monarch.records.stores.opening import open_store

            return open_store(
                names[0], self.progress, fresh=self.fresh, environ=self.environ
            )
        return all_made(self.each(names, is_alone(self.environ)))

    def each(self, names: Sequence[str], is_alone: bool) -> list[Made]:
        """Return the index of each path, which is a file or a folder.

        Args:
            is_alone: no other node reads the same Records.

        Raises:
            RecordsError: one cannot be made.
        """
        if not names:
            return []
        saved, done = SavedRecordIndexes.of(self.environ), count(1)
        shards = Shards(
            len(names),
            are_read=self.are_read and is_alone,
            are_awaited=self.are_awaited,
            stopped=self.stopped,
            environ=self.environ,
        )

        if self.are_read and is_alone:
            shards.memory = self.memory

        def made(name: str) -> Made:
            found = _index_of(name, saved, shards.opens, fresh=self.fresh)
            self.progress("indexed", next(done), len(names))
            return found

        # Processes that index the same files start with different files.
        first = os.getpid() % len(names)
        with closing(shards), Workers(min(THREADS, len(names)), "index") as pool:
            found = list(pool.map(made, [*names[first:], *names[:first]]))
        if any(was_made for _, was_made in found):
            saved.bound()
        behind = len(names) - first
        return [*found[behind:], *found[:behind]]

    def shared(self, comm: Any, given: Sequence[str]) -> Made:
        """Return the same index on all ranks, which share the work on files.

        Raises:
            RecordsError: a rank could not do its part; all ranks raise this.
        """
        names = told_by_first(comm, partial(expanded, given))
        if is_store(names[0]):
            return share_index(comm, partial(self.whole, names))
        nodes = comm.allgather(node_name())
        own = names[comm.Get_rank() :: len(nodes)]
        parts = gathered(comm, partial(self.each, own, len(set(nodes)) == 1))
        return share_index(comm, lambda: all_made(interleaved(parts)))


Made = tuple[RecordIndex, bool]
"""An index, and whether any part of it was made now."""


def all_made(found: Sequence[Made]) -> Made:
    """Return the index of the Records of several indexes, in their order.

    Raises:
        RecordsError: their Records are not of one kind.
    """
    index = joined([one for one, _ in found]) if len(found) > 1 else found[0][0]
    return index, any(made for _, made in found)


def interleaved(parts: Sequence[Sequence[Made]]) -> list[Made]:
    """Return the first of each part, then the second of each, and so on."""
    rows = zip_longest(*parts)
    return [one for row in rows for one in row if one is not None]


def expanded(given: Sequence[str]) -> list[str]:
    """Return the paths that match names and patterns, or one store.

    Raises:
        RecordsError: nothing matches, or a store is combined with other paths.
    """
    names = [name for one in given for name in _expanded(one)]
    if not names:
        raise RecordsError("no path is given")
    if any(map(is_store, names)) and len(names) > 1:
        raise RecordsError(f"{names[0]}: open a store alone, without other paths")
    return names


def is_store(name: str) -> bool:
    """Return whether a name is the address of a store, and not a path."""
    scheme, mark, _ = name.partition("://")
    return bool(mark) and _SCHEME.fullmatch(scheme) is not None


def _expanded(name: str) -> list[str]:
    path, mark, part = name.partition(_PART)
    if is_store(name):
        return [name]
    if os.path.lexists(path) or not glob.has_magic(path):
        return [name]
    found = sorted(glob.glob(path))
    if not found:
        raise RecordsError(f"{path}: no file matches")
    return [f"{one}{mark}{part}" for one in found]


def _index_of(
    name: str, saved: SavedRecordIndexes, opens: Opens, *, fresh: bool
) -> Made:
    """Return the index of one path, and whether it was made now."""
    path, _, part = name.partition(_PART)
    root = Path(os.path.abspath(path))
    key = f"{root}{_PART}{part}"
    if not fresh and (found := saved.load(key)) is not None:
        return found, False
    with saved.turn(key):  # all ranks may be here at the same time
        if not fresh and (found := saved.load(key)) is not None:
            return found, False
        index = _made(root, part, opens)
        saved.save(key, index)
    return index, True


def _made(path: Path, part: str, opens: Opens) -> RecordIndex:
    """Make the index of a path.

    Raises:
        RecordsError: it cannot be read, or is of no known format.
    """
    if path.is_dir():
        if (path / _LMDB_FILE).exists():
            return index_lmdb(path / _LMDB_FILE, part)
        return _index_folder(path)
    with HeaderReader(str(path)) as file:
        start = file.fresh(0, START_BYTES)
    return index_by(path, part, start, opens)


def _index_folder(root: Path) -> RecordIndex:
    """Return the index of the files below a folder, in the order of their paths.

    The folders are objects too, without Records, so that a new file in one of them is
    detected.

    Raises:
        RecordsError: a folder or a file cannot be examined.
    """
    folders: list[str] = []
    files: list[str] = []
    for folder, _, names in os.walk(root, onerror=_refuse_folder):
        folders.append(folder)
        files += [os.path.join(folder, name) for name in names]
    files.sort()
    with ThreadPoolExecutor(THREADS) as pool:
        objects = list(pool.map(RecordObject.of, [*folders, *files]))
    sizes = [one.bytes for one in objects[len(folders) :]]
    units = units_of([0] * len(sizes), sizes, str(root))
    units["object"] = range(len(folders), len(objects))
    return RecordIndex("folder", tuple(objects), units)


def _refuse_folder(error: OSError) -> None:
    raise RecordsError(f"{error.filename}: {error.strerror}") from error
