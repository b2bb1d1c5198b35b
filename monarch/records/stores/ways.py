"""How a store is reached, and one Record to fetch from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from monarch.records.errors import RecordsError
from monarch.records.stores.connection import Endpoint, Talk
from monarch.records.stores.exchange import Failure, Fault, Wanted
from monarch.records.stores.window import Delays


class Way(Protocol):
    """How a store is reached.

    Attributes:
        connections_max: to one endpoint.
        name: of the store, for messages; without secrets.
        checks: identities are checksums of payloads, which the client compares.
    """

    connections_max: int
    name: str
    checks: bool

    @property
    def has_copies(self) -> bool:
        """Whether each of a key's servers has its object; else the first one has."""

    def endpoints(self, key: bytes) -> Sequence[Endpoint]:
        """Return the servers that have a key, the best one first."""

    def begin(self, endpoint: Endpoint) -> Talk:
        """Return how a conversation with a server begins."""

    def moved(self, failure: Failure, *, is_away: bool) -> Endpoint | None:
        """Learn from a failure of MOVED or ASKED where the object is.

        Args:
            is_away: its server cannot be reached: what it had moved as well.
        """

    def advice(self, fault: Fault) -> str:
        """Return what the user can do about a fault; "": nothing."""


@dataclass(slots=True, eq=False)
class Fetch:
    """One Record to fetch.

    Attributes:
        place: where its payload goes; None: into `found`.
        owner: what it is a part of, for the caller.
        number: which part, for the caller.
        error: why the payload is missing, once it has ended.
        found: the payload, if no destination was given.
        endpoint: the only server to ask, if another one has named it.
        began_s: when it was first requested; 0: not yet.
    """

    wanted: Wanted
    place: memoryview | None
    owner: Any = None
    number: int = 0
    error: RecordsError | None = None
    found: bytearray | None = None
    attempts: int = 0
    endpoint: Endpoint | None = None
    began_s: float = 0.0


Ended = Callable[[list[Fetch]], None]
"""Takes the requests that have ended since it was called last; any thread calls it."""


@dataclass(slots=True)
class FetchCounts:
    """What the thread has done.

    Attributes:
        late: requests that were sent elsewhere, as no reply came.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    late: int = 0
    reconnects: int = 0
    most_in_flight: int = 0


class Fetching(Protocol):
    """What fetches Records of a store, in threads of its own.

    Attributes:
        counts: what was fetched.
        delays: how long the last replies took.
    """

    counts: FetchCounts
    delays: Delays

    @property
    def at_once(self) -> int:
        """How many requests may be in flight now."""

    @property
    def waiting(self) -> int:
        """How many requests wait to be sent."""

    @property
    def hedges(self) -> int:
        """How many late requests were sent elsewhere as well."""

    @property
    def servers(self) -> Mapping[str, int]:
        """How many requests each server has answered, by its address."""

    def start(self, fetches: Sequence[Fetch]) -> None:
        """Have Records fetched, in this order, after those that were given before."""

    def close(self) -> None:
        """End all connections; what is in flight is not fetched any more."""
