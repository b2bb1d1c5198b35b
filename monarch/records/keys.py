"""The index of the Records of a store: keys, lengths, identities and columns as arrays.

It is mapped from a file, so that only the used part of an index of millions of keys
takes memory. A Record takes its key, 4 bytes for the end of the key, 4 for its length,
and 16 for its identity, which reveals a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128

from monarch.atomic_file import whole_file
from monarch.records.array_file import load_arrays, raw_bytes, write_arrays
from monarch.records.errors import RecordsError
from monarch.records.labels import Column, Columns, Rows

Array = npt.NDArray[Any]

UNKNOWN_LENGTH: Final = (1 << 32) - 1
IDENTITY_BYTES: Final = 16
NO_IDENTITY: Final = bytes(IDENTITY_BYTES)
VERSION: Final = 1
_MAGIC: Final = b"MONARCHK"
_MODE: Final = 0o600
_COLUMN: Final = "column:"


class StoredObject(NamedTuple):
    """An object of a store, named as in messages."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class KeyIndex:
    """The Records of a store, by number.

    Attributes:
        store: its address, without secrets.
        arena: the concatenated keys.
        ends: end of each key in the arena; uint32, or uint64 for a long arena.
        lengths: bytes of each Record, or UNKNOWN_LENGTH; uint32.
        identities: 16 bytes for each Record, see `identity`; None: none are known.
        columns: values of each Record beside its payload.
        details: values that the store needs to read them, such as the name of a table.
    """

    store: str
    arena: Array
    ends: Array
    lengths: Array
    identities: Array | None = None
    columns: Columns = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        store: str,
        keys: Sequence[bytes],
        lengths: Sequence[int] | None = None,
        **more: Any,
    ) -> KeyIndex:
        """Make an index of keys in their order.

        Args:
            lengths: lengths of the Records; None: they are not known.
            more: other attributes.

        Raises:
            RecordsError: a Record is longer than 4 GiB.
        """
        arena = np.frombuffer(b"".join(keys), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)))
        kind = np.uint32 if len(arena) <= UNKNOWN_LENGTH else np.uint64
        if lengths is None:
            sizes = np.full(len(keys), UNKNOWN_LENGTH, np.uint32)
        else:
            given = np.asarray(lengths, np.uint64)
            if len(given) and int(given.max()) >= UNKNOWN_LENGTH:
                number = int(given.argmax())
                raise RecordsError(f"{shown_key(keys[number])} is larger than 4 GiB")
            sizes = given.astype(np.uint32)
        return cls(store, arena, ends.astype(kind), sizes, **more)

    def __len__(self) -> int:
        """Return the number of Records."""
        return len(self.ends)

    def __repr__(self) -> str:
        return f"<KeyIndex of {self.store}, {len(self)} records>"

    @property
    def total_bytes(self) -> int | None:
        """Return the bytes of all Records; None: they are not known."""
        if not self.has_lengths:
            return None
        return int(self.lengths.sum(dtype=np.uint64))

    @property
    def has_lengths(self) -> bool:
        """Return whether the length of each Record is known."""
        return not bool((self.lengths == UNKNOWN_LENGTH).any())

    def __getitem__(self, number: int) -> StoredObject:
        """Return an object, named as in messages."""
        return StoredObject(f"{self.store}: {shown_key(self.key(number))}")

    def key(self, record: int) -> bytes:
        """Return the key of a Record."""
        start = int(self.ends[record - 1]) if record else 0
        return self.arena[start : int(self.ends[record])].tobytes()

    def keys(self, records: Iterable[int] | None = None) -> Iterator[bytes]:
        """Yield the keys of some Records, or of all."""
        return map(self.key, range(len(self)) if records is None else records)

    def rows(self, records: Sequence[int]) -> list[tuple[bytes, int, bytes]]:
        """Return the key, the length and the identity of some Records.

        Same as `key`, `length` and `identity`, but for a few hundred Records at once.
        """
        numbers = np.asarray(records, np.int64)
        ends = self.ends[numbers].tolist()
        begins = np.where(numbers > 0, self.ends[numbers - 1], 0).tolist()
        lengths = self.lengths[numbers].astype(np.int64)
        lengths[lengths == UNKNOWN_LENGTH] = -1
        arena = self.arena.data
        keys = [arena[a:b].tobytes() for a, b in zip(begins, ends, strict=True)]
        if self.identities is None:
            identities = [b""] * len(keys)
        else:
            raw = self.identities[numbers].tobytes()
            parts = (raw[at : at + 16] for at in range(0, len(raw), IDENTITY_BYTES))
            identities = [b"" if one == NO_IDENTITY else one for one in parts]
        return list(zip(keys, lengths.tolist(), identities, strict=True))

    def length(self, record: int) -> int:
        """Return the bytes of a Record; -1: they are not known."""
        length = int(self.lengths[record])
        return -1 if length == UNKNOWN_LENGTH else length

    def identity(self, record: int) -> bytes:
        """Return the bytes that identify the indexed Record; b"": none are known."""
        if self.identities is None:
            return b""
        found = self.identities[record].tobytes()
        return b"" if found == NO_IDENTITY else found

    def select(self, rows: Rows) -> KeyIndex:
        """Return an index of some of the Records, in the order of their numbers."""
        ends = self.ends[rows].astype(np.int64)
        begins = np.where(rows > 0, self.ends[np.maximum(rows, 1) - 1], 0)
        sizes = ends - begins.astype(np.int64)
        stops = np.cumsum(sizes)
        places = np.arange(int(stops[-1]) if len(rows) else 0)
        places += np.repeat(begins.astype(np.int64) - (stops - sizes), sizes)
        return KeyIndex(
            self.store,
            self.arena[places],
            stops.astype(self.ends.dtype),
            self.lengths[rows],
            None if self.identities is None else self.identities[rows],
            {name: column.take(rows) for name, column in self.columns.items()},
            self.details,
        )

    def digest(self) -> str:
        """Return a digest that changes with any key, length or identity."""
        digest = xxh3_128(self.store.encode())
        for array in self.without_columns().arrays().values():
            digest.update(raw_bytes(array))
        return digest.hexdigest()

    def without_columns(self) -> KeyIndex:
        """Return an index of the same Records without columns."""
        return replace(self, columns={})

    def at(self, store: str) -> KeyIndex:
        """Return the same index with another address of the store."""
        return replace(self, store=store)

    # -- files ------------------------------------------------------------------

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
        header = {"version": VERSION, **self.header()}
        write_arrays(out, _MAGIC, header, self.arrays())

    @classmethod
    def load(cls, file: Path) -> KeyIndex:
        """Map an index from a file; its pages are read on first use.

        Raises:
            OSError: it cannot be read.
            RecordsError: it is no index of this version, or is incomplete.
        """
        header, arrays = load_arrays(file, _MAGIC, "an index of keys", VERSION)
        return cls.of_parts(file, header, arrays)

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name."""
        arrays = {"arena": self.arena, "ends": self.ends, "lengths": self.lengths}
        if self.identities is not None:
            arrays["identities"] = self.identities
        for name, column in self.columns.items():
            arrays[f"{_COLUMN}{name}"] = column.values
        return arrays

    def header(self) -> dict[str, Any]:
        """Return all of the index but its arrays, as JSON values."""
        return {
            "store": self.store,
            "names": {name: one.names for name, one in self.columns.items()},
            "details": dict(self.details),
        }

    @classmethod
    def of_parts(
        cls, file: Path, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> KeyIndex:
        """Return the index that consists of a header and arrays.

        Raises:
            RecordsError: they do not fit together.
        """
        left = dict(arrays)
        try:
            columns = {
                name: Column(left.pop(f"{_COLUMN}{name}"), _names(known))
                for name, known in header["names"].items()
            }
            found = cls(
                str(header["store"]),
                **left,
                columns=columns,
                details=dict(header["details"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RecordsError(f"{file} is not an index of keys: {error}") from error
        found._check(file)
        return found

    def _check(self, file: Path) -> None:
        """Reject an index whose arrays differ in length."""
        last = int(self.ends[-1]) if len(self) else 0
        others = [self.lengths, *(column.values for column in self.columns.values())]
        others += [] if self.identities is None else [self.identities]
        if last != len(self.arena) or any(len(one) != len(self) for one in others):
            raise RecordsError(f"{file} is damaged: its arrays differ in length")


def shown_key(key: bytes) -> str:
    """Return a key as text for users."""
    return key.decode(errors="backslashreplace")


def _names(known: Any) -> tuple[str, ...] | None:
    return None if known is None else tuple(map(str, known))
