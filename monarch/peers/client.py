"""The connecting side: joins the hub, and requests data sockets of other nodes."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from monarch.peers.connection import Connection
from monarch.peers.membership import Membership
from monarch.peers.protocol import Kind, Lease, MarkLog, Member, Message
from monarch.peers.session import Session, Timing


async def request_socket(connection: Connection, timeout_s: float) -> int:
    """Turn a connection into one of the data plane; return its descriptor."""
    try:
        await connection.send(Kind.SOCKET)
        async with asyncio.timeout(timeout_s):
            await connection.receive()
        return connection.detach()
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class HubCallbacks:
    """The functions that are called with the messages of a hub.

    Args:
        joined: the hub has accepted this node.
        note: a node has sent a note to all.
        report_acknowledged: the hub has received the report of this node.
    """

    joined: Callable[[Session], None]
    note: Callable[[int, bytes], None]
    report_acknowledged: Callable[[], None]


class HubClient:
    """A session with the hub; only the hub decides which nodes are joined.

    Args:
        marks: the marks that both ends send each other.
    """

    def __init__(
        self,
        connection: Connection,
        membership: Membership,
        timing: Timing,
        callbacks: HubCallbacks,
        marks: MarkLog,
    ) -> None:
        self.joined = False
        self._connection = connection
        self._hub_host = connection.peer_host
        self._membership = membership
        self._callbacks = callbacks
        self._session = Session(
            connection,
            timing,
            membership.member,
            self._heartbeat,
            marks,
        )
        own = membership.own
        self._join = {
            "host": own.host,
            "port": own.port,
            "capacities": list(own.capacities),
            "phase": int(own.phase),
            "life": own.life,
            "seals": int(own.seals),
        }

    def _heartbeat(self) -> Iterator[Message]:
        yield self._membership.heartbeat(self._connection.peer)
        if (readers := self._membership.readers) is not None:
            held, need = readers.held, readers.held.need
            fields = {"demand": need.demand, "fill": need.fill}
            fields |= {"tokens": held.tokens, "serial": held.serial}
            yield Message(Kind.HELD, fields)

    async def run(self) -> None:
        """Stay joined until one side leaves or is lost."""
        hub = self._connection.peer
        lost = True
        try:
            await self._connection.send(Kind.JOIN, self._join)
            await self._session.run(self._receive)
            lost = False
        finally:
            self._connection.close()
            self._membership.fill.forget(hub)
            if lost and self.joined:
                self._membership.mark_left(hub)

    def _receive(self, message: Message) -> None:
        if not self.joined:
            self.joined = True
            self._callbacks.joined(self._session)
        if message.kind is Kind.HEARTBEAT:
            self._membership.fill.hear(self._connection.peer, message.fields["fill"])
        elif message.kind is Kind.LEASE and self._membership.readers is not None:
            self._membership.readers.take(Lease(**message.fields), time.monotonic())
        elif message.kind is Kind.VIEW:
            rows = message.fields["members"]
            members = [Member.from_row(row) for row in rows]
            self._membership.update(map(self._with_host, members))
        elif message.kind is Kind.NOTE:
            self._callbacks.note(message.fields["number"], message.body)
        elif message.kind is Kind.REPORT_ACK:
            self._callbacks.report_acknowledged()
        elif message.kind is Kind.LEAVE and message.fields["gone"]:
            self._membership.mark_left(self._connection.peer)

    def _with_host(self, member: Member) -> Member:
        """Add the address of a hub that does not know its own."""
        if member.number == self._connection.peer and not member.host:
            return replace(member, host=self._hub_host)
        return member
