"""The node that the others have joined: it tells each of them about all."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from monarch.peers.connection import Link
from monarch.peers.membership import Roster
from monarch.peers.protocol import (
    Journal,
    Kind,
    Member,
    Message,
    Phase,
    ProtocolError,
    Standing,
)
from monarch.peers.session import Pace, Session


class Hub:
    """Keeps a session with each node that has joined here.

    Args:
        note: is told what a node has to say to all.
        journal: the marks that all tell each other.
    """

    def __init__(
        self,
        roster: Roster,
        pace: Pace,
        note: Callable[[int, bytes], None],
        journal: Journal,
    ) -> None:
        self.fragments: dict[int, bytes] = {}
        self._roster = roster
        self._pace = pace
        self._note = note
        self._journal = journal
        self._sessions: dict[int, Session] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._reporters: list[Session] = []
        self._active = False
        self._sealed = False
        self._reaping: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Hub {'active' if self._active else 'idle'} {len(self._sessions)}>"

    @property
    def active(self) -> bool:
        """Return whether others may join here."""
        return self._active

    @property
    def hosts(self) -> bool:
        """Return whether others have joined here."""
        return self._active and bool(self._sessions)

    def begin(self) -> None:
        """Let others join here; those of a former hub have a while to do so."""
        if self._active:
            return
        self._active = True
        loop = asyncio.get_running_loop()
        self._reaping = loop.call_later(self._pace.silence_s, self._reap)

    def _reap(self) -> None:
        present = {*self._sessions, self._roster.number}
        for member in self._roster.view.joined:
            if member.number not in present:
                self.tell(self._roster.lose(member.number))

    def release(self, *, gone: bool) -> None:
        """Send those who have joined here away, because we join another or end."""
        self._active = False
        if self._reaping is not None:
            self._reaping.cancel()
        for session in self._sessions.values():
            session.leave(gone=gone)

    async def close(self) -> None:
        """Leave the job in order."""
        self.release(gone=True)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def host(self, link: Link, wish: Message) -> None:
        """Serve a node that joins, for as long as it stays."""
        if not self._active:
            raise ProtocolError("we have joined another node ourselves")
        number = link.peer
        if self._sealed and wish.fields["life"] != self._roster.member(number).life:
            raise ProtocolError("the job has ended")
        if (former := self._tasks.get(number)) is not None:
            former.cancel()
        session = Session(
            link,
            self._pace,
            self._roster.member,
            lambda: self._roster.own.phase,
            self._journal,
        )
        task = asyncio.current_task()
        assert task is not None
        self._sessions[number], self._tasks[number] = session, task
        self.spread([_member_of(link, wish)])
        session.tell_changes(
            member.number
            for member in self._roster.view.members
            if member.standing is not Standing.UNSEEN
        )
        try:
            await session.run(lambda message: self._take(session, message))
        finally:
            if self._sessions.get(number) is session:
                del self._sessions[number], self._tasks[number]
                if self._active:
                    self.tell(self._roster.lose(number))

    def spread(self, members: Iterable[Member]) -> None:
        """Note how nodes stand, and tell all who have joined."""
        self.tell(self._roster.update(members))

    def pass_on(self, number: int, note: bytes) -> None:
        """Tell a node's note to all the others."""
        for other, session in self._sessions.items():
            if other != number:
                session.tell_note(number, note)

    def stir(self) -> None:
        """Let all sessions look for what there is to say."""
        for session in self._sessions.values():
            session.stir()

    @property
    def told(self) -> bool:
        """Return whether all who have joined here have acknowledged all marks."""
        return all(session.told for session in self._sessions.values())

    def tell(self, changed: list[int]) -> None:
        """Tell all who have joined that these nodes have changed."""
        if changed:
            for session in self._sessions.values():
                session.tell_changes(changed)

    def _take(self, session: Session, message: Message) -> None:
        number = session.link.peer
        if message.kind is Kind.BEAT:
            phase = Phase(message.fields["phase"])
            self.spread([replace(self._roster.member(number), phase=phase)])
            self._acknowledge()
        elif message.kind is Kind.NOTE:
            if message.fields["number"] != number:
                raise ProtocolError("a note in another's name")
            self.pass_on(number, message.body)
            self._note(number, message.body)
        elif message.kind is Kind.REPORT:
            self.fragments[number] = message.body
            self._reporters.append(session)
            self._acknowledge()
            self._roster.stir()

    def seal(self) -> None:
        """Let no new agent join any more: a next job of the same name has begun.

        Who has reported at the job's end waits for this, and cannot meet us again.
        """
        self._sealed = True
        self._acknowledge()

    def _acknowledge(self) -> None:
        if self._sealed or not self._roster.view.finished:
            for session in self._reporters:
                session.say(Kind.TAKEN)
            self._reporters.clear()


def _member_of(link: Link, wish: Message) -> Member:
    fields = wish.fields
    return Member(
        link.peer,
        Standing.JOINED,
        fields["host"] or link.peer_host,
        fields["port"],
        tuple(fields["capacities"]),
        Phase(fields["phase"]),
        fields["life"],
        bool(fields["seals"]),
    )
