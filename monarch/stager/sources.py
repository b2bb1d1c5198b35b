"""Selects the peer that serves a File: the Policy's order without failed peers."""

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
            notices the end of a connection itself.
    """

    peer: int
    known: bool


@dataclass(slots=True)
class PeerEvents:
    """The results of this node's requests to one peer.

    Args:
        failures: including late and corrupt answers.
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
    """The part of the staging table that the Sources use."""

    def set_peer(self, peer: int, *, usable: bool, gone: bool) -> None:
        """Set whether a peer is usable, and whether it has stopped reading."""

    def fetched(self, peer: int) -> tuple[int, int]:
        """Return the number of Files and bytes that a peer has delivered."""


@dataclass(slots=True)
class _Peer:
    breaker: Breaker
    events: PeerEvents
    is_connected: bool = False
    is_gone: bool = False
    has_opened: bool = False


class Sources:
    """Tracks by breakers which peers accept requests, and updates the table.

    Args:
        clock: monotonic seconds.

    Attributes:
        policy: the order in which peers are asked while all of them answer.
        news: incremented with each change of the Files available from peers.
        abandoned: the number of Files that fill has given up because a peer failed.
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
        """Count a Transfer that moves on to another node, or to the Origin."""
        owner = self.policy.owner(file)
        if peer is not None:
            self._counters.rehomed_files += peer != owner
        elif owner != self.policy.own:
            self._counters.origin_instead_files += 1

    def note_abandoned(self) -> None:
        """Note that fill has given up a File because its peer failed."""
        self.abandoned += 1
        # The news about the cause may have arrived before the failure.
        self.news += 1

    # -- peers ------------------------------------------------------------------

    def usable(self, peer: int) -> bool:
        """Return whether a request may go to a peer."""
        found = self._peers[peer]
        return found.is_connected and found.breaker.state is State.CLOSED

    def events(self, peer: int) -> PeerEvents:
        """Return the results of the requests to a peer."""
        self._note_answers(peer)
        return self._peers[peer].events

    def due(self, peer: int) -> bool:
        """Return whether to try to connect to a peer now; True once per trial.

        The handshake is the trial; the caller reports it by `connected` or `failed`.
        """
        found = self._peers[peer]
        if peer == self.policy.own or found.breaker.state is State.CLOSED:
            return False
        due, found.breaker = ask(found.breaker, self._clock())
        return due

    def appeared(self, peer: int) -> None:
        """Note that a peer has joined: failures of an earlier agent do not count."""
        found = self._peers[peer]
        found.is_gone = False
        if not found.is_connected:
            found.breaker = NEVER_SEEN
        self._tell(peer)

    def connected(self, peer: int) -> None:
        """Note that a connection to a peer is open."""
        found = self._peers[peer]
        found.is_connected, found.is_gone = True, False
        self._pass(peer, PeerEvent.BACK)
        self.news += 1
        if found.has_opened:
            found.has_opened = False
            found.events.closed += 1
            self._counters.breakers_closed += 1

    def lost(self, peer: int) -> None:
        """Note that the connection to a peer has ended."""
        found = self._peers[peer]
        found.events.failures += found.is_connected
        found.is_connected = False
        self._pass(peer, PeerEvent.GONE, known=True)

    def gone(self, peer: int) -> None:
        """Note that a peer has left the job before its end."""
        self._peers[peer].is_gone = True
        self.lost(peer)
        self.news += 1

    def left(self, peer: int) -> None:
        """Note that a peer has left because the job ends, which is no failure."""
        found = self._peers[peer]
        found.is_connected, found.has_opened, found.is_gone = False, False, True
        self._advance(peer, PeerEvent.GONE)
        self._tell(peer)
        self.news += 1

    def failed(self, peer: int) -> None:
        """Note that an attempt to connect to a peer has failed."""
        self._pass(peer, PeerEvent.FAILURE)

    def late(self, peer: int) -> None:
        """Note that a peer has not answered in time."""
        events = self._peers[peer].events
        events.late += 1
        events.failures += 1
        self._pass(peer, PeerEvent.FAILURE)

    def corrupted(self, peer: int) -> None:
        """Note that a peer, or the network, has corrupted bytes."""
        events = self._peers[peer].events
        events.corrupt += 1
        events.failures += 1
        self._pass(peer, PeerEvent.FAILURE)

    def refused(self, peer: int) -> None:
        """Note that a peer has refused a File."""
        self._peers[peer].events.refused += 1

    def complained(self, peer: int) -> None:
        """Note that another node has reported a failure of this peer."""
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
        self._note_answers(peer)  # they arrived before this event
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
        """Report to the data plane whether a peer is usable."""
        gone = self._peers[peer].is_gone
        self._table.set_peer(peer, usable=self.usable(peer), gone=gone)
