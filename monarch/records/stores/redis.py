"""Redis as a store: its servers, and the server of each key in a cluster.

Source: "Redis cluster specification": a key belongs to slot CRC16(key) mod 16384. If
the key has a part in braces, only the first such part is hashed.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from monarch.records.errors import RecordsError
from monarch.records.stores.address import PASSWORD_FILE, Logins, StoreAddress
from monarch.records.stores.connection import Endpoint, Talk
from monarch.records.stores.exchange import Failure, Fault
from monarch.records.stores.resp import RespExchange

SLOTS: Final = 16384
CONNECTIONS_MAX: Final = 8


def slot_of(key: bytes) -> int:
    """Return the slot of a key."""
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    # crc_hqx from 0 is CRC16-XMODEM, which the specification names.
    return binascii.crc_hqx(key, 0) % SLOTS


class RedisWay:
    """Access to one Redis server, or to a cluster.

    Args:
        slots: slots of a cluster: rows of first slot, last slot and servers, the master
            first, as `[[HOST, PORT], ...]`; empty: no cluster, or an unknown one.

    Raises:
        RecordsError: the address cannot be used.
    """

    connections_max = CONNECTIONS_MAX
    checks = True

    def __init__(
        self,
        address: StoreAddress,
        slots: Sequence[Any] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = str(address)
        self._logins = Logins(address, environ)
        self._database = database_of(address)
        self._endpoints = address.endpoints()
        self._tls = self._endpoints[0].tls
        self._groups: list[list[Endpoint]] = []
        self._group_of_slot = np.full(SLOTS, -1, np.int32)
        for first, last, servers in slots:
            self._group_of_slot[first : last + 1] = len(self._groups)
            self._groups.append(
                [Endpoint(host, port, self._tls) for host, port in servers]
            )

    def __repr__(self) -> str:
        return f"<RedisWay {self.name}>"

    def endpoints(self, key: bytes) -> Sequence[Endpoint]:
        """Return the servers that have a key, the best one first."""
        if not self._groups:
            return self._endpoints
        group = int(self._group_of_slot[slot_of(key)])
        first = self._groups[group] if group >= 0 else []
        # If the key's own servers are down, any other one can name their replacement.
        return [*first, *(one[0] for one in self._groups if one is not first)]

    @property
    def has_copies(self) -> bool:
        """Whether all servers have all keys, which is not so in a cluster."""
        return not self._groups

    def begin(self, endpoint: Endpoint) -> Talk:
        """Return a function that begins a conversation with a server."""
        login = self._logins.current()
        return lambda _: RespExchange(
            user=login.user, password=login.password, database=self._database
        )

    def moved(self, failure: Failure, *, is_away: bool) -> Endpoint | None:
        """Record the new server of a slot, or of all slots of an unreachable server."""
        host, _, port = failure.target.rpartition(":")
        if not port.isdecimal():
            return None
        found = Endpoint(host or self._endpoints[0].host, int(port), self._tls)
        slot = failure.text.partition(" ")[2].partition(" ")[0]
        if failure.fault is Fault.MOVED and slot.isdecimal() and int(slot) < SLOTS:
            self._learn(int(slot), found, is_away)
        return found

    def advice(self, fault: Fault) -> str:
        """Return advice to the user on a fault; "": none."""
        if fault is Fault.DENIED:
            return f"set {PASSWORD_FILE} to a file with the password"
        if fault in (Fault.MISSING, Fault.CHANGED):
            return "write the records and their index again: monarch records ingest"
        if fault is Fault.FAILED:
            return "check host and port, and that the server runs"
        return ""

    def _learn(self, slot: int, found: Endpoint, is_away: bool) -> None:
        group = int(self._group_of_slot[slot])
        if group >= 0 and is_away:
            servers = self._groups[group]
            if found in servers:
                servers.remove(found)
            servers.insert(0, found)
        else:
            self._group_of_slot[slot] = len(self._groups)
            self._groups.append([found])


def database_of(address: StoreAddress) -> int:
    """Return the number of the database of an address.

    Raises:
        RecordsError: it is no number.
    """
    if address.path and not address.path.isdecimal():
        raise RecordsError(
            f"{address}: the path is the number of a database, such as 0"
        )
    return int(address.path or 0)
