"""The Transfers under way, and the native parts that carry them out."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from monarch.metrics import AgentCounters
from monarch.native import Arrival, Completion, Fetch, Health, Order, OrderKind


class Engine(Protocol):
    """What the Stager needs of the native copy engine."""

    def requests(self) -> list[int]:
        """Return Files that programs asked for since the last call."""

    def submit(self, orders: Iterable[Order]) -> int:
        """Take orders; return how many were taken, the first ones."""

    def completions(self) -> list[Completion]:
        """Return the Transfers that have ended since the last call."""

    def health(self) -> Health:
        """Return which roots do not answer, and how many Transfers hang there."""

    def forget(self, tier: int, ino: int) -> None:
        """Stop recognising descriptors of this inode."""

    def keep(self, tier: int, ino: int) -> None:
        """Recognise descriptors of a removed Replica as long as there is room."""


class Receiver(Protocol):
    """What the Stager needs of the native receiver of Files from peers."""

    def submit(self, orders: Iterable[Fetch]) -> int:
        """Take orders; return how many were taken, the first ones."""

    def arrivals(self) -> list[Arrival]:
        """Return the orders that have ended since the last call."""


class NoReceiver:
    """The receiver of a node without peers: nothing is fetched."""

    def submit(self, orders: Iterable[Fetch]) -> int:
        """Take nothing: the Policy of such a node names no peer."""
        raise ValueError(f"no peer to fetch {list(orders)} from")

    def arrivals(self) -> list[Arrival]:
        """Return that nothing has ended."""
        return []


@dataclass(slots=True)
class Transfer:
    """A Transfer from its order to its end, whatever Source it is at meanwhile.

    Args:
        asked: by a program or a peer, not by background fill.
        peer: where the File is being fetched; None: the Origin, or the Tier itself.
        tried: peers that have failed.
        late: how often a peer has answered that the File takes longer.
    """

    file: int
    tier: int
    kind: OrderKind
    asked: bool = True
    peer: int | None = None
    tried: tuple[int, ...] = ()
    late: int = 0

    @property
    def is_adoption(self) -> bool:
        """Whether a Replica of an earlier job is being verified."""
        return bool(self.kind & OrderKind.ADOPT)

    @property
    def is_background(self) -> bool:
        """Whether no program waits for it."""
        return bool(self.kind & OrderKind.BACKGROUND)


class Limit(Protocol):
    """What limits background Transfers, and is called as each begins and ends."""

    def begin(self, transfer: Transfer) -> None:
        """Count a Transfer that begins."""

    def end(self, transfer: Transfer) -> None:
        """Count a Transfer that has ended."""


class InFlight:
    """The Transfers under way, by File: one per File at most."""

    def __init__(self, limit: Limit, counters: AgentCounters) -> None:
        self._limit = limit
        self._counters = counters
        self._transfers: dict[int, Transfer] = {}
        self._busy_since_ns = 0

    def __repr__(self) -> str:
        return f"<InFlight {len(self)}>"

    def __len__(self) -> int:
        return len(self._transfers)

    def __contains__(self, file: object) -> bool:
        return file in self._transfers

    def __getitem__(self, file: int) -> Transfer:
        return self._transfers[file]

    def all(self) -> list[Transfer]:
        """Return the Transfers of this moment."""
        return list(self._transfers.values())

    def begin(self, transfer: Transfer) -> None:
        """A Transfer begins."""
        if not self._transfers:
            self._busy_since_ns = time.monotonic_ns()
        self._transfers[transfer.file] = transfer
        self._limit.begin(transfer)
        if transfer.is_background:
            self._counters.background_transfers += 1
        else:
            self._counters.demand_transfers += 1

    def end(self, transfer: Transfer) -> None:
        """A Transfer has ended."""
        del self._transfers[transfer.file]
        self._limit.end(transfer)

    def note_idle(self) -> None:
        """Count the time during which Transfers ran, if none is left."""
        if self._busy_since_ns and not self._transfers:
            self._counters.busy_ns += time.monotonic_ns() - self._busy_since_ns
            self._busy_since_ns = 0
