"""Opening the Records of a store: its index, from the store or as it was saved here."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_hexdigest

from monarch.atomic_file import whole_file
from monarch.config.request import state_directory
from monarch.kept_files import KeptFiles
from monarch.records.errors import RecordsError
from monarch.records.index import RecordIndex
from monarch.records.keys import KeyIndex
from monarch.records.saved import BYTES_MAX, FILES_MAX
from monarch.records.stores.address import PORTS, StoreAddress
from monarch.records.stores.kept import KeptIndex, fetch_kept, find_kept
from monarch.records.stores.source import Waiter, index_of, way_of

if TYPE_CHECKING:
    from monarch.records.stores.redis_client import RedisClient
    from monarch.records.stores.s3_client import S3Client

_SUFFIX: Final = ".keys"
_MODE: Final = 0o600

log = logging.getLogger("monarch.records")


def is_store(name: str) -> bool:
    """Return whether a name is the address of a store, and not a path."""
    scheme, mark, _ = name.partition("://")
    return bool(mark) and scheme.lower() in PORTS


def open_store(
    name: str, *, fresh: bool, environ: Mapping[str, str] = os.environ
) -> tuple[RecordIndex, bool]:
    """Return the index of a store, and whether it was read or made now.

    The columns are those of `index.keys`.

    Raises:
        RecordsError: the store cannot be read.
    """
    address = StoreAddress.parse(name)
    kept_name = address.options.get("index")
    if kept_name is None:
        return index_of(_listed(address, environ)), True
    keys, made = _kept(address, kept_name, environ, fresh=fresh)
    return index_of(keys), made


def _listed(address: StoreAddress, environ: Mapping[str, str]) -> KeyIndex:
    """Return the index of all objects that a store has now."""
    with closing(client_of(address, environ)) as client:
        return client.listed()


def client_of(
    address: StoreAddress, environ: Mapping[str, str] = os.environ
) -> RedisClient | S3Client:
    """Return what lists and writes a store, by a library that is loaded now.

    Raises:
        RecordsError: the library is not installed, or the store refuses.
    """
    if address.kind == "redis":
        from monarch.records.stores.redis_client import RedisClient

        return RedisClient(address.with_index(None), environ)
    if address.kind == "s3":
        from monarch.records.stores.s3_client import S3Client

        return S3Client(address.with_index(None), environ)
    raise RecordsError(f"{address}: it cannot be listed or written to")


def _kept(
    address: StoreAddress, name: str, environ: Mapping[str, str], *, fresh: bool
) -> tuple[KeyIndex, bool]:
    """Return the index that the store keeps, copied here if it was not yet."""
    store = str(address)
    folder = state_directory(environ) / "records"
    files = KeptFiles(folder, _SUFFIX, FILES_MAX, BYTES_MAX)
    with closing(Waiter(way_of(store, {}, environ))) as waiter:
        kept = find_kept(waiter, name)
        file = folder / (xxh3_64_hexdigest(f"{store} {kept.digest}".encode()) + _SUFFIX)
        if not fresh:
            with suppress(OSError, RecordsError):
                found = KeyIndex.load(file)
                files.note_use(file)
                return found.at(store), False
        return _copied(waiter, kept, files, file).at(store), True


def _copied(waiter: Waiter, kept: KeptIndex, files: KeptFiles, file: Path) -> KeyIndex:
    """Copy an index from the store to a file, or else to memory."""
    content = fetch_kept(waiter, kept)
    try:
        files.make_folder()
        with whole_file(file, mode=_MODE, durable=False) as out:
            out.write(content)
        files.bound(_is_usable)
        return KeyIndex.load(file)
    except OSError as error:
        log.debug("index of keys not saved file=%s reason=%s", file, error.strerror)
    with os.fdopen(os.memfd_create("monarch-keys"), "wb") as memory:
        memory.write(content)
        memory.flush()
        return KeyIndex.load(Path(f"/proc/self/fd/{memory.fileno()}"))


def _is_usable(file: Path) -> bool:
    try:
        KeyIndex.load(file)
    except (OSError, RecordsError):
        return False
    return True
