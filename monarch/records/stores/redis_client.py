"""The slower operations on Redis, by the library redis-py: write, list, topology."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.keys import IDENTITY_BYTES, KeyIndex
from monarch.records.stores.address import PASSWORD_FILE, StoreAddress, login_of
from monarch.records.stores.kept import PREFIX
from monarch.records.stores.redis import database_of

CONNECT_S: Final = 10.0
SCANNED: Final = 1000
_LENGTHS_AT_ONCE: Final = 10_000
_MISSING: Final = "needs the library redis: pip install 'monarch-staging[redis]'"
_QUOTED: Final = " of pipeline caused error: "


class RedisClient:
    """A client of one Redis server, or of a cluster.

    Attributes:
        address: the address without the name of an index.
        details: `slots` of a cluster, see `RedisWay`.

    Raises:
        RecordsError: the library is not installed, or the server refuses access.
    """

    def __init__(
        self, address: StoreAddress, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.address = str(address)
        self._name = self.address
        address.endpoints()  # the library would retry with a wrong certificate
        self._client = _client_of(address, environ)
        self.details: dict[str, Any] = {}
        with self._told():
            self._is_cluster = bool(self._client.info("cluster").get("cluster_enabled"))
            if self._is_cluster:
                self._client = _cluster_of(address, environ)
                self.details = {"slots": self._slots()}

    def __repr__(self) -> str:
        return f"<RedisClient of {self._name}>"

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def write(self, objects: Sequence[tuple[bytes, bytes]]) -> None:
        """Write objects in one pipeline.

        Raises:
            RecordsError: the server rejects them.
        """
        with self._told():
            pipe = self._client.pipeline(**self._plain)
            for key, value in objects:
                pipe.set(key, value)
            pipe.execute()

    def read(self, key: bytes) -> bytes | None:
        """Return an object; None: no such object.

        Raises:
            RecordsError: the server does not answer.
        """
        with self._told():
            found: bytes | None = self._client.get(key)
            return found

    def remove(self, keys: Sequence[bytes]) -> None:
        """Remove objects; missing ones are ignored.

        Raises:
            RecordsError: the server does not remove them.
        """
        with self._told():
            for key in keys:
                self._client.delete(key)

    def listed(self, progress: Callable[[int], None] = lambda found: None) -> KeyIndex:
        """Return an index of all strings of the database, in the order of their keys.

        The servers of a cluster are listed at the same time.

        Raises:
            RecordsError: the server does not answer.
        """
        found: list[bytes] = []

        def scan(more: Mapping[str, Any]) -> None:
            pages = self._client.scan_iter(count=SCANNED, _type="string", **more)
            for key in pages:
                if not key.startswith(PREFIX.encode()):
                    found.append(key)
                    if not len(found) % SCANNED:
                        progress(len(found))

        with self._told():
            nodes: list[dict[str, Any]] = [{}]
            if self._is_cluster:
                nodes = [{"target_nodes": one} for one in self._client.get_primaries()]
            with ThreadPoolExecutor(len(nodes), "scan") as pool:
                list(pool.map(scan, nodes))
            keys = sorted(set(found))
            lengths = list(self._lengths(keys))
        return KeyIndex.of(self.address, keys, lengths, details=self.details)

    def indexed(
        self, keys: Sequence[bytes], lengths: Sequence[int], checksums: Sequence[bytes]
    ) -> KeyIndex:
        """Return an index of written objects, with their checksums."""
        raw = np.frombuffer(b"".join(checksums), f"V{IDENTITY_BYTES}")
        more = {"identities": raw, "details": self.details}
        return KeyIndex.of(self.address, keys, lengths, **more)

    @property
    def _plain(self) -> dict[str, Any]:
        """Options of pipelines without transactions; a cluster never has any."""
        return {} if self._is_cluster else {"transaction": False}

    def _lengths(self, keys: Sequence[bytes]) -> Iterator[int]:
        for first in range(0, len(keys), _LENGTHS_AT_ONCE):
            pipe = self._client.pipeline(**self._plain)
            for key in keys[first : first + _LENGTHS_AT_ONCE]:
                pipe.strlen(key)
            yield from pipe.execute()

    def _slots(self) -> list[Any]:
        """Return the servers of each range of slots, the master first."""
        found = self._client.cluster_slots()
        return [
            [first, last, [list(map(_text, row["primary"][:2])), *_replicas(row)]]
            for (first, last), row in found.items()
        ]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the errors of the library into one-line errors.

        Raises:
            RecordsError: the library raised an error.
        """
        import redis

        try:
            yield
        except redis.exceptions.RedisError as error:
            # The library quotes the command and the value before this text.
            told = " ".join(str(error).split()).rpartition(_QUOTED)[2]
            is_denied = isinstance(error, redis.exceptions.AuthenticationError)
            hint = f"; set {PASSWORD_FILE} to a file with the password"
            text = f"{self._name}: {told}"
            raise RecordsError(text + (hint if is_denied else "")) from error


def _replicas(row: Mapping[str, Any]) -> list[Any]:
    return [list(map(_text, one[:2])) for one in row["replicas"]]


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _client_of(address: StoreAddress, environ: Mapping[str, str]) -> Any:
    try:
        import redis
    except ImportError as error:
        raise RecordsError(f"{address}: {_MISSING}") from error
    host, port = address.hosts[0]
    given = _options(address, environ)
    return redis.Redis(host=host, port=port, db=database_of(address), **given)


def _cluster_of(address: StoreAddress, environ: Mapping[str, str]) -> Any:
    import redis.cluster

    nodes = [_node(redis.cluster, *host) for host in address.hosts]
    given = _options(address, environ)
    return redis.cluster.RedisCluster(startup_nodes=nodes, **given)


def _node(cluster: Any, host: str, port: int) -> Any:
    return cluster.ClusterNode(host, port)


def _options(address: StoreAddress, environ: Mapping[str, str]) -> dict[str, Any]:
    login = login_of(address, environ)
    given: dict[str, Any] = {
        "username": login.user or None,
        "password": login.password or None,
        "socket_connect_timeout": CONNECT_S,
    }
    if address.encrypted:
        files = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
        given["ssl"] = True
        given["ssl_cert_reqs"] = "required"
        given |= {
            theirs: address.options[own]
            for own, theirs in files.items()
            if own in address.options
        }
    return given
