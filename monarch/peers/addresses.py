"""The addresses of the job's agents: published, looked up, and connected to."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from monarch.background import in_thread
from monarch.cluster import own_addresses
from monarch.cluster.rendezvous_directory import (
    read_addresses,
    remove_address,
    write_address,
)
from monarch.peers.connection import PORTS_TRIED, Address, Connection
from monarch.peers.membership import HUBS_MAX, Membership
from monarch.peers.protocol import Identity, Member, ProtocolError, Standing
from monarch.peers.timeouts import STAGGER_S

log = logging.getLogger("monarch.peers")


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """This node, the number of nodes, and the means to find their agents.

    Args:
        nodes: the number of nodes.
        capacities: bytes that each Tier of this node may hold.
        seals: whether this node can make seals, and check those of other nodes.
        host: the address to listen on and to connect from; "" means any.
        port: the port to listen on; 0 means any, for use with a directory.
        addresses: the addresses of nodes that are known from the start.
        directory: the directory in which the first nodes publish their addresses.
        readers_max: how many Transfers of the job may read the Origin at once; 0: all.
    """

    identity: Identity
    nodes: int
    capacities: tuple[int, ...]
    host: str = ""
    port: int = 0
    addresses: Mapping[int, Address] = field(default_factory=dict)
    directory: Path | None = None
    seals: bool = False
    readers_max: int = 0

    def hosts(self) -> list[str]:
        """Return names and addresses at which other nodes may reach this one.

        The host name is not enough: other nodes may resolve it to another machine.
        """
        if self.host:
            return [self.host]
        return [socket.gethostname(), *own_addresses()]

    def member(self) -> Member:
        """Return this node as seen by others, without the port of its agent."""
        return Member(
            self.identity.number,
            Standing.JOINED,
            self.host,
            capacities=self.capacities,
            life=int.from_bytes(os.urandom(7)),
            seals=self.seals,
        )


class AddressBook:
    """Publishes the address of this node and connects to the other nodes."""

    def __init__(self, settings: PeerSettings, membership: Membership) -> None:
        self._settings = settings
        self._membership = membership

    async def publish(self, port: int) -> None:
        """Publish the address of this node for the other nodes.

        Raises:
            OSError: it cannot be written, and no other node could find this one.
        """
        settings, number = self._settings, self._settings.identity.number
        if settings.directory is None or number >= HUBS_MAX:
            return
        place = (settings.directory, settings.identity.job, number)
        try:
            await in_thread(write_address, *place, settings.hosts(), port)
        except OSError as error:
            if number == 0 and number not in settings.addresses:
                raise
            # Hardly needed: the first node has published, or this port is configured.
            log.warning(
                "address not published directory=%s error=%s",
                *(settings.directory, error),
            )

    async def withdraw(self) -> None:
        """Remove the published address of this node."""
        directory, identity = self._settings.directory, self._settings.identity
        if directory is not None and identity.number < HUBS_MAX:
            await in_thread(remove_address, directory, identity.job, identity.number)

    async def connect(self, number: int) -> Connection:
        """Connect to the agent of a node.

        Raises:
            OSError, ProtocolError: it cannot be reached at any of its addresses.
        """
        settings = self._settings
        addresses = await self._addresses(number)
        return await connect_first(addresses, settings.identity, number, settings.host)

    async def _addresses(self, number: int) -> list[Address]:
        settings, member = self._settings, self._membership.member(number)
        found = []
        if member.host:
            found.append((member.host, member.port))
        if number in settings.addresses:
            host, port = settings.addresses[number]
            found += [(host, port + more) for more in range(PORTS_TRIED)]
        if settings.directory is not None and number < HUBS_MAX:
            place = (settings.directory, settings.identity.job, number)
            found += await in_thread(read_addresses, *place)
        return list(dict.fromkeys(found))


async def connect_first(
    addresses: Sequence[Address], identity: Identity, peer: int, host: str
) -> Connection:
    """Connect to several addresses of a node; return the first that succeeds.

    An address that does not answer delays the next one by only STAGGER_S.

    Args:
        host: this node's address to connect from; "" means any.

    Raises:
        OSError, ProtocolError: the last failure, if all have failed.
    """
    failure: Exception = ConnectionError(f"no address of node {peer} is known")
    untried = list(reversed(addresses))
    attempts: set[asyncio.Task[Connection]] = set()
    try:
        while untried or attempts:
            if untried:
                attempt = Connection.connect(untried.pop(), identity, peer, host)
                attempts.add(asyncio.create_task(attempt))
            pause_s = STAGGER_S if untried else None
            done, attempts = await asyncio.wait(
                attempts, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            connection, reason = _outcome(done)
            if connection is not None:
                return connection
            failure = reason or failure
    finally:
        await _cancel(attempts)
    raise failure


def _outcome(
    done: set[asyncio.Task[Connection]],
) -> tuple[Connection | None, Exception | None]:
    """Return one of the new connections, or the reason of the failure."""
    found: Connection | None = None
    failure: Exception | None = None
    for task in done:
        try:
            connection = task.result()
        except (OSError, ProtocolError) as error:
            failure = error
            continue
        if found is not None:
            found.close()
        found = connection
    return found, failure


async def _cancel(attempts: set[asyncio.Task[Connection]]) -> None:
    for task in attempts:
        task.cancel()
    for connection in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(connection, Connection):
            connection.close()
