"""Fetches from peers: their submission to the receiver, and the handling of results."""

import errno
from enum import Enum
from typing import Final

from monarch.metrics import AgentCounters
from monarch.native import Completion, Order, Step
from monarch.stager.fill import StagerSettings
from monarch.stager.replicas import Replicas
from monarch.stager.sources import Sources
from monarch.stager.transfer import Receiver, Transfer

LATE_MAX: Final = 64
"""How often a large File is requested again while its owner still reads it."""

_LINK_ENDED: Final = frozenset({errno.ECONNRESET, errno.ENOTCONN, errno.EPROTO})
_AT_TIER: Final = frozenset({Step.ORDER, Step.CREATE, Step.WRITE, Step.PUBLISH})


class FetchOutcome(Enum):
    """The action after a Fetch has ended."""

    PUBLISHED = "nothing: the Replica is ready"
    NEXT_PEER = "ask the next peer"
    SAME_PEER = "ask the same peer again"
    ORIGIN = "read the Origin"
    OWN_FAULT = "handle a failure of this node"
    ABANDON = "leave the File absent until a program asks for it"


class Fetches:
    """Submits Fetches to the receiver, and classifies their results."""

    def __init__(
        self,
        receiver: Receiver,
        sources: Sources,
        replicas: Replicas,
        settings: StagerSettings,
        counters: AgentCounters,
    ) -> None:
        self._receiver = receiver
        self._sources = sources
        self._replicas = replicas
        self._settings = settings
        self._counters = counters
        self._waiting: list[Order] = []

    def __repr__(self) -> str:
        return f"<Fetches {len(self._waiting)} waiting>"

    def add(self, order: Order) -> None:
        """Queue the request of a File from a peer for the next `submit`."""
        self._waiting.append(order)

    def submit(self) -> None:
        """Submit waiting Fetches to the receiver, as many as it accepts."""
        if self._waiting:
            taken = self._receiver.submit(self._waiting)
            del self._waiting[:taken]

    def cancel(self) -> list[Order]:
        """Drop the orders that the receiver has not accepted, and return them."""
        orders, self._waiting = self._waiting, []
        return orders

    def arrivals(self) -> list[Completion]:
        """Return the Fetches that have ended since the last call."""
        return self._receiver.arrivals()

    def classify(self, transfer: Transfer, arrival: Completion) -> FetchOutcome:
        """Return the action after a Fetch has ended; note its result for the peer."""
        outcome = self._classify(transfer, arrival)
        failed = outcome in (FetchOutcome.NEXT_PEER, FetchOutcome.ORIGIN)
        if transfer.asked or not failed:
            return outcome
        if outcome is FetchOutcome.NEXT_PEER:
            self._sources.note_abandoned()
        return FetchOutcome.ABANDON

    def _classify(self, transfer: Transfer, arrival: Completion) -> FetchOutcome:
        if arrival.status == 0:
            return FetchOutcome.PUBLISHED
        self._counters.peer_failures += 1
        cause = -arrival.status
        if cause == errno.EBADMSG:
            self._sources.corrupted(arrival.peer)
        elif arrival.step in _AT_TIER or arrival.step is Step.VERIFY:
            return FetchOutcome.OWN_FAULT
        elif cause in _LINK_ENDED:
            self._sources.lost(arrival.peer)
        elif cause == errno.ETIMEDOUT:
            self._sources.late(arrival.peer)
            return self._after_waiting(transfer)
        elif cause == errno.ECANCELED:
            return self._after_waiting(transfer)
        else:
            return self._after_refusal(transfer, cause)
        return FetchOutcome.NEXT_PEER

    def _after_waiting(self, transfer: Transfer) -> FetchOutcome:
        """Return the action after a time-out: a program waits for one only."""
        waits = transfer.asked and not self._is_large(transfer.file)
        return FetchOutcome.ORIGIN if waits else FetchOutcome.NEXT_PEER

    def _after_refusal(self, transfer: Transfer, cause: int) -> FetchOutcome:
        """Return the action after a working peer has refused the File."""
        assert transfer.peer is not None
        self._sources.refused(transfer.peer)
        large = self._is_large(transfer.file)
        if cause != errno.EAGAIN or not large or transfer.late >= LATE_MAX:
            return FetchOutcome.ORIGIN
        # No program waits for it; a second reader would only slow the first one down.
        transfer.late += 1
        usable = self._sources.usable(transfer.peer)
        return FetchOutcome.SAME_PEER if usable else FetchOutcome.NEXT_PEER

    def _is_large(self, file: int) -> bool:
        return self._settings.is_large(self._replicas.size_of(file))
