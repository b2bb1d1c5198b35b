"""Stores that fsspec reads: gs://, az://, and its other schemes.

They cost a thread for each request and more processor time than the stores that Monarch
reads itself. The library finds credentials in its usual places.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from xxhash import xxh3_128_digest

from monarch.records.errors import RecordsError
from monarch.records.index import Progress
from monarch.records.keys import IDENTITY_BYTES, KeyIndex
from monarch.records.stores.address import PORTS, fixed_part, is_pattern
from monarch.records.stores.exchange import Fault, Wanted

_OWN: Final = ", ".join(f"{name}://" for name in PORTS)
_BY_OBSTORE: Final = frozenset({"gs", "gcs", "az", "azure", "abfs", "abfss", "adl"})
_TAGS: Final = ("etag", "ETag", "e_tag", "md5Hash", "generation", "version", "mtime")
"""Fields that reveal a change of an object, by their names in libraries, best first."""
_CODE: Final = re.compile("<Code>([^<]+)</Code>")
_MESSAGE: Final = re.compile("<Message>([^<]+)</Message>")
"""Code and message of an error in XML."""
_told: set[str] = set()

log = logging.getLogger("monarch.records")


class LibraryWay:
    """Access to a store by fsspec.

    Keys are relative to its address, which ends with a slash.
    """

    def __init__(self, address: str) -> None:
        self.name = address
        self._scheme = urlsplit(address).scheme.lower()

    def __repr__(self) -> str:
        return f"<LibraryWay {self.name}>"

    @cached_property
    def files(self) -> Any:
        """The file system of the library."""
        try:
            import fsspec

            if self._scheme in _BY_OBSTORE and (found := _by_obstore(self._scheme)):
                return found
            return fsspec.filesystem(self._scheme)
        except ImportError as error:
            text = f"schemes other than {_OWN} need a library"
            hint = "pip install 'monarch-staging[objects]'"
            raise RecordsError(f"{self.name}: {text}: {hint}") from error
        except ValueError as error:  # the scheme is unknown to fsspec
            text = f"{self._scheme}:// is not the scheme of a store"
            raise RecordsError(
                f"{text}; use {_OWN}, or one of fsspec, such as gs:// or az://"
            ) from error

    def read(self, wanted: Wanted) -> bytes:
        """Return some bytes of an object.

        Raises:
            FileNotFoundError: no such object.
            PermissionError: it may not be read.
            OSError: they cannot be read now.
        """
        path = self.name + wanted.key.decode()
        if wanted.length < 0 or wanted.whole:
            found: bytes = self.files.cat_file(path)
        else:
            end = wanted.offset + wanted.length
            found = self.files.cat_file(path, start=wanted.offset, end=end)
        return found

    def advice(self, fault: Fault) -> str:
        """Return advice to the user on a fault; "": none."""
        if fault is Fault.DENIED:
            return "check the credentials that the library of this store finds"
        if fault in (Fault.MISSING, Fault.CHANGED):
            return "list the store again: open_records(..., fresh=True)"
        return ""

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn the errors of the library into one-line errors.

        Raises:
            RecordsError: the library raised an error.
        """
        try:
            yield
        except RecordsError:
            raise
        except Exception as error:  # libraries raise any exception on server errors
            told = told_by(str(error)) or type(error).__name__
            raise RecordsError(f"{self.name}: {told}") from error


def told_by(text: str) -> str:
    """Return the server's message in an error of a library, without its context."""
    text = " ".join(text.split()).partition(" Debug source: ")[0]
    code, message = (one.search(text) for one in (_CODE, _MESSAGE))
    if code is None:
        return text
    if message is None:
        return code[1]
    return f"{code[1]}: {message[1].partition(' RequestId:')[0]}"


def _refuse_secrets(address: str) -> None:
    parts = urlsplit(address)
    if ":" in parts.netloc.rpartition("@")[0] or "=" in parts.query:
        raise RecordsError(
            f"{parts.scheme}://: do not put passwords or options into an address; "
            "give them to the library by its own variables or files"
        )


def _by_obstore(scheme: str) -> Any:
    """Return the file system of obstore, which is faster; None: it is not installed."""
    try:
        from obstore.fsspec import FsspecStore
    except ImportError:
        return None
    # Not by its `register`, which would replace the program's own choice.
    kind = type("ObjectStore", (FsspecStore,), {"protocol": scheme})
    return kind(scheme)


def listed(address: str, progress: Progress) -> KeyIndex:
    """Return the objects of an address: one, or all of a pattern or of a folder.

    Raises:
        RecordsError: there are none, the store cannot be listed, or the address
            contains a secret.
    """
    _refuse_secrets(address)
    base = fixed_part(address).rpartition("/")[0] + "/"
    way = LibraryWay(base)
    with way.told():
        rows = _rows(way, address)
    progress("listed", len(rows), 0)
    if not rows:
        raise RecordsError(f"{address}: no object found")
    if address not in _told:
        _told.add(address)
        log.warning("monarch: %s is read by a library, which is slower", address)
    names = sorted(rows)
    tags = [_identity(rows[name]) for name in names]
    return KeyIndex.of(
        base,
        [name.encode() for name in names],
        [int(rows[name]["size"]) for name in names],
        identities=np.frombuffer(b"".join(tags), f"V{IDENTITY_BYTES}"),
    )


def _rows(way: LibraryWay, address: str) -> dict[str, Mapping[str, Any]]:
    """Return the attributes of each object, by its key."""
    files = way.files
    root = files._strip_protocol(way.name).rstrip("/")  # no public function does this
    if is_pattern(address):
        found = files.glob(address, detail=True)
    elif address.endswith("/"):
        found = files.find(address, detail=True)
    else:
        found = {files._strip_protocol(address): files.info(address)}
    return {
        path.removeprefix(root).lstrip("/"): row
        for path, row in found.items()
        if row.get("type") != "directory"
    }


def _identity(row: Mapping[str, Any]) -> bytes:
    for name in _TAGS:
        if row.get(name):
            return xxh3_128_digest(os.fsencode(str(row[name])))
    return bytes(IDENTITY_BYTES)
