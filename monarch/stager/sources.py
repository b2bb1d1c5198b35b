"""Where a node gets its Files from: the order of the Placement, less the unusable."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from monarch.metrics import Tally
from monarch.placement import Placement
from monarch.stager.breaker import WELL, Breaker, Event, State, after, ask

_NEVER_SEEN = Breaker(State.OPEN, since_s=-float("inf"))


class Opening(NamedTuple):
    """A breaker has opened: the connection is to be dropped, and others told.

    Attributes:
        heard: others need not be told, because they have told us, or because each of
            them sees by itself that a connection ends.
    """

    peer: int
    heard: bool


@dataclass(slots=True)
class PeerEvents:
    """What became of this node's requests to one peer.

    Args:
        failures: of these, late and corrupt are counted once more by themselves.
        refused: answers that the peer does not have the File, or not in time.
        complaints: what other nodes told of failures of their own.
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


@dataclass(slots=True)
class _Peer:
    breaker: Breaker
    events: PeerEvents
    is_connected: bool = False
    is_gone: bool = False
    has_opened: bool = False


class Sources:
    """Says whom to ask for a File, by the Placement and the breakers of all peers.

    A node asks only those before itself in a File's order, so that requests flow
    towards its owner and never in a circle.

    Args:
        own: the number of this node.
        clock: seconds that never go back.

    Attributes:
        kept: which Files this node is to hold.
        clock: see above.
        generation: grows whenever a peer becomes usable, or is known to have gone.
    """

    def __init__(
        self,
        placement: Placement,
        own: int,
        tally: Tally,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.placement = placement
        self.own = own
        self.kept = placement.kept(own)
        self.generation = 0
        self._tally = tally
        self.clock = clock
        self._peers = [_Peer(_NEVER_SEEN, PeerEvents()) for _ in placement.nodes]
        self._openings: list[Opening] = []

    def __repr__(self) -> str:
        usable = sum(self.usable(peer) for peer in range(len(self._peers)))
        return f"<Sources of node {self.own}, {usable} peers usable>"

    # -- Files ------------------------------------------------------------------

    def keeps(self, file: int) -> bool:
        """Return whether this node is to hold the File."""
        return bool(self.kept[file])

    def placed(self, file: int) -> bool:
        """Return whether any node is to hold the File."""
        return bool(self.placement.placed[file])

    def owns(self, file: int) -> bool:
        """Return whether this node is the File's owner."""
        return self.owner(file) == self.own

    def owner(self, file: int) -> int:
        """Return the node that reads the File from the Origin while it is alive."""
        return int(self.placement.owners[file])

    def source(self, file: int, tried: Collection[int] = ()) -> int | None:
        """Return the peer to ask for a File; None: read it from the Origin.

        Args:
            tried: peers that have been asked in vain.
        """
        owner = self.owner(file)
        if owner == self.own:
            return None
        if owner not in tried and self.usable(owner):
            return owner
        for peer in self.placement.ranks(file):
            if peer == self.own:
                return None
            if peer not in tried and self.usable(peer):
                return peer
        return None

    def home(self, file: int) -> int:
        """Return who is to read a File from the Origin, as far as is known for sure.

        A node that cannot be reached just now may still be at it, so that nobody else
        is to read the File unless a program waits for it.
        """
        owner = self.owner(file)
        if not self._peers[owner].is_gone:
            return owner
        ranks = self.placement.ranks(file)
        return next(node for node in ranks if not self._peers[node].is_gone)

    # -- peers ------------------------------------------------------------------

    def usable(self, peer: int) -> bool:
        """Return whether a request may go to a peer."""
        found = self._peers[peer]
        return found.is_connected and found.breaker.state is State.CLOSED

    def events(self, peer: int) -> PeerEvents:
        """Return what became of the requests to a peer."""
        return self._peers[peer].events

    def due(self, peer: int) -> bool:
        """Return, once, that it is time to try to connect to a peer.

        The handshake is the trial: `connected` or `failed` is to tell how it went.
        """
        found = self._peers[peer]
        if peer == self.own or found.breaker.state is State.CLOSED:
            return False
        due, found.breaker = ask(found.breaker, self.clock())
        return due

    def appeared(self, peer: int) -> None:
        """A peer has joined: whatever was wrong with it belongs to an earlier life."""
        found = self._peers[peer]
        found.is_gone = False
        if not found.is_connected:
            found.breaker = _NEVER_SEEN

    def connected(self, peer: int) -> None:
        """There is a connection on which to ask a peer."""
        found = self._peers[peer]
        found.is_connected, found.is_gone = True, False
        self._pass(peer, Event.BACK)
        self.generation += 1
        if found.has_opened:
            found.has_opened = False
            found.events.closed += 1
            self._tally.breakers_closed += 1

    def lost(self, peer: int) -> None:
        """The connection to a peer has ended."""
        found = self._peers[peer]
        found.events.failures += found.is_connected
        found.is_connected = False
        self._pass(peer, Event.GONE, heard=True)

    def gone(self, peer: int) -> None:
        """A peer has left the job before its end."""
        self.lost(peer)
        self._peers[peer].is_gone = True
        self.generation += 1

    def left(self, peer: int) -> None:
        """A peer has left because the job ends: nothing is wrong with it."""
        found = self._peers[peer]
        found.is_connected, found.has_opened, found.is_gone = False, False, True
        found.breaker = after(found.breaker, Event.GONE, self.clock())
        self.generation += 1

    def answered(self, peer: int, size_bytes: int) -> None:
        """A peer has sent a File that is right, in time."""
        found = self._peers[peer]
        found.events.fetched_files += 1
        found.events.fetched_bytes += size_bytes
        if found.breaker is not WELL:
            self._pass(peer, Event.SUCCESS)

    def failed(self, peer: int) -> None:
        """An attempt to connect to a peer has failed."""
        self._pass(peer, Event.FAILURE)

    def late(self, peer: int) -> None:
        """A peer has not answered in time."""
        events = self._peers[peer].events
        events.late += 1
        events.failures += 1
        self._pass(peer, Event.FAILURE)

    def corrupted(self, peer: int) -> None:
        """A peer, or the way from it, has changed bytes."""
        events = self._peers[peer].events
        events.corrupt += 1
        events.failures += 1
        self._pass(peer, Event.FAILURE)

    def refused(self, peer: int) -> None:
        """A peer has said that it does not give the File."""
        self._peers[peer].events.refused += 1

    def complained(self, peer: int) -> None:
        """Another node has told that this peer fails it."""
        found = self._peers[peer]
        found.events.complaints += 1
        if found.breaker.state is State.CLOSED:
            self._pass(peer, Event.FAILURE, heard=True)

    def openings(self) -> list[Opening]:
        """Return the breakers that have opened since the last call."""
        opened, self._openings = self._openings, []
        return opened

    def _pass(self, peer: int, event: Event, *, heard: bool = False) -> None:
        found = self._peers[peer]
        before = found.breaker.state
        found.breaker = after(found.breaker, event, self.clock())
        if before is State.CLOSED and found.breaker.state is State.OPEN:
            found.has_opened = True
            found.is_connected = False
            found.events.opened += 1
            self._tally.breakers_opened += 1
            self._openings.append(Opening(peer, heard))
