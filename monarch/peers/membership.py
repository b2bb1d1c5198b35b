"""The view of a node as it changes, and those who wait for a change."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from monarch.peers.protocol import Member, Phase, Standing, View


class Roster:
    """Holds the view; what the others say about ourselves does not count.

    Args:
        own: ourselves, as the others shall see us.
        changed: is told each new view.
    """

    def __init__(
        self, nodes: int, own: Member, changed: Callable[[View], None]
    ) -> None:
        self.number = own.number
        self.view = View(tuple(map(Member, range(nodes)))).updated([own])
        self._changed = changed
        self._waiting: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        count, joined = len(self.view.members), len(self.view.joined)
        return f"<Roster {joined} of {count} nodes joined>"

    @property
    def own(self) -> Member:
        """Return ourselves."""
        return self.view.members[self.number]

    def member(self, number: int) -> Member:
        """Return what is known about a node."""
        return self.view.members[number]

    def is_joined(self, number: int) -> bool:
        """Return whether a node is there."""
        return self.member(number).standing is Standing.JOINED

    def update(self, members: Iterable[Member]) -> list[int]:
        """Take what is said about others; return the numbers of those that changed."""
        others = [m for m in members if m.number != self.number]
        return self._put(others)

    def lose(self, number: int) -> list[int]:
        """Note that a node is not there any more."""
        if not self.is_joined(number):
            return []
        return self.update([self.member(number).left()])

    def set_phase(self, phase: Phase) -> list[int]:
        """Note what phase we are in ourselves."""
        return self._put([replace(self.own, phase=phase)])

    def _put(self, members: list[Member]) -> list[int]:
        known, count = self.view.members, len(self.view.members)
        new = [m for m in members if m.number < count and known[m.number] != m]
        if new:
            self.view = self.view.updated(new)
            self._changed(self.view)
            self.stir()
        return [member.number for member in new]

    def stir(self) -> None:
        """Let those who wait look again."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, test: Callable[[View], bool], timeout_s: float) -> bool:
        """Wait until a view passes the test; return whether one has in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not test(self.view):
                    await self._stirred()
        except TimeoutError:
            return False
        return True

    async def _stirred(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
