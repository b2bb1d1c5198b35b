"""The native parts that carry out Transfers, and the Transfers that Python handles."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from monarch.native import NO_PEER, Completion, Health, Order, OrderKind, Reason


class Engine(Protocol):
    """The part of the native copy engine that the Stager uses."""

    def requests(self) -> list[int]:
        """Return the Files since the last call that the data plane cannot judge."""

    def submit(self, orders: Iterable[Order]) -> int:
        """Take orders; return how many were taken, the first ones."""

    def completions(self) -> list[Completion]:
        """Return the Transfers that have failed or are to be reported."""

    def demand(self, file: int, kind: int) -> None:
        """Begin the Transfer of a File by the staging table."""

    def fill(
        self, to_read: npt.NDArray[np.uint32], to_fetch: npt.NDArray[np.uint32]
    ) -> None:
        """Stage these Files in the background, in their order, and no others."""

    def fill_left(self) -> tuple[int, int]:
        """Return how many Files of each list fill has not reached."""

    def hint(self, program: int, files: npt.NDArray[np.uint32]) -> None:
        """Stage the Files that a program opens next, in order, before all others."""

    def pause_fetching(self, *, paused: bool) -> None:
        """Pause or resume background fetches from peers."""

    def health(self) -> Health:
        """Return which roots do not answer, and how many Transfers hang there."""

    def drop_packed(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Empty pack files of a Tier; return the bytes that they held."""

    def drop_partial(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Remove partial Replicas from a Tier; return the bytes that they held."""

    def forget(self, tier: int, ino: int) -> None:
        """Stop recognising descriptors of this inode."""

    def keep(self, tier: int, ino: int) -> None:
        """Recognise descriptors of a removed Replica until its slot is needed."""


class Receiver(Protocol):
    """The part of the native receiver of Files that the Stager uses."""

    def submit(self, orders: Iterable[Order]) -> int:
        """Take orders; return how many were taken, the first ones."""

    def arrivals(self) -> list[Completion]:
        """Return the orders that have failed or are to be reported."""


class NoReceiver:
    """The receiver of a node without peers: nothing is fetched."""

    def submit(self, orders: Iterable[Order]) -> int:
        """Raise ValueError: the Policy of such a node names no peer."""
        raise ValueError(f"no peer to fetch {list(orders)} from")

    def arrivals(self) -> list[Completion]:
        """Return an empty list."""
        return []


@dataclass(slots=True)
class Transfer:
    """A failed Transfer; Python decides whether it continues or ends.

    Args:
        order: the last one; its File is STAGING with its generation.
        tried: peers that have failed.
        late: how often a peer has answered that the File takes longer.
    """

    order: Order
    tried: tuple[int, ...] = ()
    late: int = 0

    @property
    def file(self) -> int:
        """The number of the File."""
        return self.order.file

    @property
    def peer(self) -> int | None:
        """The peer that sends the File; None: the Origin, or the Tier itself."""
        return None if self.order.peer == NO_PEER else self.order.peer

    @property
    def asked(self) -> bool:
        """Whether a program or a peer requested it, and not background fill."""
        return self.order.is_asked

    @property
    def partly(self) -> bool:
        """Whether it has copied Blocks for a program, and not the whole File."""
        return self.asked and bool(self.order.kind & OrderKind.PARTLY)

    def order_from(self, peer: int | None) -> Order:
        """Return the order that continues it, whose end is reported."""
        kind = self.order.kind | OrderKind.REPORT
        return self.order._replace(kind=kind, peer=NO_PEER if peer is None else peer)


class Troubles:
    """The Transfers that Python has continued, by File, until they end."""

    def __init__(self) -> None:
        self._transfers: dict[int, Transfer] = {}

    def __repr__(self) -> str:
        return f"<Troubles {len(self._transfers)}>"

    def __len__(self) -> int:
        return len(self._transfers)

    def take(self, order: Order) -> Transfer:
        """Return the Transfer of an order that has ended, with its history."""
        known = self._transfers.pop(order.file, None)
        if known is None or known.order.word != order.word:
            return Transfer(order)
        known.order = order
        return known

    def note(self, transfer: Transfer) -> None:
        """Store a Transfer that continues."""
        self._transfers[transfer.file] = transfer
