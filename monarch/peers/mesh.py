"""The nodes of a job as one of them meets them: what the agent talks to.

Nodes join the first of the list, the hub, which tells each of them about all. When it
is lost the next in order takes its place, and gives it back when an earlier one is
there again. A node that reaches no hub works alone, and goes on trying.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from monarch.background import in_thread
from monarch.cluster.rendezvous_directory import (
    read_addresses,
    remove_address,
    write_address,
)
from monarch.peers.addresses import Hooks, Settings
from monarch.peers.catalog_broadcast import Buffer, Shipment, ancestors
from monarch.peers.client import Ears, Follower, ask_socket, fetch, reach
from monarch.peers.connection import Address, Link, Tampering
from monarch.peers.hub import Hub
from monarch.peers.membership import Roster
from monarch.peers.protocol import (
    BODY_BYTES_MAX,
    NOTE_BYTES_MAX,
    Journal,
    Kind,
    Member,
    Message,
    Phase,
    ProtocolError,
    Standing,
    View,
)
from monarch.peers.server import PORTS_TRIED, Server, serve_shipment
from monarch.peers.session import Pace, Session

# The nodes that may be the hub, in this order.
SUCCESSORS_MAX: Final = 3
RETRY_S: Final = 0.5
RETRIES_PER_S: Final = 2000
CLOSE_S: Final = 1.0
# How often to look whether the last marks are acknowledged.
TOLD_S: Final = 0.01
# A hub that was lost, frozen perhaps, is tried again for so long before the next one:
# meanwhile nodes whose programs have ended hear of nobody.
LOST_HUB_S: Final = 1.5

log = logging.getLogger("monarch.peers")


class Mesh:
    """Our place among the nodes of the job.

    Attributes:
        why: what last kept us from joining a node.
    """

    def __init__(self, settings: Settings, hooks: Hooks) -> None:
        self._settings = settings
        self._hooks = hooks
        self._identity = settings.identity
        self._pace = Pace.of(settings.nodes)
        self._session: Session | None = None
        self._journal = Journal(hooks.marks, self._stir)
        self._shipment = Shipment()
        self._tampering = Tampering()
        self._belonging: asyncio.Task[None] | None = None
        self._server = Server(
            settings.identity,
            settings.nodes,
            {
                Kind.JOIN: self._host,
                Kind.ASK: self._ship,
                Kind.SOCKET: self._hand_over,
            },
            self._tampering,
        )
        self._taken = False
        self.why = ""

    def __repr__(self) -> str:
        return f"<Mesh {self._identity!r} {self._roster!r}>"

    @property
    def view(self) -> View:
        """Return how all nodes stand as far as we know."""
        return self._roster.view

    @property
    def own(self) -> Member:
        """Return ourselves, as the others see us."""
        return self._roster.own

    @property
    def is_hub(self) -> bool:
        """Return whether we are the node that others join, and send reports to."""
        return self._hub.active

    @property
    def hub(self) -> int | None:
        """Return the node that holds us together; None: we have not joined any."""
        if self._session is not None:
            return self._session.link.peer
        return self._identity.number if self._hub.active else None

    @property
    def altered(self) -> int:
        """Return how often what nodes say was meddled with on its way."""
        return self._tampering.count

    @property
    def fragments(self) -> Mapping[int, bytes]:
        """Return the reports that have come here, by node."""
        return self._hub.fragments

    async def open(self) -> None:
        """Listen, and begin to look for the others.

        Raises:
            OSError: there is no listening on that address, or nobody could know it.
        """
        settings = self._settings
        number = self._identity.number
        port = self._server.open(settings.host, settings.port)
        own = Member(
            number,
            Standing.JOINED,
            settings.host,
            port,
            settings.capacities,
            Phase.STARTING,
            int.from_bytes(os.urandom(7)),
            settings.seals,
        )
        self._roster = Roster(settings.nodes, own, self._hooks.changed)
        self._hub = Hub(self._roster, self._pace, self._heard, self._journal)
        if number < SUCCESSORS_MAX:
            self._hub.begin()
        try:
            await self._leave_address(port)
        except OSError:
            # Who could join us would wait for a catalog from us.
            self._hub.release(gone=False)
            await self._server.close()
            raise
        self._belonging = asyncio.create_task(self._belong())

    async def _leave_address(self, port: int) -> None:
        """Tell the others by the directory where we listen, if they look there."""
        settings, number = self._settings, self._identity.number
        if settings.directory is None or number >= SUCCESSORS_MAX:
            return
        place = (settings.directory, self._identity.job, number)
        try:
            await in_thread(write_address, *place, settings.hosts(), port)
        except OSError as error:
            if number == 0 and number not in settings.addresses:
                raise
            # It will hardly be needed: the first node is, or this one's port is known.
            log.warning("no address left at=%s error=%s", settings.directory, error)

    async def close(self) -> None:
        """Leave the job in order, within a bound."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._hub.close()
                await self._leave()
        if self._belonging is not None:
            self._belonging.cancel()
            await asyncio.gather(self._belonging, return_exceptions=True)
        await self._server.close()
        directory, number = self._settings.directory, self._identity.number
        if directory is not None and number < SUCCESSORS_MAX:
            await in_thread(remove_address, directory, self._identity.job, number)

    # -- membership ---------------------------------------------------------------

    async def until(self, test: Callable[[View], bool], timeout_s: float) -> bool:
        """Wait until the view passes a test; return whether it did in time."""
        return await self._roster.until(test, timeout_s)

    def set_phase(self, phase: Phase) -> None:
        """Tell all whether we give what we hold, and whether programs run here."""
        self._hub.tell(self._roster.set_phase(phase))
        if self._session is not None:
            self._session.tell_changes(())

    def note(self, said: Mapping[str, Any]) -> None:
        """Say something to all nodes; a slow one may miss it.

        Raises:
            ValueError: it is too long.
        """
        note = json.dumps(said).encode()
        if len(note) > NOTE_BYTES_MAX:
            raise ValueError(f"a note of {len(note)} bytes")
        self._hub.pass_on(self._identity.number, note)
        if self._session is not None:
            self._session.tell_note(self._identity.number, note)

    def _heard(self, number: int, note: bytes) -> None:
        try:
            said = json.loads(note)
        except (ValueError, RecursionError):
            said = None
        if isinstance(said, dict):
            self._hooks.note(number, said)

    def open_marks(self, catalog: int) -> list[int]:
        """Tell and take marks of this Catalog's Files; return what is known by now."""
        return self._journal.open(catalog)

    def mark(self, numbers: Iterable[int]) -> None:
        """Tell all nodes, until each acknowledges it, that these were written to."""
        self._journal.mark(numbers)

    async def told(self, patience_s: float) -> bool:
        """Wait until whom we know directly has all marks; return if so in time."""
        deadline_s = time.monotonic() + patience_s
        while not self._told():
            if time.monotonic() >= deadline_s:
                return False
            await asyncio.sleep(TOLD_S)
        return True

    def _told(self) -> bool:
        session = self._session
        return self._hub.told and (session is None or session.told)

    def _stir(self) -> None:
        """Pass on at once what is new in the journal."""
        self._hub.stir()
        if self._session is not None:
            self._session.stir()

    async def _belong(self) -> None:
        retry_s = max(RETRY_S, self._settings.nodes / RETRIES_PER_S)
        candidates = range(min(self._identity.number, SUCCESSORS_MAX))
        while True:
            for candidate in candidates:
                if await self._follow(candidate):
                    break
            else:
                if self._identity.number < SUCCESSORS_MAX:
                    self._hub.begin()
                await asyncio.sleep(retry_s)

    async def _follow(self, hub: int) -> bool:
        """Join a node and stay; return False if it did not let us in."""
        ears = Ears(self._joined, self._heard, self._report_taken, self._journal)
        follower = None
        try:
            lost = self._roster.member(hub).standing is Standing.LEFT
            async with asyncio.timeout(LOST_HUB_S if lost else None):
                link = await self._reach(hub)
            follower = Follower(link, self._roster, self._pace, ears)
            with self._tampering.watch(hub):
                await follower.follow()
        except (OSError, ProtocolError) as error:
            self.why = f"node {hub}: {error or 'no answer in time'}"
            log.info("not with hub=%d why=%s", hub, error or "late")
        finally:
            self._session = None
            self._roster.stir()
        return follower is not None and follower.joined

    def _joined(self, session: Session) -> None:
        self._session = session
        self._roster.stir()
        self._hub.release(gone=False)

    async def _leave(self) -> None:
        if self._session is not None:
            self._session.leave(gone=True)
            await self._roster.until(lambda _: self._session is None, CLOSE_S)

    async def _reach(self, number: int) -> Link:
        addresses = await self._addresses(number)
        return await reach(addresses, self._identity, number, self._settings.host)

    async def _addresses(self, number: int) -> list[Address]:
        settings, member = self._settings, self._roster.member(number)
        found = []
        if member.host:
            found.append((member.host, member.port))
        if number in settings.addresses:
            host, port = settings.addresses[number]
            found += [(host, port + more) for more in range(PORTS_TRIED)]
        if settings.directory is not None and number < SUCCESSORS_MAX:
            place = (settings.directory, self._identity.job, number)
            found += await in_thread(read_addresses, *place)
        return list(dict.fromkeys(found))

    async def _host(self, link: Link, wish: Message) -> None:
        await self._hub.host(link, wish)

    # -- the catalog --------------------------------------------------------------

    async def offer(self, about: Any, blocks: Sequence[Buffer]) -> None:
        """Send a catalog to all who ask, now or later.

        Args:
            about: whatever JSON can hold.
            blocks: must not change before this returns.
        """
        await self._shipment.load(about, blocks)

    async def catalog(self) -> tuple[Any, list[memoryview]]:
        """Return the catalog that node 0 offers, whichever node it came through.

        Raises:
            ProtocolError: what came is not what was offered.
        """
        while not self._shipment.complete:
            for ancestor in ancestors(self._identity.number):
                if await self._fetched_from(ancestor):
                    break
            else:
                await self._roster.until(lambda _: False, RETRY_S)
        return await in_thread(self._shipment.unload)

    async def offered_before(self, numbers: Iterable[int]) -> Shipment | None:
        """Return what an earlier life of ours has offered, from who has it.

        With `offer_again` it is offered to all who ask, as if we had gone on.
        """
        for number in numbers:
            found = Shipment()
            try:
                link = await self._reach(number)
                with self._tampering.watch(number):
                    await fetch(link, found, self._pace)
            except (OSError, ProtocolError) as error:
                log.info("no catalog from node=%d why=%s", number, error or "late")
            else:
                return found
        return None

    async def offer_again(self, found: Shipment) -> None:
        """Send a catalog that is complete to all who ask."""
        await self._shipment.take(found)

    async def _fetched_from(self, number: int) -> bool:
        if number and not self._roster.is_joined(number):
            return False
        try:
            link = await self._reach(number)
            with self._tampering.watch(number):
                await fetch(link, self._shipment, self._pace)
        except (OSError, ProtocolError) as error:
            log.info("no catalog from node=%d why=%s", number, error or "late")
            return False
        return True

    async def _ship(self, link: Link, wish: Message) -> None:
        await serve_shipment(self._shipment, link, wish, self._pace)

    # -- data and reports ---------------------------------------------------------

    async def data_socket(self, number: int) -> int:
        """Return a descriptor connected to the data plane of a node.

        Raises:
            OSError, ProtocolError: the node cannot be reached.
        """
        link = await self._reach(number)
        with self._tampering.watch(number):
            return await ask_socket(link, self._pace.silence_s)

    async def _hand_over(self, link: Link, wish: Message) -> None:
        await link.send(Kind.YOURS)
        self._hooks.data(link.peer, link.detach())

    async def report(self, fragment: bytes, timeout_s: float) -> bool:
        """Give our part of the report to the hub; return whether it has it.

        It ends early where others have joined us meanwhile.

        Raises:
            ValueError: it is too long.
        """
        if len(fragment) > BODY_BYTES_MAX:
            raise ValueError(f"a report of {len(fragment)} bytes")
        asked: Session | None = None

        def taken(_: View) -> bool:
            nonlocal asked
            if self._session is not None and self._session is not asked:
                asked = self._session
                asked.say(Kind.REPORT, fragment)
            return self._taken or self._hub.hosts

        self._taken = False
        await self._roster.until(taken, timeout_s)
        return self._taken

    def _report_taken(self) -> None:
        self._taken = True
        self._roster.stir()

    def seal(self) -> None:
        """As the hub of a job that has ended, let nobody join, and all others go."""
        self._hub.seal()

    async def gathered(self, timeout_s: float) -> bool:
        """Wait for the reports of all nodes that are there; return if all came."""
        return await self._roster.until(partial(self._all_reported), timeout_s)

    def _all_reported(self, view: View) -> bool:
        own = self._identity.number
        return all(m.number in self.fragments or m.number == own for m in view.joined)
