"""Write Records into a store, with their index: resumable, verified at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from xxhash import xxh3_128_digest

from monarch.records.columns import UnitDecoder
from monarch.records.errors import RecordsError
from monarch.records.index import Progress, no_progress
from monarch.records.keys import KeyIndex, shown_key
from monarch.records.labels import Column, Columns
from monarch.records.opening import Records
from monarch.records.stores.exchange import Wanted
from monarch.records.stores.kept import Writer, write_kept
from monarch.records.stores.source import Waiter, way_of

BATCH_BYTES: Final = 4 << 20
"""Bytes that are read, written and marked as done at once."""
BATCH_RECORDS: Final = 1024
_VERIFIED_AT_ONCE: Final = 256
_MARK_PREFIX: Final = "monarch:ingest:"
_SPLITS: Final = frozenset({"train", "val", "valid", "validation", "test"})
_LEVELS: Final = 2


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of an ingest.

    Attributes:
        records: Records in the index of the store now.
        bytes: their bytes.
        resumed: Records that an earlier, interrupted ingest had written.
    """

    records: int
    bytes: int
    resumed: int


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How Records are written to a store.

    Attributes:
        name: name of the index, which is the prefix of all keys.
        columns: columns of the Records; None: from the paths of a folder's files.
        verify: read everything back and compare.
    """

    name: str
    columns: Columns | None = None
    verify: bool = True


def ingest(
    records: Records,
    writer: Writer,
    given: IngestOptions,
    progress: Progress = no_progress,
) -> Ingested:
    """Write all Records into a store, and then their index.

    Raises:
        RecordsError: a Record cannot be read or written, or fails its verification.
    """
    keys = keys_of(records, given.name)
    columns = named_columns(records) if given.columns is None else given.columns
    for name, column in columns.items():
        if len(column) != len(records):
            text = f"{len(column)} values for {len(records)} records"
            raise RecordsError(f"the column {name!r} has {text}")
    mark = Mark.of(records, writer, given.name)
    resumed = mark.done
    lengths, checksums = _write_all(records, writer, keys, mark, progress)
    index = replace(writer.indexed(keys, lengths, checksums), columns=columns)
    if given.verify:
        _verify(index, checksums, progress)
    write_kept(writer, given.name, index)
    writer.remove([mark.key])
    return Ingested(len(index), sum(lengths), resumed)


@dataclass(slots=True)
class Mark:
    """Progress of an ingest, stored in the store until it is complete."""

    key: bytes
    source: str
    done: int

    @classmethod
    def of(cls, records: Records, writer: Writer, name: str) -> Mark:
        """Return the mark of an ingest of the same Records, or a new one."""
        source = records.index.fingerprint()
        mark = cls(f"{_MARK_PREFIX}{name}".encode(), source, 0)
        text = writer.read(mark.key)
        try:
            found = json.loads(text or b"{}")
            if found.get("source") == source:
                mark.done = int(found["done"])
        except (AttributeError, KeyError, TypeError, ValueError):
            mark.done = 0
        return mark

    @property
    def text(self) -> bytes:
        """Return its content in the store."""
        return json.dumps({"source": self.source, "done": self.done}).encode()


def keys_of(records: Records, name: str) -> list[bytes]:
    """Return the key of each Record: by its path in the folder, or by its number."""
    paths = _paths_of(records)
    if paths is None:
        width = len(str(max(0, len(records) - 1)))
        return [b"%b/%0*d" % (name.encode(), width, n) for n in range(len(records))]
    return [f"{name}/{path}".encode(errors="surrogateescape") for path in paths]


def named_columns(records: Records) -> Columns:
    """Return the split and label of the files of a folder, from their paths.

    Paths are `LABEL/FILE`, `SPLIT/LABEL/FILE` or deeper; SPLIT is one of the usual
    names.
    """
    paths = _paths_of(records)
    parts = [path.split("/") for path in paths or ()]
    if not parts or min(map(len, parts)) < _LEVELS:
        return {}
    splits = [one[0] for one in parts]
    if not set(splits) <= _SPLITS:
        return {"label": Column.of(splits)}
    columns = {"split": Column.of(splits)}
    if min(map(len, parts)) > _LEVELS:
        columns["label"] = Column.of([one[1] for one in parts])
    return columns


def payloads(records: Records) -> Iterator[bytes]:
    """Yield the payload of each Record, in order, with reads of a few MiB.

    Raises:
        RecordsError: one cannot be read.
    """
    index = records.index
    if index.is_decoded:
        with closing(UnitDecoder(index)) as decoder:
            for unit in range(len(index.units)):
                yield from map(bytes, decoder.records(unit))
        return
    batch, size = [], 0
    for number in range(len(index)):
        one = index.range_of(number)
        batch.append(one)
        size += one.length
        if size >= BATCH_BYTES or len(batch) >= BATCH_RECORDS:
            yield from map(bytes, records.source.read(batch))
            batch, size = [], 0
    yield from map(bytes, records.source.read(batch))


def _paths_of(records: Records) -> list[str] | None:
    """Return the relative paths of the files of a folder; None: it is no folder."""
    index = records.index
    if index.format != "folder":
        return None
    root = index.files[0].path
    files = [index.files[number].path for number in index.units["object"].tolist()]
    return [os.path.relpath(one, root) for one in files]


def _write_all(
    records: Records,
    writer: Writer,
    keys: Sequence[bytes],
    mark: Mark,
    progress: Progress,
) -> tuple[list[int], list[bytes]]:
    """Write the remaining Records; return the lengths and checksums of all."""
    lengths: list[int] = []
    identities: list[bytes] = []
    batch: list[tuple[bytes, bytes]] = []
    size = 0
    for key, payload in zip(keys, payloads(records), strict=True):
        lengths.append(len(payload))
        identities.append(xxh3_128_digest(payload))
        if len(lengths) <= mark.done:
            continue
        batch.append((key, payload))
        size += len(payload)
        if size >= BATCH_BYTES or len(batch) >= BATCH_RECORDS:
            _write_batch(writer, batch, mark, len(lengths))
            batch, size = [], 0
            progress("written", len(lengths), len(keys))
    if batch:
        _write_batch(writer, batch, mark, len(lengths))
    progress("written", len(lengths), len(keys))
    return lengths, identities


def _write_batch(
    writer: Writer, batch: Sequence[tuple[bytes, bytes]], mark: Mark, done: int
) -> None:
    writer.write(batch)
    mark.done = done
    writer.write([(mark.key, mark.text)])


def _verify(index: KeyIndex, checksums: Sequence[bytes], progress: Progress) -> None:
    """Read all Records as a loader would, and compare their checksums."""
    way = way_of(index.store, index.details)
    with closing(Waiter(way)) as waiter:
        for first in range(0, len(index), _VERIFIED_AT_ONCE):
            numbers = range(first, min(first + _VERIFIED_AT_ONCE, len(index)))
            found = waiter.fetch([_whole(index, number) for number in numbers])
            wrong = [
                number
                for number, payload in zip(numbers, found, strict=True)
                if xxh3_128_digest(payload) != checksums[number]
            ]
            if wrong:
                key = shown_key(index.key(wrong[0]))
                text = "it differs from what was written; write it again"
                raise RecordsError(f"{index.store}: {key}: {text}")
            progress("verified", numbers.stop, len(index))


def _whole(index: KeyIndex, number: int) -> Wanted:
    key, identity = index.key(number), index.identity(number)
    return Wanted(key, 0, index.length(number), identity=identity)
