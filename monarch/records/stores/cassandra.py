"""Cassandra and ScyllaDB as a store: the nodes of a key, and the statement for them.

A key's token is its Murmur3 hash (Cassandra's Murmur3Partitioner: the first half of
MurmurHash3_x64_128 of Austin Appleby, with the bytes of the tail as signed numbers).
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final

from monarch.records.errors import RecordsError
from monarch.records.stores.address import (
    PASSWORD_FILE,
    USER,
    Logins,
    StoreAddress,
)
from monarch.records.stores.connection import Endpoint, Talk
from monarch.records.stores.cql import CqlExchange
from monarch.records.stores.exchange import Failure, Fault

CONNECTIONS_MAX: Final = 4
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_MASK: Final = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")


class Table:
    """The table that an address names.

    Attributes:
        keyspace, name, id, data: names in the database.

    Raises:
        RecordsError: the path is not KEYSPACE.TABLE.
    """

    def __init__(self, address: StoreAddress) -> None:
        self.keyspace, self.name = two_names(address, address.path)
        self.id = one_name(address, "id", "id")
        self.data = one_name(address, "data", "data")

    def __repr__(self) -> str:
        return f"<Table {self}>"

    def __str__(self) -> str:
        return f'"{self.keyspace}"."{self.name}"'

    @property
    def statement(self) -> str:
        """The statement that selects a Record by its key."""
        return f'SELECT "{self.data}" FROM {self} WHERE "{self.id}" = ?'


class CqlWay:
    """Access to a cluster.

    Args:
        details: details of the index: `ring`, rows of a token and the hosts of its
            replicas, in the order of tokens; without it, any host is asked;
            `checksums`, whether identities are checksums.

    Raises:
        RecordsError: the address cannot be used.
    """

    connections_max = CONNECTIONS_MAX
    has_copies = True

    def __init__(
        self,
        address: StoreAddress,
        details: Mapping[str, Any],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = str(address)
        self.checks = bool(details.get("checksums"))
        self._logins = Logins(address, environ)
        self._statement = Table(address).statement
        self._endpoints = address.endpoints()
        port, tls = self._endpoints[0].port, self._endpoints[0].tls
        ring = details.get("ring", [])
        self._tokens = [int(token) for token, _ in ring]
        # If all replicas are down, or at addresses that only nodes can resolve, any
        # node of the address may be asked.
        replicas = [[Endpoint(host, port, tls) for host in hosts] for _, hosts in ring]
        self._replicas = [
            [*own, *(one for one in self._endpoints if one not in own)]
            for own in replicas
        ]

    def __repr__(self) -> str:
        return f"<CqlWay {self.name}>"

    def endpoints(self, key: bytes) -> Sequence[Endpoint]:
        """Return the replicas of a key, then the other nodes of the address."""
        if not self._tokens:
            return self._endpoints
        place = bisect_left(self._tokens, token_of(key)) % len(self._tokens)
        return self._replicas[place]

    def begin(self, endpoint: Endpoint) -> Talk:
        """Return a function that begins a conversation with a node."""
        login = self._logins.current()
        return lambda _: CqlExchange(
            self._statement, user=login.user, password=login.password
        )

    def moved(self, failure: Failure, *, is_away: bool) -> Endpoint | None:
        """Return None: any node forwards requests."""
        return None

    def advice(self, fault: Fault) -> str:
        """Return advice to the user on a fault; "": none."""
        if fault is Fault.DENIED:
            return f"set {USER}, and {PASSWORD_FILE} to a file with the password"
        if fault in (Fault.MISSING, Fault.CHANGED):
            return "write the records and their index again: monarch records ingest"
        if fault is Fault.FAILED:
            return "check hosts and port, and that the cluster runs"
        return ""


def two_names(address: StoreAddress, text: str) -> tuple[str, str]:
    """Return the keyspace and the table in a text.

    Raises:
        RecordsError: it is not KEYSPACE.TABLE.
    """
    keyspace, _, table = text.partition(".")
    if not _NAME.fullmatch(keyspace) or not _NAME.fullmatch(table):
        raise RecordsError(f"{address}: {text!r} is not KEYSPACE.TABLE")
    return keyspace, table


def one_name(address: StoreAddress, option: str, usual: str) -> str:
    """Return the name of a column from an option of the address.

    Raises:
        RecordsError: it is no valid name.
    """
    name = address.options.get(option, usual)
    if not _NAME.fullmatch(name):
        raise RecordsError(f"{address}: {option}={name} is not a column name")
    return name


def token_of(key: bytes) -> int:
    """Return the token of a key, -2**63 to 2**63 - 1."""
    h1 = h2 = 0
    whole = len(key) & ~15
    for at in range(0, whole, 16):
        k1, k2 = _BLOCK.unpack_from(key, at)
        h1 ^= _mixed(k1, _C1, 31, _C2)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mixed(k2, _C2, 33, _C1)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    if whole < len(key):
        k1, k2 = _tail(key[whole:])
        h2 ^= _mixed(k2, _C2, 33, _C1)
        h1 ^= _mixed(k1, _C1, 31, _C2)
    h1, h2 = h1 ^ len(key), h2 ^ len(key)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    token = (_finished(h1) + _finished(h2)) & _MASK
    token -= (token >> 63) << 64
    # No key has the least token: Cassandra uses the greatest one instead.
    return token if token != -(1 << 63) else (1 << 63) - 1


def _tail(rest: bytes) -> tuple[int, int]:
    k1 = k2 = 0
    for place, byte in enumerate(rest):
        signed = (byte - ((byte & 0x80) << 1)) & _MASK
        if place < _BLOCK.size // 2:
            k1 ^= (signed << (8 * place)) & _MASK
        else:
            k2 ^= (signed << (8 * (place - 8))) & _MASK
    return k1, k2


def _mixed(k: int, first: int, turn: int, second: int) -> int:
    return (_rotated(k * first & _MASK, turn) * second) & _MASK


def _rotated(value: int, turn: int) -> int:
    return ((value << turn) | (value >> (64 - turn))) & _MASK


def _finished(h: int) -> int:
    h ^= h >> 33
    h = (h * 0xFF51AFD7ED558CCD) & _MASK
    h ^= h >> 33
    h = (h * 0xC4CEB9FE1A85EC53) & _MASK
    return h ^ (h >> 33)
