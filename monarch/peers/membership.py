"""One node's live view of the job's nodes, and waiting for its changes."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from monarch.peers.protocol import (
    FILL_FREE,
    Kind,
    Member,
    Message,
    Phase,
    ReaderTokens,
    Standing,
    View,
)

# The first nodes of the list, in this order, may be the hub.
HUBS_MAX: Final = 3


class FillLimits:
    """The limits of background copies that nodes set for each other.

    A node whose programs wait too long sends its limit to the hub, which sends each
    node the lowest limit of all others. Heartbeats carry the limits, without extra
    messages.

    Attributes:
        own: the limit that this node sets for the others.
    """

    def __init__(self) -> None:
        self.own = FILL_FREE
        self._heard: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<FillLimits {self.least}>"

    def hear(self, number: int, limit: int) -> None:
        """Note the limit sent by a connected node, for itself or for others."""
        self._heard[number] = limit

    def forget(self, number: int) -> None:
        """Drop the limit of a node that is no longer connected."""
        self._heard.pop(number, None)

    @property
    def least(self) -> int:
        """The limit for this node."""
        return min(self._heard.values(), default=FILL_FREE)

    def permitted(self, number: int) -> int:
        """Return the limit for a node, set by all others that are known here."""
        others = (limit for node, limit in self._heard.items() if node != number)
        return min([self.own, *others])


class Membership:
    """Keeps the view; what other nodes send about this node is ignored.

    Attributes:
        fill: the limits of background copies that nodes set for each other.
        readers: the tokens to read the origin; None: all nodes may read it.

        Args:
            own: this node as seen by others.
        on_change: called with each new view.
    """

    def __init__(
        self,
        nodes: int,
        own: Member,
        on_change: Callable[[View], None],
        readers: ReaderTokens | None = None,
    ) -> None:
        self.number = own.number
        self.fill = FillLimits()
        self.readers = readers
        self.view = View(tuple(map(Member, range(nodes)))).updated([own])
        self._on_change = on_change
        self._waiting: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        count, joined = len(self.view.members), len(self.view.joined)
        return f"<Membership {joined} of {count} nodes joined>"

    @property
    def own(self) -> Member:
        """Return this node."""
        return self.view.members[self.number]

    def member(self, number: int) -> Member:
        """Return the known state of a node."""
        return self.view.members[number]

    def is_joined(self, number: int) -> bool:
        """Return whether a node has joined and not left."""
        return self.member(number).standing is Standing.JOINED

    def heartbeat(self, number: int) -> Message:
        """Return a heartbeat to a node."""
        fields = {"phase": int(self.own.phase), "fill": self.fill.permitted(number)}
        return Message(Kind.HEARTBEAT, fields)

    def set_port(self, port: int) -> None:
        """Set the port of this node, before any other node is known."""
        self.view = self.view.updated([replace(self.own, port=port)])

    def update(self, members: Iterable[Member]) -> list[int]:
        """Update other nodes; return the numbers of those that have changed."""
        return self._replace([m for m in members if m.number != self.number])

    def mark_left(self, number: int) -> list[int]:
        """Note that a node has left or was lost."""
        if not self.is_joined(number):
            return []
        return self.update([self.member(number).left()])

    def set_phase(self, phase: Phase) -> list[int]:
        """Set the phase of this node."""
        return self._replace([replace(self.own, phase=phase)])

    def _replace(self, members: list[Member]) -> list[int]:
        known, count = self.view.members, len(self.view.members)
        new = [m for m in members if m.number < count and known[m.number] != m]
        if new:
            self.view = self.view.updated(new)
            self._on_change(self.view)
            self.notify()
        return [member.number for member in new]

    def notify(self) -> None:
        """Let all waiting calls of wait_until() evaluate their tests again."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait_until(self, test: Callable[[View], bool], timeout_s: float) -> bool:
        """Wait until a view passes the test; return whether one did in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not test(self.view):
                    await self._notified()
        except TimeoutError:
            return False
        return True

    async def _notified(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
