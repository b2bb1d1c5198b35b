"""What a node knows about all nodes of its job."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from typing import Any, Self

from monarch.peers.protocol.messages import Phase, Standing


@dataclass(frozen=True, slots=True)
class Member:
    """One node: how it stands, where its agent listens, and what it can hold.

    Attributes:
        capacities: bytes that each of its Tiers may hold.
        life: another number for each agent that has ever run for this node.
        seals: it can seal what it gives, and check the seals of others.
    """

    number: int
    standing: Standing = Standing.UNSEEN
    host: str = ""
    port: int = 0
    capacities: tuple[int, ...] = ()
    phase: Phase = Phase.STARTING
    life: int = 0
    seals: bool = False

    def row(self) -> list[Any]:
        """Return this member as a view message holds it."""
        number, standing, host, port, capacities, *rest = astuple(self)
        return [number, int(standing), host, port, list(capacities), *map(int, rest)]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        """Return the member of a row that has been checked."""
        number, standing, host, port, capacities, phase, life, seals = row
        return cls(
            number,
            Standing(standing),
            host,
            port,
            tuple(capacities),
            Phase(phase),
            life,
            bool(seals),
        )

    def left(self) -> Self:
        """Return this member as one that is not there any more."""
        return replace(self, standing=Standing.LEFT)


@dataclass(frozen=True, slots=True)
class View:
    """All nodes of a job as one of them sees them, by number."""

    members: tuple[Member, ...]

    @property
    def joined(self) -> tuple[Member, ...]:
        """Return the nodes that are there."""
        return tuple(m for m in self.members if m.standing is Standing.JOINED)

    @property
    def complete(self) -> bool:
        """Return whether no node is still to come."""
        return all(m.standing is not Standing.UNSEEN for m in self.members)

    @property
    def started(self) -> bool:
        """Return whether all nodes that are there give what they hold."""
        return all(m.phase is not Phase.STARTING for m in self.joined)

    @property
    def finished(self) -> bool:
        """Return whether no program of the job runs on any node that is there."""
        return all(m.phase is Phase.FINISHED for m in self.joined)

    def updated(self, members: Iterable[Member]) -> Self:
        """Return this view with some members in place of what it held of them."""
        new = list(self.members)
        for member in members:
            if member.number < len(new):
                new[member.number] = member
        return type(self)(tuple(new))
