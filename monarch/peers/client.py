"""The connecting side: joins a hub, fetches the catalog, asks for sockets."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from monarch.peers.catalog_broadcast import Chunk, Offer, Shipment
from monarch.peers.connection import Address, Link
from monarch.peers.membership import Roster
from monarch.peers.protocol import (
    Identity,
    Journal,
    Kind,
    Member,
    Message,
    Phase,
    ProtocolError,
)
from monarch.peers.session import Pace, Session

# Between the trials of two addresses of a node.
STAGGER_S: Final = 0.25


async def reach(
    addresses: Sequence[Address], identity: Identity, peer: int, host: str
) -> Link:
    """Connect to the one of a node's addresses that is the first to prove to be it.

    One that does not answer holds up the next ones only for a moment.

    Raises:
        OSError, ProtocolError: none of them did; the reason of the last.
    """
    failure: Exception = ConnectionError(f"no address of node {peer} is known")
    waiting = list(reversed(addresses))
    trying: set[asyncio.Task[Link]] = set()
    try:
        while waiting or trying:
            if waiting:
                trial = Link.connect(waiting.pop(), identity, peer, host)
                trying.add(asyncio.create_task(trial))
            pause_s = STAGGER_S if waiting else None
            done, trying = await asyncio.wait(
                trying, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            link, why = _outcome(done)
            if link is not None:
                return link
            failure = why or failure
    finally:
        await _give_up(trying)
    raise failure


def _outcome(
    done: set[asyncio.Task[Link]],
) -> tuple[Link | None, Exception | None]:
    """Return one link of those that were tried, or why there is none."""
    found: Link | None = None
    failure: Exception | None = None
    for task in done:
        try:
            link = task.result()
        except (OSError, ProtocolError) as error:
            failure = error
            continue
        if found is not None:
            found.close()
        found = link
    return found, failure


async def _give_up(trying: set[asyncio.Task[Link]]) -> None:
    for task in trying:
        task.cancel()
    for link in await asyncio.gather(*trying, return_exceptions=True):
        if isinstance(link, Link):
            link.close()


async def ask_socket(link: Link, silence_s: float) -> int:
    """Make a link the data plane's; return its descriptor."""
    try:
        await link.send(Kind.SOCKET)
        async with asyncio.timeout(silence_s):
            await link.receive()
        return link.detach()
    finally:
        link.close()


async def fetch(link: Link, shipment: Shipment, pace: Pace) -> None:
    """Add to a shipment what another node has of it, until it is complete."""
    try:
        await link.send(Kind.ASK, {"first": shipment.count})
        while not shipment.complete:
            async with asyncio.timeout(pace.silence_s):
                message = await link.receive()
            if message.kind is Kind.OFFER:
                await shipment.announce(Offer.from_message(message))
            elif message.kind is Kind.CHUNK:
                await shipment.add(Chunk(bool(message.fields["packed"]), message.body))
    finally:
        link.close()


@dataclass(frozen=True, slots=True)
class Ears:
    """Who is told what comes from a hub.

    Args:
        joined: the hub has let us in.
        note: a node has something to say to all.
        taken: the hub has our report.
        journal: the marks that both tell each other.
    """

    joined: Callable[[Session], None]
    note: Callable[[int, bytes], None]
    taken: Callable[[], None]
    journal: Journal


class Follower:
    """A session with the hub, which alone says who is there."""

    def __init__(self, link: Link, roster: Roster, pace: Pace, ears: Ears) -> None:
        self.joined = False
        self._link = link
        self._hub_host = link.peer_host
        self._roster = roster
        self._ears = ears
        own = roster.own
        self._session = Session(link, pace, roster.member, self._phase, ears.journal)
        self._wish = {
            "host": own.host,
            "port": own.port,
            "capacities": list(own.capacities),
            "phase": int(own.phase),
            "life": own.life,
            "seals": int(own.seals),
        }

    async def follow(self) -> None:
        """Stay with the hub until one side leaves or is lost."""
        hub = self._link.peer
        gone = True
        try:
            await self._link.send(Kind.JOIN, self._wish)
            await self._session.run(self._take)
            gone = False
        finally:
            self._link.close()
            if gone and self.joined:
                self._roster.lose(hub)

    def _phase(self) -> Phase:
        return self._roster.own.phase

    def _take(self, message: Message) -> None:
        if not self.joined:
            self.joined = True
            self._ears.joined(self._session)
        if message.kind is Kind.VIEW:
            rows = message.fields["members"]
            self._roster.update([self._reachable(Member.from_row(r)) for r in rows])
        elif message.kind is Kind.NOTE:
            self._ears.note(message.fields["number"], message.body)
        elif message.kind is Kind.TAKEN:
            self._ears.taken()
        elif message.kind is Kind.LEAVE and message.fields["gone"]:
            self._roster.lose(self._link.peer)

    def _reachable(self, member: Member) -> Member:
        """A hub may not know the address by which others reach it; we do."""
        if member.number == self._link.peer and not member.host:
            return replace(member, host=self._hub_host)
        return member
