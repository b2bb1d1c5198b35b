"""The slower operations on Cassandra, by the library cassandra-driver: schema, token
ranges, metadata and writing.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.keys import IDENTITY_BYTES, KeyIndex
from monarch.records.labels import Column, Columns
from monarch.records.stores.address import (
    PASSWORD_FILE,
    USER,
    StoreAddress,
    login_of,
)
from monarch.records.stores.cassandra import Table, two_names
from monarch.records.stores.kept import PREFIX

CONNECT_S: Final = 10.0
REQUEST_S: Final = 60.0
RANGES: Final = 64
AT_ONCE: Final = 16
_PAGE: Final = 5000
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SPAN: Final = (1 << 64) // RANGES
_MISSING: Final = (
    "needs the library cassandra-driver: pip install 'monarch-staging[cassandra]'"
)
_BYTES: Final = "bytes"
"""The column of a metadata table with the lengths of Records."""


class CassandraClient:
    """A client of a cluster, for the table of an address.

    Attributes:
        address: the address without the name of an index.

    Raises:
        RecordsError: the library is not installed, or the cluster refuses access.
    """

    def __init__(
        self, address: StoreAddress, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.address = str(address)
        self._given = address
        self._table = Table(address)
        with self._told():
            self._cluster = _cluster_of(address, environ)
            self._session = self._cluster.connect()
        self._prepared: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<CassandraClient of {self.address}>"

    def close(self) -> None:
        """End all connections."""
        self._cluster.shutdown()

    def write(self, objects: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows, several at the same time.

        Raises:
            RecordsError: the cluster rejects them.
        """
        from cassandra.concurrent import execute_concurrent_with_args

        table = self._table
        names = f'("{table.id}", "{table.data}")'
        with self._told():
            self._make_table()
            statement = self._prepare(f"INSERT INTO {table} {names} VALUES (?, ?)")
            rows = [(key.decode(), content) for key, content in objects]
            execute_concurrent_with_args(
                self._session, statement, rows, concurrency=AT_ONCE
            )

    def read(self, key: bytes) -> bytes | None:
        """Return the data of a row; None: no such row.

        Raises:
            RecordsError: the cluster does not answer.
        """
        with self._told():
            self._make_table()
            statement = self._prepare(self._table.statement)
            row = self._session.execute(statement, [key.decode()]).one()
            return None if row is None else bytes(row[0])

    def remove(self, keys: Sequence[bytes]) -> None:
        """Remove rows; missing ones are ignored.

        Raises:
            RecordsError: the cluster does not remove them.
        """
        table = self._table
        with self._told():
            text = f'DELETE FROM {table} WHERE "{table.id}" = ?'
            for key in keys:
                self._session.execute(self._prepare(text), [key.decode()])

    def indexed(
        self, keys: Sequence[bytes], lengths: Sequence[int], checksums: Sequence[bytes]
    ) -> KeyIndex:
        """Return an index of written rows, with their checksums."""
        raw = np.frombuffer(b"".join(checksums), f"V{IDENTITY_BYTES}")
        details = {"ring": self._ring(), "checksums": True}
        return KeyIndex.of(self.address, keys, lengths, identities=raw, details=details)

    def listed(self, progress: Callable[[int], None] = lambda found: None) -> KeyIndex:
        """Return an index of all rows, in the order of their keys.

        If the address names a metadata table, the columns are read from it, and the
        lengths from its column `bytes`. Otherwise only keys are read. Both are read by
        ranges of tokens.

        Raises:
            RecordsError: the cluster does not answer, or the table is empty.
        """
        name = self._given.options.get("metadata")
        with self._told():
            keyspace, table = (
                two_names(self._given, name)
                if name
                else (self._table.keyspace, self._table.name)
            )
            what = "*" if name else f'"{self._table.id}"'
            rows = self._rows(f'"{keyspace}"."{table}"', what, progress)
        if not rows:
            raise RecordsError(f"{self.address}: {keyspace}.{table} has no rows")
        return self._index_of(rows)

    def _index_of(self, rows: list[dict[str, Any]]) -> KeyIndex:
        own = self._table.id
        if own not in rows[0]:
            text = f"its rows have no column {own}; name it as ?id=COLUMN"
            raise RecordsError(f"{self.address}: {text}")
        keyed = sorted((_raw_key(row[own]), row) for row in rows)
        keyed = [one for one in keyed if not one[0].startswith(PREFIX.encode())]
        ordered = [row for _, row in keyed]
        lengths = None
        if all(isinstance(row.get(_BYTES), int) for row in ordered):
            lengths = [row[_BYTES] for row in ordered]
        return KeyIndex.of(
            self.address,
            [key for key, _ in keyed],
            lengths,
            columns=_columns_of(ordered, {own, self._table.data, _BYTES}),
            details={"ring": self._ring()},
        )

    def _rows(
        self, table: str, what: str, progress: Callable[[int], None]
    ) -> list[dict[str, Any]]:
        """Read a table by ranges of tokens, several at the same time."""
        from cassandra.concurrent import execute_concurrent_with_args

        own = f'token("{self._table.id}")'
        text = f"SELECT {what} FROM {table} WHERE {own} > ? AND {own} <= ?"
        edges = [_LEAST + number * _SPAN for number in range(RANGES)]
        ranges = list(pairwise([*edges, _MOST]))
        rows: list[dict[str, Any]] = []
        statement = self._prepare(text)
        statement.fetch_size = _PAGE
        for found in execute_concurrent_with_args(
            self._session, statement, ranges, concurrency=AT_ONCE
        ):
            rows += [row._asdict() for row in found.result_or_exc]
            progress(len(rows))
        return rows

    def _ring(self) -> list[Any]:
        """Return the tokens and the hosts of their replicas; none for a single node."""
        known = self._cluster.metadata
        if len(known.all_hosts()) <= 1 or known.token_map is None:
            return []
        rows = []
        for token in known.token_map.ring:
            hosts = known.token_map.get_replicas(self._table.keyspace, token)
            rows.append([str(token.value), [str(one.address) for one in hosts]])
        return rows

    def _make_table(self) -> None:
        """Create the table of the Records if it is missing."""
        table = self._table
        keyspace = self._cluster.metadata.keyspaces.get(table.keyspace)
        if keyspace is None:
            text = f"keyspace {table.keyspace} does not exist; create it first"
            raise RecordsError(f"{self.address}: {text}")
        if table.name not in keyspace.tables:
            self._session.execute(
                f'CREATE TABLE IF NOT EXISTS {table} ("{table.id}" text PRIMARY KEY, '
                f"\"{table.data}\" blob) WITH compression = {{'enabled': false}}"
            )

    def _prepare(self, text: str) -> Any:
        if text not in self._prepared:
            self._prepared[text] = self._session.prepare(text)
        return self._prepared[text]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the errors of the library into one-line errors.

        Raises:
            RecordsError: the library raised an error, or is not installed.
        """
        # Without a handler, Python prints the errors that the library logs.
        logging.getLogger("cassandra").addHandler(logging.NullHandler())
        try:
            import cassandra
            import cassandra.cluster
        except ImportError as error:
            raise RecordsError(f"{self.address}: {_MISSING}") from error
        try:
            yield
        except cassandra.AuthenticationFailed as error:
            raise RecordsError(self._refusal(error)) from error
        except cassandra.cluster.NoHostAvailable as error:
            causes = error.errors.values() if isinstance(error.errors, dict) else ()
            for cause in causes:
                if isinstance(cause, cassandra.AuthenticationFailed):
                    raise RecordsError(self._refusal(cause)) from error
            told = "; ".join(sorted({str(cause) for cause in causes})) or str(error)
            raise RecordsError(f"{self.address}: no host answers: {told}") from error
        except (
            cassandra.DriverException,
            cassandra.RequestExecutionException,
        ) as error:
            told = " ".join(str(error).split())
            raise RecordsError(f"{self.address}: {told}") from error

    def _refusal(self, error: Exception) -> str:
        told = " ".join(str(error).split())
        hint = f"set {USER}, and {PASSWORD_FILE} to a file with the password"
        return f"{self.address}: {told}; {hint}"


def _cluster_of(address: StoreAddress, environ: Mapping[str, str]) -> Any:
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy

    login = login_of(address, environ)
    auth = None
    if login.user:
        auth = PlainTextAuthProvider(login.user, login.password)
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
        request_timeout=REQUEST_S,
    )
    return Cluster(
        [host for host, _ in address.hosts],
        port=address.hosts[0][1],
        protocol_version=4,
        auth_provider=auth,
        connect_timeout=CONNECT_S,
        ssl_context=address.tls() if address.encrypted else None,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )


def _raw_key(value: Any) -> bytes:
    """Return the bytes of a key in the protocol."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise RecordsError(f"keys of type {type(value).__name__} cannot be read")


def _columns_of(rows: Sequence[Mapping[str, Any]], without: set[str]) -> Columns:
    """Return the usable columns of a metadata table: texts or numbers without nulls."""
    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name in without or any(value is None for value in values):
            continue
        if isinstance(values[0], uuid.UUID):
            values = [str(value) for value in values]
        if isinstance(values[0], str | int | float | bool):
            columns[name] = Column.of(values)
    return columns
