"""Opening the Records of a store: its index is read from the store or a saved copy."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from xxhash import xxh3_64_hexdigest, xxh3_128_digest

from monarch.atomic_file import whole_file
from monarch.config.request import state_directory
from monarch.kept_files import KeptFiles
from monarch.records.errors import RecordsError
from monarch.records.index import Progress, RecordIndex, no_progress
from monarch.records.keys import IDENTITY_BYTES, KeyIndex
from monarch.records.saved import BYTES_MAX, FILES_MAX, SavedRecordIndexes
from monarch.records.stores.address import (
    StoreAddress,
    fixed_part,
    is_of_library,
    is_pattern,
)
from monarch.records.stores.http import Tags
from monarch.records.stores.kept import KeptIndex, fetch_kept, find_kept
from monarch.records.stores.packed import index_packed, matching
from monarch.records.stores.source import Waiter, index_of, way_of

if TYPE_CHECKING:
    from monarch.records.stores.cassandra_client import CassandraClient
    from monarch.records.stores.redis_client import RedisClient
    from monarch.records.stores.s3_client import S3Client

CONNECT_S: Final = 10.0
_PART: Final = re.compile(r"([\w+.-]+://[^/]*/[^?]+?)::([^?]*[^?/])(\?.*)?")
_SUFFIX: Final = ".keys"
_MODE: Final = 0o600

log = logging.getLogger("monarch.records")


def open_store(
    name: str,
    progress: Progress = no_progress,
    *,
    fresh: bool,
    environ: Mapping[str, str] = os.environ,
) -> tuple[RecordIndex, bool]:
    """Return the index of a store, and whether it was read or made now.

    Its columns are in `index.keys`.

    Raises:
        RecordsError: the store cannot be read.
    """
    name, part = _part_of(name)
    if is_of_library(name):
        from monarch.records.stores.library import listed

        keys = listed(name, progress)
        if name.endswith("/"):
            _refuse(part, name)
            return index_of(keys), True
        return _packed(keys, part, environ, progress, fresh=fresh)
    address = StoreAddress.parse(name)
    kept_name = address.options.get("index")
    if kept_name is not None:
        _refuse(part, name)
        keys, made = _kept(address, kept_name, environ, fresh=fresh)
        return index_of(keys), made
    if address.kind == "http":
        found = _found_by_http(address, environ)
        return _packed(found, part, environ, progress, fresh=fresh)
    if address.kind == "s3" and not address.path.endswith("/") and address.path:
        found = _found_in_bucket(address, environ, progress)
        return _packed(found, part, environ, progress, fresh=fresh)
    _refuse(part, name)
    with closing(client_of(address, environ)) as client:
        return index_of(client.listed(partial(_told_listed, progress))), True


def _part_of(name: str) -> tuple[str, str]:
    """Split an address into the store and the part of each file; "": no part."""
    found = _PART.fullmatch(name)
    return (name, "") if found is None else (found[1] + (found[3] or ""), found[2])


def _refuse(part: str, name: str) -> None:
    if part:
        raise RecordsError(f"{name}: only a file has a part, such as ::{part}")


def _told_listed(progress: Progress, found: int) -> None:
    progress("listed", found, 0)


def _found_in_bucket(
    address: StoreAddress, environ: Mapping[str, str], progress: Progress
) -> KeyIndex:
    """Return the objects of a path in a bucket: one, or all of a pattern.

    Its address is that of the bucket, and its keys are complete.
    """
    whole = replace(address.with_index(None), path="")
    with closing(_bucket_client(whole, environ)) as client:
        told = partial(_told_listed, progress)
        listed = client.listed_at(fixed_part(address.path), told)
    if is_pattern(address.path):
        return matching(listed, address.path)
    try:
        return matching(listed, glob.escape(address.path))
    except RecordsError as error:
        hint = f"s3://{address.hosts[0][0]}/{address.path}/ has objects as records"
        raise RecordsError(f"{address}: no such object; {hint}") from error


def _found_by_http(address: StoreAddress, environ: Mapping[str, str]) -> KeyIndex:
    """Return the object at an address, found by a HEAD request.

    Raises:
        RecordsError: the request fails, or the server does not report a length.
    """
    # Imported here: readers import this file too, and the library starts slowly.
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    tls = address.tls() if address.encrypted else None
    try:
        asked = Request(str(address), method="HEAD")
        with urlopen(asked, timeout=CONNECT_S, context=tls) as reply:
            length = int(reply.headers.get("Content-Length", -1))
            tag = reply.headers.get("ETag", "")
    except HTTPError as error:
        error.close()
        raise RecordsError(f"{address}: HTTP {error.code}: {error.reason}") from error
    except (OSError, ValueError) as error:
        raise RecordsError(f"{address}: {error}") from error
    if length < 0:
        raise RecordsError(f"{address}: the server does not say how long it is")
    raw = xxh3_128_digest(tag.encode()) if tag else bytes(IDENTITY_BYTES)
    return KeyIndex.of(
        str(address),
        [b""],
        [length],
        identities=np.frombuffer(raw, f"V{IDENTITY_BYTES}"),
        details={"tags": Tags.DIGEST.name},
    )


def _packed(
    keys: KeyIndex,
    part: str,
    environ: Mapping[str, str],
    progress: Progress,
    *,
    fresh: bool,
) -> tuple[RecordIndex, bool]:
    """Return the index of packed objects: the saved one if they are unchanged."""
    saved = SavedRecordIndexes.of(environ)
    name = f"{keys.store} {keys.digest()} {part}".rstrip()
    if not fresh and (found := saved.load(name)) is not None:
        return found, False
    with closing(Waiter(way_of(keys.store, keys.details, environ))) as waiter:
        index = index_packed(waiter, keys, partial(progress, "indexed"), part)
    saved.save(name, index)
    saved.bound()
    return index, True


def _bucket_client(address: StoreAddress, environ: Mapping[str, str]) -> S3Client:
    from monarch.records.stores.s3_client import S3Client

    return S3Client(address, environ)


def client_of(
    address: StoreAddress, environ: Mapping[str, str] = os.environ
) -> RedisClient | S3Client | CassandraClient:
    """Return a client that lists and writes a store, by a library that is loaded now.

    Raises:
        RecordsError: the library is not installed, or the store refuses access.
    """
    if address.kind == "redis":
        from monarch.records.stores.redis_client import RedisClient

        return RedisClient(address.with_index(None), environ)
    if address.kind == "s3":
        return _bucket_client(address.with_index(None), environ)
    if address.kind == "cassandra":
        from monarch.records.stores.cassandra_client import CassandraClient

        return CassandraClient(address.with_index(None), environ)
    raise RecordsError(f"{address}: it cannot be listed or written to")


def _kept(
    address: StoreAddress, name: str, environ: Mapping[str, str], *, fresh: bool
) -> tuple[KeyIndex, bool]:
    """Return the index in the store, from a local copy that is made if missing."""
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
    """Copy an index from the store to a file, or to memory if that fails."""
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
