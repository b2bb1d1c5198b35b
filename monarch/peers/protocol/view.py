"""One node's view of the state of all nodes of a job."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from typing import Any, Self

from monarch.peers.protocol.messages import Phase, Standing


@dataclass(frozen=True, slots=True)
class Member:
    """One node: whether it has joined, its address, and its capacities.

    Attributes:
        capacities: bytes that each of its Tiers may hold.
        life: a random number, different for each agent of this node.
        seals: whether it can make seals, and check those of other nodes.
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
        """Return this member as a row of a VIEW message."""
        number, standing, host, port, capacities, *rest = astuple(self)
        return [number, int(standing), host, port, list(capacities), *map(int, rest)]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        """Return the member of a row that matches the schema."""
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
        """Return this member as one that has left."""
        return replace(self, standing=Standing.LEFT)


@dataclass(frozen=True, slots=True)
class View:
    """All nodes of a job as seen by one of them, by number."""

    members: tuple[Member, ...]

    @property
    def joined(self) -> tuple[Member, ...]:
        """Return the nodes that have joined and not left."""
        return tuple(m for m in self.members if m.standing is Standing.JOINED)

    @property
    def complete(self) -> bool:
        """Return whether every node has joined at some time."""
        return all(m.standing is not Standing.UNSEEN for m in self.members)

    @property
    def started(self) -> bool:
        """Return whether all joined nodes serve their Replicas."""
        return all(m.phase is not Phase.STARTING for m in self.joined)

    @property
    def finished(self) -> bool:
        """Return whether no program of the job runs on any joined node."""
        return all(m.phase is Phase.FINISHED for m in self.joined)

    def updated(self, members: Iterable[Member]) -> Self:
        """Return this view with some members replaced."""
        new = list(self.members)
        for member in members:
            if member.number < len(new):
                new[member.number] = member
        return type(self)(tuple(new))
