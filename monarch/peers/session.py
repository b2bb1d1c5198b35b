"""A joined connection: beats, marks, views and notes in bounded room."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from monarch.peers.connection import Link
from monarch.peers.protocol import Journal, Kind, Member, Message, Phase, Telling

BEAT_S: Final = 0.5
BEATS_MISSED: Final = 5
# One node hears the beats of all: more than this many in a second would fill its loop.
BEATS_PER_S: Final = 2000
# What changes within this time is told in one message.
GATHER_S: Final = 0.01
TOLD_PER_S: Final = 4000
NOTES_MAX: Final = 64
ROWS_MAX: Final = 64
# Marks that were not acknowledged for so many beats are told again.
BEATS_HEARD: Final = 2


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a node says that it lives, and how long the others wait for it."""

    beat_s: float
    silence_s: float
    gather_s: float

    @classmethod
    def of(cls, nodes: int) -> "Pace":
        """Return the pace of a job of that many nodes."""
        beat_s = max(BEAT_S, nodes / BEATS_PER_S)
        gather_s = max(GATHER_S, nodes / TOLD_PER_S)
        return cls(beat_s, BEATS_MISSED * beat_s, gather_s)


class Session:
    """One end of a joined connection.

    What is to be said waits in a set of node numbers and a short queue of notes, whose
    oldest give way: a slow peer costs no memory.

    Args:
        member: gives the present state of a node, as it is sent.
        phase: gives our own.
        journal: the marks that both ends tell each other.
    """

    def __init__(
        self,
        link: Link,
        pace: Pace,
        member: Callable[[int], Member],
        phase: Callable[[], Phase],
        journal: Journal,
    ) -> None:
        self.link = link
        self._pace = pace
        self._member = member
        self._phase = phase
        self._changed: set[int] = set()
        self._notes: deque[tuple[int, bytes]] = deque(maxlen=NOTES_MAX)
        self._said: deque[tuple[Kind, bytes]] = deque(maxlen=4)
        self._telling = Telling(journal, BEATS_HEARD * pace.beat_s)
        self._wake = asyncio.Event()
        self._leaving: bool | None = None

    def tell_changes(self, numbers: Iterable[int]) -> None:
        """Let the other side know how these nodes stand."""
        self._changed.update(numbers)
        self._wake.set()

    def stir(self) -> None:
        """Look at once for what there is to say."""
        self._wake.set()

    @property
    def told(self) -> bool:
        """Return whether the other side has acknowledged all marks."""
        return self._telling.done

    def tell_note(self, number: int, note: bytes) -> None:
        """Pass on what a node has to say to all."""
        self._notes.append((number, note))
        self._wake.set()

    def say(self, kind: Kind, body: bytes = b"") -> None:
        """Send a report, or that one was taken."""
        self._said.append((kind, body))
        self._wake.set()

    def leave(self, *, gone: bool) -> None:
        """End the connection in order once all else has been said.

        Args:
            gone: we leave the job; else we have joined another node.
        """
        self._leaving = gone
        self._wake.set()

    async def run(self, take: Callable[[Message], None]) -> bool:
        """Converse until one side leaves; return whether it was the other, in order.

        Raises:
            OSError, ProtocolError: the connection was lost.
        """
        reading = asyncio.create_task(self._read(take))
        writing = asyncio.create_task(self._write())
        try:
            done, _ = await asyncio.wait(
                (reading, writing), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            return reading in done
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
            if self._leaving is not None:
                await self.link.drain()
            self.link.close()

    async def _read(self, take: Callable[[Message], None]) -> None:
        while True:
            async with asyncio.timeout(self._pace.silence_s):
                message = await self.link.receive()
            if self._telling.take(message):
                self._wake.set()
            take(message)
            if message.kind is Kind.LEAVE:
                return

    async def _write(self) -> None:
        while True:
            await self._send_waiting()
            if self._leaving is not None:
                await self.link.send(Kind.LEAVE, {"gone": int(self._leaving)})
                return
            await self.link.send(Kind.BEAT, {"phase": int(self._phase())})
            await self._wait_for_work()

    async def _send_waiting(self) -> None:
        self._wake.clear()
        while self._changed:
            numbers = list(islice(self._changed, ROWS_MAX))
            self._changed.difference_update(numbers)
            rows = [self._member(number).row() for number in numbers]
            await self.link.send(Kind.VIEW, {"members": rows})
        while self._notes:
            number, note = self._notes.popleft()
            await self.link.send(Kind.NOTE, {"number": number}, note)
        while self._said:
            kind, body = self._said.popleft()
            await self.link.send(kind, body=body)
        for message in self._telling.outgoing(asyncio.get_running_loop().time()):
            await self.link.send(message.kind, message.fields, message.body)

    async def _wait_for_work(self) -> None:
        try:
            async with asyncio.timeout(self._pace.beat_s):
                await self._wake.wait()
        except TimeoutError:
            return
        if self._leaving is None:
            await asyncio.sleep(self._pace.gather_s)
