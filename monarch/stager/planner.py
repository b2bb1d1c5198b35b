"""What a Stager does differently where other nodes hold Files too."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from monarch.native import (
    Arrival,
    Fetch,
    OrderKind,
    Reason,
    Step,
)
from monarch.placement import FillOrder, Mode, fill_files
from monarch.stager.adoption import Adoption
from monarch.stager.fill import Background
from monarch.stager.pool import Transit
from monarch.stager.removal import Shelf
from monarch.stager.replicas import Event
from monarch.stager.reserved_space import Allotment
from monarch.stager.sources import Sources
from monarch.stager.transfer import Flight, Receiver
from monarch.tiers import Tier

LATE_MAX: Final = 64
"""So often a large File is asked for again that its owner is still reading."""

_LINK_ENDED: Final = frozenset({errno.ECONNRESET, errno.ENOTCONN, errno.EPROTO})
_AT_TIER: Final = frozenset({Step.ORDER, Step.CREATE, Step.WRITE, Step.PUBLISH})


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a Stager is given when its node has joined others.

    Args:
        receiver: fetches Files from peers into the Tiers of this node.
        transit: the Tier of the pool, the last one of the Catalog.
    """

    sources: Sources
    receiver: Receiver
    transit: Tier


class Fate(Enum):
    """What is to be done after a Fetch has ended."""

    ARRIVED = "it is published"
    NEXT = "another node is asked"
    AGAIN = "the same one is asked again"
    ORIGIN = "the Origin is read"
    OURS = "the fault is on this node"
    NOWHERE = "it stays away until it is asked for"


class Exchange:
    """Decides where a File comes from and where it goes, by the Placement."""

    def __init__(self, sharing: Sharing, shelf: Shelf, background: Background) -> None:
        self.sources = sharing.sources
        self.receiver = sharing.receiver
        self._replicas, self._ledger = shelf.replicas, shelf.ledger
        self._tally = shelf.tally
        self._is_large = background.is_large
        shelf.places.append(sharing.transit)
        self.pool = Transit(
            sharing.transit, len(shelf.tiers), shelf, self.sources.clock
        )
        self.allotment = Allotment(self.sources.kept, self._replicas, self._ledger)
        self._owned, self._others = fill_files(
            self.sources.placement, self.sources.kept, self.sources.own
        )
        # The news of peers when fill had to pass over a File of theirs.
        self._missed: int | None = None
        self._waiting: list[Fetch] = []

    def __repr__(self) -> str:
        return f"<Exchange {self.sources!r} {self.pool!r}>"

    def admit(self, adoption: Adoption, refuse: Callable[[int, int], None]) -> None:
        """Look anew at what was decided while this node was alone.

        Args:
            refuse: gives up the Replica of a File in a Tier that was to be adopted.
        """
        placed = np.flatnonzero(self.sources.placement.placed)
        self._replicas.retry_all(placed, Reason.NO_ROOM)
        files = np.fromiter(adoption.tiers, np.intp, len(adoption.tiers))
        self.allotment.settle_all(files)
        others = files[~self.sources.kept[files]].tolist()
        while others and self.allotment.spare_bytes < 0:
            file = others.pop()
            refuse(file, adoption.tiers.pop(file))

    # -- where from, where to ---------------------------------------------------

    def plan(self, file: int, kind: OrderKind, *, asked: bool) -> Flight | None:
        """Return the Transfer of a File that is due, its room reserved; None: not now.

        Args:
            asked: by a program or a peer, not by background fill.
        """
        sources = self.sources
        if self.pool.waits(file):
            return None
        if not sources.placed(file):
            self._replicas.change(file, Event.REFUSED, reason=Reason.NO_ROOM)
            return None
        if not asked and not self._may_fill(file):
            return None
        peer = sources.source(file)
        tier = self._land(file, peer, asked=asked)
        if tier is None:
            self._go_without(file, asked=asked)
            return None
        self._note_source(file, peer)
        return Flight(file, tier, kind, asked, peer)

    def _may_fill(self, file: int) -> bool:
        """Return whether this node may send for a File that nobody has asked for."""
        home = self.sources.home(file)
        if home == self.sources.own or self.sources.usable(home):
            return True
        if self._missed is None:
            self._missed = self.sources.generation
        return False

    def _land(self, file: int, peer: int | None, *, asked: bool) -> int | None:
        """Reserve room where a File is to lie: its own, spare, or in transit."""
        tier = None
        if self.sources.keeps(file):
            self.allotment.settle(file)
            tier = self._ledger.reserve(self._replicas.size_of(file))
        elif peer is None or self.sources.placement.mode is not Mode.PARTITION:
            tier = self.allotment.reserve_spare(file)
        if tier is not None or not asked:
            return tier
        reserve = self.pool.reserve_idle if self._is_large(file) else self.pool.reserve
        return self.pool.number if reserve(file) else None

    def _go_without(self, file: int, *, asked: bool) -> None:
        if not asked:
            return
        if not self.pool.fits(file):
            self._replicas.change(file, Event.REFUSED, reason=Reason.NO_ROOM)
        elif not self._is_large(file):
            self.pool.queue(file)

    def _note_source(self, file: int, peer: int | None) -> None:
        if peer is None:
            self._tally.origin_instead_files += not self.sources.owns(file)
        else:
            self._tally.rehomed_files += peer != self.sources.owner(file)

    # -- Fetches ----------------------------------------------------------------

    def send(self, flight: Flight) -> None:
        """Ask a peer for a File."""
        assert flight.peer is not None
        self._waiting.append(Fetch(flight.file, flight.tier, flight.peer))

    def submit(self) -> None:
        """Give the receiver what it takes of the Fetches that wait."""
        if self._waiting:
            taken = self.receiver.submit(self._waiting)
            del self._waiting[:taken]

    def cancel(self) -> list[int]:
        """Return the Files whose Fetches the receiver has not taken, as ended."""
        files = [fetch.file for fetch in self._waiting]
        self._waiting.clear()
        return files

    def judge(self, flight: Flight, arrival: Arrival) -> Fate:
        """Say what the end of a Fetch means, and remember it of the peer."""
        fate = self._judge(flight, arrival)
        if flight.asked or fate not in (Fate.NEXT, Fate.ORIGIN):
            return fate
        if fate is Fate.NEXT:
            # What made it fail may have been told before: look again in any case.
            self._missed = self.sources.generation - 1
        return Fate.NOWHERE

    def _judge(self, flight: Flight, arrival: Arrival) -> Fate:
        if arrival.status == 0:
            self.sources.answered(arrival.peer, self._replicas.size_of(flight.file))
            return Fate.ARRIVED
        self._tally.peer_failures += 1
        cause = -arrival.status
        if cause == errno.EBADMSG:
            self.sources.corrupted(arrival.peer)
        elif arrival.step in _AT_TIER or arrival.step is Step.VERIFY:
            return Fate.OURS
        elif cause in _LINK_ENDED:
            self.sources.lost(arrival.peer)
        elif cause == errno.ETIMEDOUT:
            self.sources.late(arrival.peer)
            return self._after_waiting(flight)
        elif cause == errno.ECANCELED:
            return self._after_waiting(flight)
        else:
            return self._refused(flight, cause)
        return Fate.NEXT

    def _after_waiting(self, flight: Flight) -> Fate:
        """The next peer could be late too: a program waits for one time-out only."""
        waited = flight.asked and not self._is_large(flight.file)
        return Fate.ORIGIN if waited else Fate.NEXT

    def _refused(self, flight: Flight, cause: int) -> Fate:
        """The peer is well, but has no File for us."""
        assert flight.peer is not None
        self.sources.refused(flight.peer)
        large = self._is_large(flight.file)
        if cause != errno.EAGAIN or not large or flight.late >= LATE_MAX:
            return Fate.ORIGIN
        # No program waits for it; a second reader would only slow the first one down.
        flight.late += 1
        return Fate.AGAIN if self.sources.usable(flight.peer) else Fate.NEXT

    def redirect(self, flight: Flight, fate: Fate) -> None:
        """Point a Transfer at its next Source; its File is STAGING all the time."""
        if fate is Fate.AGAIN:
            return
        assert flight.peer is not None
        flight.tried += (flight.peer,)
        flight.peer = None
        if fate is Fate.NEXT:
            flight.peer = self.sources.source(flight.file, flight.tried)
        self._note_source(flight.file, flight.peer)
        if flight.peer is None and flight.tier == self.pool.number:
            self._settle_down(flight)

    def _settle_down(self, flight: Flight) -> None:
        """What this node reads from the Origin it also keeps, if there is room."""
        tier = self.allotment.reserve_spare(flight.file)
        if tier is not None:
            self._ledger.release(flight.tier, self._replicas.size_of(flight.file))
            flight.tier = tier
            self._replicas.change(flight.file, Event.MOVED, tier=tier)

    # -- background fill --------------------------------------------------------

    def fill(self, background: Background) -> None:
        """Let background fill begin with what this node keeps."""
        background.begin_with(FillOrder(self._owned), FillOrder(self._others))

    def refill(self, background: Background) -> None:
        """Let fill look again at Files of others, if somebody may have them now."""
        if self._missed is None or self._missed == self.sources.generation:
            return
        self._missed = None
        background.begin_with(FillOrder(range(0)), FillOrder(self._others))
