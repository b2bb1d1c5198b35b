"""Indexes stored beside the Records of a store, in parts of a few MiB.

A short object names the parts, whose keys are never reused: during a write, a reader
finds either the whole old index or the whole new one.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from xxhash import xxh3_128_hexdigest

from monarch.records.errors import RecordsError
from monarch.records.keys import KeyIndex
from monarch.records.stores.exchange import Wanted
from monarch.records.stores.source import Waiter

PREFIX: Final = "monarch:index:"
"""Prefix of the keys of indexes, which a listing of Records omits."""
PART_BYTES: Final = 4 << 20
VERSION: Final = 1
_PARTS_MAX: Final = 1 << 14


class Writer(Protocol):
    """A store that can be written.

    Attributes:
        address: address of the store, without secrets.
    """

    address: str

    def write(self, objects: Sequence[tuple[bytes, bytes]]) -> None:
        """Write objects; objects with the same keys are replaced.

        Raises:
            RecordsError: the store rejects them.
        """

    def read(self, key: bytes) -> bytes | None:
        """Return an object; None: no such object.

        Raises:
            RecordsError: the store cannot be read.
        """

    def remove(self, keys: Sequence[bytes]) -> None:
        """Remove objects; missing ones are ignored.

        Raises:
            RecordsError: the store does not remove them.
        """

    def indexed(
        self, keys: Sequence[bytes], lengths: Sequence[int], checksums: Sequence[bytes]
    ) -> KeyIndex:
        """Return an index of written objects.

        Args:
            checksums: xxh3_128 of the objects.

        Raises:
            RecordsError: an object in the store differs from the written one.
        """


@dataclass(frozen=True, slots=True)
class KeptIndex:
    """Description of an index in a store.

    Attributes:
        name: name of the index, as in the store's address.
        serial: component of the keys of its parts.
        parts: number of parts.
        digest: xxh3_128 of the concatenated parts, in hexadecimal.
    """

    name: str
    serial: str
    parts: int
    digest: str
    version: int = VERSION

    @classmethod
    def of_text(cls, name: str, text: bytes) -> KeptIndex:
        """Return the description of an index from the content of its object.

        Raises:
            RecordsError: it is damaged, or of another version.
        """
        try:
            found = cls(name, **json.loads(text))
            good = 0 <= found.parts <= _PARTS_MAX and isinstance(found.serial, str)
        except (TypeError, ValueError):
            good = False
        if not good:
            raise RecordsError(f"the index {name!r} in the store is damaged")
        if found.version != VERSION:
            raise RecordsError(f"the index {name!r} is one of another version")
        return found

    @property
    def text(self) -> bytes:
        """Return the content of its object."""
        fields = asdict(self)
        del fields["name"]
        return json.dumps(fields).encode()

    def part_key(self, number: int) -> bytes:
        """Return the key of a part."""
        return f"{PREFIX}{self.name}:{self.serial}:{number}".encode()


def index_key(name: str) -> bytes:
    """Return the key of the object that names the parts of an index."""
    return f"{PREFIX}{name}".encode()


def kept_objects(
    name: str, index: KeyIndex
) -> tuple[KeptIndex, Iterator[tuple[bytes, bytes]]]:
    """Return the description of an index in a store, and its parts with their keys.

    All parts must be written before the description, whose key is `index_key`.
    """
    out = io.BytesIO()
    index.write(out)
    content = out.getvalue()
    parts = -(-len(content) // PART_BYTES)
    kept = KeptIndex(name, secrets.token_hex(8), parts, xxh3_128_hexdigest(content))
    return kept, (
        (kept.part_key(n), content[n * PART_BYTES : (n + 1) * PART_BYTES])
        for n in range(parts)
    )


def find_kept(waiter: Waiter, name: str) -> KeptIndex:
    """Return the description of the current index of a store.

    Raises:
        RecordsError: it has no index of that name, or cannot be reached.
    """
    (text,) = waiter.fetch([Wanted(index_key(name))])
    return KeptIndex.of_text(name, bytes(text))


def fetch_kept(waiter: Waiter, kept: KeptIndex) -> bytes:
    """Return the content of an index in a store, in the format of its files.

    Raises:
        RecordsError: a part cannot be read, or is damaged.
    """
    wanted = [Wanted(kept.part_key(number)) for number in range(kept.parts)]
    content = b"".join(waiter.fetch(wanted))
    if xxh3_128_hexdigest(content) != kept.digest:
        raise RecordsError(f"the index {kept.name!r} in the store is damaged")
    return content


def write_kept(writer: Writer, name: str, index: KeyIndex) -> None:
    """Write an index into a store, and remove the parts of the previous one.

    Raises:
        RecordsError: the store rejects it.
    """
    key = index_key(name)
    before = writer.read(key)
    kept, parts = kept_objects(name, index)
    for part in parts:
        writer.write([part])
    writer.write([(key, kept.text)])
    if before is not None:
        try:
            old = KeptIndex.of_text(name, before)
        except RecordsError:
            return  # it is damaged, so its parts are unknown
        writer.remove([old.part_key(number) for number in range(old.parts)])
