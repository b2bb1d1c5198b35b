"""The node that all others join: it sends each of them the state of every node."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace

from monarch.peers.connection import Connection
from monarch.peers.membership import Membership
from monarch.peers.protocol import (
    Held,
    Kind,
    MarkLog,
    Member,
    Message,
    Need,
    Phase,
    ProtocolError,
    Standing,
)
from monarch.peers.session import Session, Timing


class Hub:
    """Keeps a session with each node that has joined here.

    Args:
        on_note: called with each note and the number of its node.
        marks: the marks that all nodes send each other.

    Attributes:
        node_reports: the reports that have arrived here, by node.
    """

    def __init__(
        self,
        membership: Membership,
        timing: Timing,
        on_note: Callable[[int, bytes], None],
        marks: MarkLog,
    ) -> None:
        self.node_reports: dict[int, bytes] = {}
        self._membership = membership
        self._readers = membership.readers
        self._timing = timing
        self._on_note = on_note
        self._marks = marks
        self._sessions: dict[int, Session] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unacknowledged: list[Session] = []
        self._active = False
        self._job_ended = False
        self._expiry: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Hub {'active' if self._active else 'idle'} {len(self._sessions)}>"

    @property
    def active(self) -> bool:
        """Return whether other nodes may join here."""
        return self._active

    @property
    def has_sessions(self) -> bool:
        """Return whether other nodes have joined here."""
        return self._active and bool(self._sessions)

    def activate(self) -> None:
        """Let other nodes join here; those of an earlier hub have until a time-out."""
        if self._active:
            return
        self._active = True
        if self._readers is not None:
            self._readers.lead(time.monotonic())
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(self._timing.timeout_s, self._expire)

    def _expire(self) -> None:
        """Mark nodes of an earlier hub that have not joined here as lost."""
        present = {*self._sessions, self._membership.number}
        for member in self._membership.view.joined:
            if member.number not in present:
                self.send_changes(self._membership.mark_left(member.number))

    def deactivate(self, *, gone: bool) -> None:
        """End all sessions.

        Args:
            gone: whether this node leaves the job; if not, it has joined another node.
        """
        self._active = False
        if self._expiry is not None:
            self._expiry.cancel()
        for session in self._sessions.values():
            session.leave(gone=gone)

    async def close(self) -> None:
        """Leave the job, and wait for the end of all sessions."""
        self.deactivate(gone=True)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def serve(self, connection: Connection, join: Message) -> None:
        """Run the session of a joining node until it ends."""
        if not self._active:
            raise ProtocolError("this node has joined another node itself")
        number = connection.peer
        life = self._membership.member(number).life
        if self._job_ended and join.fields["life"] != life:
            raise ProtocolError("the job has ended")
        if (former := self._tasks.get(number)) is not None:
            former.cancel()
        session = Session(
            connection,
            self._timing,
            self._membership.member,
            lambda: self._heartbeat(number),
            self._marks,
        )
        task = asyncio.current_task()
        assert task is not None
        self._sessions[number], self._tasks[number] = session, task
        if self._readers is not None:
            self._readers.lender.admit(number)
        self.update([_member_of(connection, join)])
        session.send_changes(
            member.number
            for member in self._membership.view.members
            if member.standing is not Standing.UNSEEN
        )
        try:
            await session.run(lambda message: self._receive(session, message))
        finally:
            if self._sessions.get(number) is session:
                del self._sessions[number], self._tasks[number]
                self._membership.fill.forget(number)
                if self._readers is not None:
                    self._readers.lender.lose(number, time.monotonic())
                if self._active:
                    self.send_changes(self._membership.mark_left(number))

    def _heartbeat(self, number: int) -> Iterator[Message]:
        yield self._membership.heartbeat(number)
        if self._readers is not None:
            yield Message(Kind.LEASE, asdict(self._readers.lender.lease(number)))

    def deal_tokens(self) -> None:
        """Lease the tokens to read the Origin again; send the changed leases."""
        if self._readers is None or not self._active:
            return
        for number in self._readers.deal(time.monotonic()):
            if (session := self._sessions.get(number)) is not None:
                session.wake()

    def update(self, members: Iterable[Member]) -> None:
        """Update nodes, and send the changes to all joined nodes."""
        self.send_changes(self._membership.update(members))

    def forward_note(self, number: int, note: bytes) -> None:
        """Send a node's note to all the others."""
        for other, session in self._sessions.items():
            if other != number:
                session.send_note(number, note)

    def wake(self) -> None:
        """Let all sessions send new marks now."""
        for session in self._sessions.values():
            session.wake()

    @property
    def marks_acknowledged(self) -> bool:
        """Return whether all joined nodes have acknowledged all marks."""
        return all(session.marks_acknowledged for session in self._sessions.values())

    def send_changes(self, changed: list[int]) -> None:
        """Send the state of these nodes to all joined nodes."""
        if changed:
            for session in self._sessions.values():
                session.send_changes(changed)

    def _receive(self, session: Session, message: Message) -> None:
        number = session.connection.peer
        if message.kind is Kind.HEARTBEAT:
            self._membership.fill.hear(number, message.fields["fill"])
            phase = Phase(message.fields["phase"])
            self.update([replace(self._membership.member(number), phase=phase)])
            self._acknowledge_reports()
        elif message.kind is Kind.HELD and self._readers is not None:
            self._readers.lender.hear(number, _held(message))
        elif message.kind is Kind.NOTE:
            if message.fields["number"] != number:
                raise ProtocolError("a note has the number of another node")
            self.forward_note(number, message.body)
            self._on_note(number, message.body)
        elif message.kind is Kind.REPORT:
            self.node_reports[number] = message.body
            self._unacknowledged.append(session)
            self._acknowledge_reports()
            self._membership.notify()

    def end_job(self) -> None:
        """Let no new agent join: it belongs to the next job of the same name.

        The hub acknowledges reports from the end of the job only then, so that the
        next agent of such a node cannot join this hub.
        """
        self._job_ended = True
        self._acknowledge_reports()

    def _acknowledge_reports(self) -> None:
        if self._job_ended or not self._membership.view.finished:
            for session in self._unacknowledged:
                session.send(Kind.REPORT_ACK)
            self._unacknowledged.clear()


def _held(message: Message) -> Held:
    fields = message.fields
    need = Need(fields["demand"], fields["fill"])
    return Held(need, fields["tokens"], fields["serial"])


def _member_of(connection: Connection, join: Message) -> Member:
    fields = join.fields
    return Member(
        connection.peer,
        Standing.JOINED,
        fields["host"] or connection.peer_host,
        fields["port"],
        tuple(fields["capacities"]),
        Phase(fields["phase"]),
        fields["life"],
        bool(fields["seals"]),
    )
