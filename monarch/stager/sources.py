"""Which peer serves a File now: the order of the Policy, less those that fail."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from monarch.metrics import AgentCounters
from monarch.stager.breaker import (
    NEVER_SEEN,
    WELL,
    Breaker,
    PeerEvent,
    State,
    after,
    ask,
)
from monarch.stager.policy import Policy


class Opening(NamedTuple):
    """A breaker has opened: the connection must be dropped, and other nodes warned.

    Attributes:
        known: other nodes need no warning: they have warned this one, or each of them
            sees by itself that a connection ends.
    """

    peer: int
    known: bool


@dataclass(slots=True)
class PeerEvents:
    """What became of this node's requests to one peer.

    Args:
        failures: late and corrupt answers are among them.
        refused: answers that the peer does not have the File, or not in time.
        complaints: failures of this peer that other nodes have reported.
    """

    fetched_files: int = 0
    fetched_bytes: int = 0
    failures: int = 0
    late: int = 0
    corrupt: int = 0
    refused: int = 0
    complaints: int = 0
    opened: int = 0
    closed: int = 0


class PeerTable(Protocol):
    """What the Sources need of the staging table."""

    def set_peer(self, peer: int, *, usable: bool, gone: bool) -> None:
        """Say whether a peer may be asked, and whether it reads nothing any more."""

    def fetched(self, peer: int) -> tuple[int, int]:
        """Return how many Files, and bytes, a peer has delivered."""


@dataclass(slots=True)
class _Peer:
    breaker: Breaker
    events: PeerEvents
    is_connected: bool = False
    is_gone: bool = False
    has_opened: bool = False


class Sources:
    """Knows which peers accept requests, by their breakers, and informs the table.

    Args:
        clock: seconds that never go back.

    Attributes:
        policy: the order in which peers are asked while all of them answer.
        news: one more with each change of what can be had from peers.
        abandoned: how many Files fill has given up because a peer has failed.
    """

    def __init__(
        self,
        policy: Policy,
        table: PeerTable,
        counters: AgentCounters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy
        self.news = 0
        self.abandoned = 0
        self._table = table
        self._counters = counters
        self._clock = clock
        self._peers = [_Peer(NEVER_SEEN, PeerEvents()) for _ in range(policy.nodes)]
        self._openings: list[Opening] = []

    def __repr__(self) -> str:
        usable = sum(self.usable(peer) for peer in range(len(self._peers)))
        return f"<Sources of node {self.policy.own}, {usable} peers usable>"

    # -- Files ------------------------------------------------------------------

    def source(self, file: int, tried: Collection[int] = ()) -> int | None:
        """Return the peer to ask for a File; None: read it from the Origin.

        Args:
            tried: peers that have failed.
        """
        if self.policy.owns(file):
            return None
        for peer in self.policy.sources(file):
            if peer not in tried and self.usable(peer):
                return peer
        return None

    def count(self, file: int, peer: int | None) -> None:
        """Count a Transfer that goes on to another node than before, or the Origin."""
        owner = self.policy.owner(file)
        if peer is not None:
            self._counters.rehomed_files += peer != owner
        elif owner != self.policy.own:
            self._counters.origin_instead_files += 1

    def note_abandoned(self) -> None:
        """Note that fill has given up a File whose peer has failed."""
        self.abandoned += 1
        # The news about what made it fail may have come before it failed.
        self.news += 1

    # -- peers ------------------------------------------------------------------

    def usable(self, peer: int) -> bool:
        """Return whether a request may go to a peer."""
        found = self._peers[peer]
        return found.is_connected and found.breaker.state is State.CLOSED

    def events(self, peer: int) -> PeerEvents:
        """Return what became of the requests to a peer."""
        self._note_answers(peer)
        return self._peers[peer].events

    def due(self, peer: int) -> bool:
        """Return, once, that it is time to try to connect to a peer.

        The handshake is the trial; `connected` or `failed` is called after it.
        """
        found = self._peers[peer]
        if peer == self.policy.own or found.breaker.state is State.CLOSED:
            return False
        due, found.breaker = ask(found.breaker, self._clock())
        return due

    def appeared(self, peer: int) -> None:
        """A peer has joined: failures of an earlier agent do not count."""
        found = self._peers[peer]
        found.is_gone = False
        if not found.is_connected:
            found.breaker = NEVER_SEEN
        self._tell(peer)

    def connected(self, peer: int) -> None:
        """A connection to a peer is open."""
        found = self._peers[peer]
        found.is_connected, found.is_gone = True, False
        self._pass(peer, PeerEvent.BACK)
        self.news += 1
        if found.has_opened:
            found.has_opened = False
            found.events.closed += 1
            self._counters.breakers_closed += 1

    def lost(self, peer: int) -> None:
        """The connection to a peer has ended."""
        found = self._peers[peer]
        found.events.failures += found.is_connected
        found.is_connected = False
        self._pass(peer, PeerEvent.GONE, known=True)

    def gone(self, peer: int) -> None:
        """A peer has left the job before its end."""
        self._peers[peer].is_gone = True
        self.lost(peer)
        self.news += 1

    def left(self, peer: int) -> None:
        """A peer has left because the job ends: that is no failure."""
        found = self._peers[peer]
        found.is_connected, found.has_opened, found.is_gone = False, False, True
        self._advance(peer, PeerEvent.GONE)
        self._tell(peer)
        self.news += 1

    def failed(self, peer: int) -> None:
        """An attempt to connect to a peer has failed."""
        self._pass(peer, PeerEvent.FAILURE)

    def late(self, peer: int) -> None:
        """A peer has not answered in time."""
        events = self._peers[peer].events
        events.late += 1
        events.failures += 1
        self._pass(peer, PeerEvent.FAILURE)

    def corrupted(self, peer: int) -> None:
        """A peer, or the network, has changed bytes."""
        events = self._peers[peer].events
        events.corrupt += 1
        events.failures += 1
        self._pass(peer, PeerEvent.FAILURE)

    def refused(self, peer: int) -> None:
        """A peer has answered that it does not give the File."""
        self._peers[peer].events.refused += 1

    def complained(self, peer: int) -> None:
        """Another node has reported a failure of this peer."""
        found = self._peers[peer]
        found.events.complaints += 1
        if found.breaker.state is State.CLOSED:
            self._pass(peer, PeerEvent.FAILURE, known=True)

    def openings(self) -> list[Opening]:
        """Return the breakers that have opened since the last call."""
        opened, self._openings = self._openings, []
        return opened

    def _note_answers(self, peer: int) -> None:
        """Note the Files that a peer has delivered since the last call."""
        found = self._peers[peer]
        files, size_bytes = self._table.fetched(peer)
        events = found.events
        if (files, size_bytes) == (events.fetched_files, events.fetched_bytes):
            return
        events.fetched_files, events.fetched_bytes = files, size_bytes
        if found.breaker is not WELL:
            self._advance(peer, PeerEvent.SUCCESS)

    def _pass(self, peer: int, event: PeerEvent, *, known: bool = False) -> None:
        self._note_answers(peer)  # they came before this event
        found = self._peers[peer]
        before = found.breaker.state
        self._advance(peer, event)
        if before is State.CLOSED and found.breaker.state is State.OPEN:
            found.has_opened = True
            found.is_connected = False
            found.events.opened += 1
            self._counters.breakers_opened += 1
            self._openings.append(Opening(peer, known))
        self._tell(peer)

    def _advance(self, peer: int, event: PeerEvent) -> None:
        found = self._peers[peer]
        found.breaker = after(found.breaker, event, self._clock())

    def _tell(self, peer: int) -> None:
        """Tell the data plane whether a peer may be asked."""
        gone = self._peers[peer].is_gone
        self._table.set_peer(peer, usable=self.usable(peer), gone=gone)
