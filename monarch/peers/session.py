"""A joined connection: heartbeats, marks, views and notes in bounded memory."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from monarch.peers.connection import Connection
from monarch.peers.protocol import Kind, MarkLog, MarkSync, Member, Message
from monarch.peers.timeouts import (
    BATCH_S,
    BATCHES_PER_S,
    HEARTBEAT_S,
    HEARTBEATS_MISSED,
    HEARTBEATS_PER_S,
    RESEND_HEARTBEATS,
)

NOTES_MAX: Final = 64
ROWS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Timing:
    """The intervals of a session.

    Attributes:
        heartbeat_s: the interval between heartbeats of each end.
        timeout_s: the time without a message after which the other end is lost.
        batch_s: the time for which changes are collected before they are sent.
    """

    heartbeat_s: float
    timeout_s: float
    batch_s: float

    @classmethod
    def of(cls, nodes: int) -> "Timing":
        """Return the intervals for a job of this many nodes."""
        heartbeat_s = max(HEARTBEAT_S, nodes / HEARTBEATS_PER_S)
        batch_s = max(BATCH_S, nodes / BATCHES_PER_S)
        return cls(heartbeat_s, HEARTBEATS_MISSED * heartbeat_s, batch_s)


class Session:
    """One end of a joined connection.

    Pending data is a set of node numbers and a short queue of notes that drops the
    oldest: a slow peer costs no memory.

    Args:
        member: returns the current state of a node.
        heartbeat: returns the messages of a heartbeat.
        marks: the marks that both ends send each other.
    """

    def __init__(
        self,
        connection: Connection,
        timing: Timing,
        member: Callable[[int], Member],
        heartbeat: Callable[[], Iterable[Message]],
        marks: MarkLog,
    ) -> None:
        self.connection = connection
        self._timing = timing
        self._member = member
        self._heartbeat = heartbeat
        self._changed: set[int] = set()
        self._notes: deque[tuple[int, bytes]] = deque(maxlen=NOTES_MAX)
        self._queued: deque[tuple[Kind, bytes]] = deque(maxlen=4)
        self._marks = MarkSync(marks, RESEND_HEARTBEATS * timing.heartbeat_s)
        self._wakeup = asyncio.Event()
        self._leaving: bool | None = None

    def send_changes(self, numbers: Iterable[int]) -> None:
        """Send the state of these nodes."""
        self._changed.update(numbers)
        self._wakeup.set()

    def wake(self) -> None:
        """Send new marks and a heartbeat without waiting for the next heartbeat."""
        self._wakeup.set()

    @property
    def marks_acknowledged(self) -> bool:
        """Return whether the other side has acknowledged all marks."""
        return self._marks.done

    def send_note(self, number: int, note: bytes) -> None:
        """Send the note of a node."""
        self._notes.append((number, note))
        self._wakeup.set()

    def send(self, kind: Kind, body: bytes = b"") -> None:
        """Send a report, or the acknowledgement of one."""
        self._queued.append((kind, body))
        self._wakeup.set()

    def leave(self, *, gone: bool) -> None:
        """End the connection in an orderly way after all pending data was sent.

        Args:
            gone: whether this node leaves the job; if not, it has joined another node.
        """
        self._leaving = gone
        self._wakeup.set()

    async def run(self, receive: Callable[[Message], None]) -> bool:
        """Send and receive until one side leaves; return whether the other did.

        Raises:
            OSError, ProtocolError: the connection was lost.
        """
        reading = asyncio.create_task(self._read(receive))
        writing = asyncio.create_task(self._write())
        try:
            done, _ = await asyncio.wait(
                (reading, writing), return_when=asyncio.FIRST_COMPLETED
            )
            # The error of the reader explains why sending has failed.
            for task in (reading, writing):
                if task in done:
                    task.result()
            return reading in done
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
            if self._leaving is not None:
                await self.connection.drain()
            self.connection.close()

    async def _read(self, receive: Callable[[Message], None]) -> None:
        while True:
            async with asyncio.timeout(self._timing.timeout_s):
                message = await self.connection.receive()
            if self._marks.receive(message):
                self._wakeup.set()
            receive(message)
            if message.kind is Kind.LEAVE:
                return

    async def _write(self) -> None:
        while True:
            await self._send_pending()
            if self._leaving is not None:
                await self.connection.send(Kind.LEAVE, {"gone": int(self._leaving)})
                return
            for message in self._heartbeat():
                await self.connection.send(message.kind, message.fields)
            await self._wait_for_work()

    async def _send_pending(self) -> None:
        self._wakeup.clear()
        while self._changed:
            numbers = list(islice(self._changed, ROWS_MAX))
            self._changed.difference_update(numbers)
            rows = [self._member(number).row() for number in numbers]
            await self.connection.send(Kind.VIEW, {"members": rows})
        while self._notes:
            number, note = self._notes.popleft()
            await self.connection.send(Kind.NOTE, {"number": number}, note)
        while self._queued:
            kind, body = self._queued.popleft()
            await self.connection.send(kind, body=body)
        for message in self._marks.outgoing(asyncio.get_running_loop().time()):
            await self.connection.send(message.kind, message.fields, message.body)

    async def _wait_for_work(self) -> None:
        try:
            async with asyncio.timeout(self._timing.heartbeat_s):
                await self._wakeup.wait()
        except TimeoutError:
            return
        if self._leaving is None:
            await asyncio.sleep(self._timing.batch_s)
