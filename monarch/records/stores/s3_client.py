"""The slower operations on S3, by the library botocore: listing and writing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from xxhash import xxh3_128_digest

from monarch.records.errors import RecordsError
from monarch.records.keys import IDENTITY_BYTES, KeyIndex
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.http import Tags
from monarch.records.stores.kept import PREFIX
from monarch.records.stores.s3 import Bucket

LISTED_AT_ONCE: Final = 16
WRITTEN_AT_ONCE: Final = 16
_ATTEMPTS: Final = 6
_MD5_DIGITS: Final = 32
_MISSING: Final = "needs the library botocore: pip install 'monarch-staging[s3]'"

Row = tuple[str, int, str]
"""The key, the length and the ETag of an object."""


class S3Client:
    """A client of a bucket.

    Keys are relative to the path of the address.

    Attributes:
        address: the address without the name of an index.

    Raises:
        RecordsError: the library is not installed, or keys are missing.
    """

    def __init__(
        self, address: StoreAddress, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.address = str(address)
        self._prefix = address.path
        self._bucket = Bucket.of(address, environ)
        self._bucket.check()
        with self._told():
            self._client = _client_of(address, self._bucket)
        self._pool = ThreadPoolExecutor(WRITTEN_AT_ONCE, "s3")

    def __repr__(self) -> str:
        return f"<S3Client of {self.address}>"

    def close(self) -> None:
        """End all connections."""
        self._pool.shutdown()
        self._client.close()

    def write(self, objects: Sequence[tuple[bytes, bytes]]) -> None:
        """Write objects, several at the same time.

        Raises:
            RecordsError: the bucket rejects them.
        """
        with self._told():
            list(self._pool.map(self._put, objects))

    def read(self, key: bytes) -> bytes | None:
        """Return an object; None: no such object.

        Raises:
            RecordsError: it cannot be read.
        """
        import botocore.exceptions

        with self._told():
            try:
                found = self._client.get_object(
                    Bucket=self._bucket.name, Key=self._full(key)
                )
            except botocore.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                    return None
                raise
            body: bytes = found["Body"].read()
            return body

    def remove(self, keys: Sequence[bytes]) -> None:
        """Remove objects; missing ones are ignored.

        Raises:
            RecordsError: the bucket does not remove them.
        """
        with self._told():
            for key in keys:
                self._client.delete_object(
                    Bucket=self._bucket.name, Key=self._full(key)
                )

    def listed(self, progress: Callable[[int], None] = lambda found: None) -> KeyIndex:
        """Return an index of all objects below the prefix, in the order of their keys.

        Several threads list nested prefixes.

        Raises:
            RecordsError: the bucket cannot be listed, or has no objects there.
        """
        return self.listed_at("", progress)

    def listed_at(
        self, prefix: str, progress: Callable[[int], None] = lambda found: None
    ) -> KeyIndex:
        """Return an index of the objects whose keys begin with a prefix.

        Raises:
            RecordsError: the bucket cannot be listed, or has no such objects.
        """
        rows = sorted(self._rows(self._prefix + prefix, progress))
        if not rows:
            raise RecordsError(f"{self.address}{prefix}: no object found")
        return self._index_of(rows)

    def _rows(
        self, prefix: str, progress: Callable[[int], None] = lambda found: None
    ) -> list[Row]:
        rows: list[Row] = []
        lock = threading.Lock()

        def take(found: list[Row]) -> None:
            with lock:
                rows.extend(row for row in found if _is_record(row[0]))
                progress(len(rows))

        with self._told(), ThreadPoolExecutor(LISTED_AT_ONCE, "list") as pool:
            below = [prefix]
            while below:
                found = list(pool.map(lambda one: self._level(one, take), below))
                below = [one for more in found for one in more]
        return rows

    def _level(self, prefix: str, take: Callable[[list[Row]], None]) -> list[str]:
        """List the objects directly below a prefix; return the prefixes below it."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket.name, Prefix=prefix, Delimiter="/"
        )
        below: list[str] = []
        for page in pages:
            below += [one["Prefix"] for one in page.get("CommonPrefixes", ())]
            rows = page.get("Contents", ())
            take([self._row(row) for row in rows])
        return below

    def _row(self, row: Mapping[str, Any]) -> Row:
        key = str(row["Key"]).removeprefix(self._prefix)
        return key, row["Size"], row.get("ETag", "")

    def indexed(
        self, keys: Sequence[bytes], lengths: Sequence[int], checksums: Sequence[bytes]
    ) -> KeyIndex:
        """Return an index of written objects, with their ETags.

        Raises:
            RecordsError: an object in the bucket differs from the written one.
        """
        name = keys[0].partition(b"/")[0].decode() + "/" if keys else ""
        found = {row[0]: row for row in self._rows(self._prefix + name)}
        rows = [found.get(key.decode(), (key.decode(), -1, "")) for key in keys]
        for row, length in zip(rows, lengths, strict=True):
            if row[1] != length:
                text = "it differs from what was written; write it again"
                raise RecordsError(f"{self.address}: {row[0]}: {text}")
        return self._index_of(rows)

    def _index_of(self, rows: Sequence[Row]) -> KeyIndex:
        tags = [tag for _, _, tag in rows]
        kind = Tags.MD5 if all(map(_is_md5, tags)) else Tags.DIGEST
        raw = b"".join(_identity(tag, kind) for tag in tags)
        return KeyIndex.of(
            self.address,
            [key.encode() for key, _, _ in rows],
            [size for _, size, _ in rows],
            identities=np.frombuffer(raw, f"V{IDENTITY_BYTES}"),
            details={"tags": kind.name},
        )

    def _put(self, item: tuple[bytes, bytes]) -> None:
        key, content = item
        self._client.put_object(
            Bucket=self._bucket.name, Key=self._full(key), Body=content
        )

    def _full(self, key: bytes) -> str:
        return self._prefix + key.decode()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the errors of the library into one-line errors.

        Raises:
            RecordsError: the library raised an error, or is not installed.
        """
        try:
            import botocore.exceptions
        except ImportError as error:
            raise RecordsError(f"{self.address}: {_MISSING}") from error
        try:
            yield
        except (
            botocore.exceptions.BotoCoreError,
            botocore.exceptions.ClientError,
        ) as error:
            told = " ".join(str(error).split())
            raise RecordsError(f"{self.address}: {told}") from error


def _client_of(address: StoreAddress, bucket: Bucket) -> Any:
    import botocore.config
    import botocore.session

    options = address.options
    anonymous = botocore.UNSIGNED if "anonymous" in options else None
    settings = botocore.config.Config(
        retries={"max_attempts": _ATTEMPTS, "mode": "standard"},
        max_pool_connections=max(LISTED_AT_ONCE, WRITTEN_AT_ONCE),
        signature_version=anonymous,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if bucket.url else "auto"},
    )
    session = botocore.session.Session(profile=options.get("profile"))
    return session.create_client(
        "s3",
        region_name=bucket.region,
        endpoint_url=bucket.url or None,
        verify=options.get("ca"),
        config=settings,
    )


def _is_record(key: str) -> bool:
    """Return whether a key is neither a folder nor a part of an index."""
    return not key.endswith("/") and PREFIX not in key


def _is_md5(tag: str) -> bool:
    digits = tag.strip('"')
    return len(digits) == _MD5_DIGITS and all(
        one in "0123456789abcdef" for one in digits
    )


def _identity(tag: str, kind: Tags) -> bytes:
    if not tag:
        return bytes(IDENTITY_BYTES)
    if kind is Tags.MD5:
        return bytes.fromhex(tag.strip('"'))
    return xxh3_128_digest(tag.encode())
