"""The native peer server and receiver: take sockets and orders, return arrivals."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from monarch.native.layout import DTYPES
from monarch.native.library import LIB, Closable, span
from monarch.native.orders import BATCH_MAX, Completion, Order, completions, pack

if TYPE_CHECKING:
    from monarch.native.engine import Engine


class Traffic(NamedTuple):
    """The counts of one peer since the start.

    Attributes:
        connections: open connections.
        requests: requests received by a server, sent by a receiver.
        replies: replies with bytes.
        ranges: the replies with Blocks of a large File among these; only for a server.
        bytes: bytes of Files.
        refused: replies without bytes.
        late: refusals because a File was not READY in time; orders that timed out.
        corrupt: Extents with a wrong checksum or seal.
        malformed: connections closed because of a malformed frame.
        lost: connections closed for any reason.
    """

    connections: int
    requests: int
    replies: int
    ranges: int
    bytes: int
    refused: int
    late: int
    corrupt: int
    malformed: int
    lost: int


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a server.

    Attributes:
        peers: node numbers are below this.
        connections: limit of the connections of all peers.
        park_s: how long a request waits for its File to become READY.
        stall_s: how long a peer may read nothing while bytes wait for it.
    """

    peers: int
    connections: int = 1024
    park_s: float = 10.0
    stall_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """The options of a receiver.

    Attributes:
        peers: node numbers are below this.
        in_flight: Files fetched from one peer at once; 64 at most.
        timeout_s: of an order without any byte; more than the park_s of peers.
        react_s: how long a peer may send nothing while a reply is outstanding.
        threads: each fetches from its share of the peers; 16 at most.
        sealed: Extents are verified by their seals; the engine must have the key.
    """

    peers: int
    in_flight: int = 16
    timeout_s: float = 15.0
    react_s: float = 1.0
    threads: int = 2
    sealed: bool = False


class _PeerThread(Closable):
    """The native threads of a server or receiver, from their start to close()."""

    _role: ClassVar[str]

    def __init__(self, engine: Engine, peers: int, record: npt.NDArray[Any]) -> None:
        handle = ctypes.c_void_p()
        new = self._call("new")
        _check(new(engine.handle, span(record)[0], ctypes.byref(handle)))
        self._engine = engine  # its memory is used until close()
        self._peers = peers
        self._handle: ctypes.c_void_p | None = handle

    def _call(self, verb: str) -> Any:
        return getattr(LIB, f"monarch_{self._role}_{verb}")

    def traffic(self) -> list[Traffic]:
        """Return the counts of all peers, by node number."""
        rows = np.zeros(self._peers, DTYPES["monarch_traffic"])
        self._call("traffic")(_alive(self._handle), span(rows)[0])
        return [Traffic(*row) for row in rows.tolist()]

    def close(self) -> None:
        """End the threads and all connections; must precede close() of the engine."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._call("free")(handle)


class PeerServer(_PeerThread):
    """A thread that serves the Replicas of this node to peers."""

    _role = "server"

    def __init__(self, engine: Engine, options: ServerOptions) -> None:
        record = np.zeros(1, DTYPES["monarch_server_options"])
        record["peers"] = options.peers
        record["connections"] = options.connections
        record["park_ms"] = round(options.park_s * 1000)
        record["stall_ms"] = round(options.stall_s * 1000)
        super().__init__(engine, options.peers, record)

    def adopt(self, peer: int, descriptor: int) -> None:
        """Serve an authenticated peer on this socket and take ownership of it.

        On OSError (EMFILE: the limit of connections is reached) the caller keeps it.
        """
        _check(LIB.monarch_server_adopt(_alive(self._handle), peer, descriptor))

    def drop(self, peer: int) -> None:
        """Close all connections of a peer."""
        _check(LIB.monarch_server_drop(_alive(self._handle), peer))


class PeerReceiver(_PeerThread):
    """Threads that fetch Files from peers into the Tiers of this node."""

    _role = "receiver"

    def __init__(self, engine: Engine, options: ReceiverOptions) -> None:
        record = np.zeros(1, DTYPES["monarch_receiver_options"])
        record["peers"] = options.peers
        record["in_flight"] = options.in_flight
        record["timeout_ms"] = round(options.timeout_s * 1000)
        record["react_ms"] = round(options.react_s * 1000)
        record["threads"] = options.threads
        record["sealed"] = options.sealed
        super().__init__(engine, options.peers, record)
        self._done = np.zeros(BATCH_MAX, DTYPES["monarch_completion"])

    @property
    def event_fd(self) -> int:
        """Readable as long as arrivals wait; must not be read."""
        return int(LIB.monarch_receiver_event_fd(_alive(self._handle)))

    def connect(self, peer: int, descriptor: int) -> None:
        """Fetch from a peer by this socket and take ownership of it.

        An older connection to that peer is closed; its orders end with -ECONNRESET.
        On OSError the caller keeps the socket.
        """
        _check(LIB.monarch_receiver_connect(_alive(self._handle), peer, descriptor))

    def disconnect(self, peer: int) -> None:
        """Close the connection to a peer; its orders end with -ECANCELED."""
        _check(LIB.monarch_receiver_disconnect(_alive(self._handle), peer))

    def submit(self, orders: Iterable[Order]) -> int:
        """Queue orders and return how many were accepted; submit the rest later."""
        rows = pack(orders)
        handle = _alive(self._handle)
        return int(LIB.monarch_receiver_submit(handle, span(rows)[0], len(rows)))

    def arrivals(self) -> list[Completion]:
        """Collect up to BATCH_MAX orders that have ended."""
        handle = _alive(self._handle)
        n = LIB.monarch_receiver_arrivals(handle, span(self._done)[0], BATCH_MAX)
        return completions(self._done[:n])


def _alive(handle: ctypes.c_void_p | None) -> ctypes.c_void_p:
    if handle is None:
        raise ValueError("the peer server or receiver is closed")
    return handle


def _check(code: int) -> None:
    if code:
        raise OSError(-code, os.strerror(-code))
