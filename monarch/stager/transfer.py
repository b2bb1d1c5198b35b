"""One Transfer under way, and what carries it out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

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
        """Return which roots do not answer, and what hangs there."""

    def forget(self, tier: int, ino: int) -> None:
        """Recognise descriptors of this inode no more."""

    def keep(self, tier: int, ino: int) -> None:
        """Recognise descriptors of a Replica that has gone as long as there is room."""


class Receiver(Protocol):
    """What the Stager needs of the native receiver of Files from peers."""

    def submit(self, orders: Iterable[Fetch]) -> int:
        """Take orders; return how many were taken, the first ones."""

    def arrivals(self) -> list[Arrival]:
        """Return the orders that have ended since the last call."""


@dataclass(slots=True)
class Flight:
    """A Transfer from its order to its end, at whatever Source it looks meanwhile.

    Args:
        asked: by a program or a peer, not by background fill.
        peer: where the File is being fetched; None: the Origin, or the Tier itself.
        tried: peers that have failed.
        late: how often a peer has said that the File takes longer.
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
