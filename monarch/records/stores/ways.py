"""Access to a store, and one Record to fetch from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from monarch.records.errors import RecordsError
from monarch.records.stores.connection import Endpoint, Talk
from monarch.records.stores.exchange import Failure, Fault, Wanted
from monarch.records.stores.window import Delays


class Way(Protocol):
    """Access to a store.

    Attributes:
        connections_max: maximum connections to one endpoint.
        name: name of the store for messages, without secrets.
        checks: identities are checksums of payloads, which the client compares.
    """

    connections_max: int
    name: str
    checks: bool

    @property
    def has_copies(self) -> bool:
        """Whether all servers of a key have its object, not only the first one."""

    def endpoints(self, key: bytes) -> Sequence[Endpoint]:
        """Return the servers that have a key, the best one first."""

    def begin(self, endpoint: Endpoint) -> Talk:
        """Return a function that begins a conversation with a server."""

    def moved(self, failure: Failure, *, is_away: bool) -> Endpoint | None:
        """Return the object's server from a failure of MOVED or ASKED, and record it.

        Args:
            is_away: its old server is unreachable: all of its objects have moved.
        """

    def advice(self, fault: Fault) -> str:
        """Return advice to the user on a fault; "": none."""


@dataclass(slots=True, eq=False)
class Fetch:
    """One Record to fetch.

    Attributes:
        place: destination of its payload; None: `found`.
        owner: value for the caller, such as the whole that this is a part of.
        number: value for the caller, such as the number of the part.
        error: why the payload is missing, after completion.
        found: the payload, if no place was given.
        endpoint: the only server to ask, if another one has named it.
        began_s: time of the first request; 0: not yet.
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
"""Called with the requests completed since the last call, by any thread."""


@dataclass(slots=True)
class FetchCounts:
    """Counters of a fetcher.

    Attributes:
        late: requests that were retried after no reply in time.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    late: int = 0
    reconnects: int = 0
    most_in_flight: int = 0


class Fetching(Protocol):
    """Fetches Records of a store, in its own threads.

    Attributes:
        counts: its counters.
        delays: delays of the last replies.
    """

    counts: FetchCounts
    delays: Delays

    @property
    def at_once(self) -> int:
        """Maximum requests in flight now."""

    @property
    def waiting(self) -> int:
        """Number of requests that wait to be sent."""

    @property
    def hedges(self) -> int:
        """Number of late requests that were also sent elsewhere."""

    @property
    def servers(self) -> Mapping[str, int]:
        """Number of requests that each server has answered, by its address."""

    def start(self, fetches: Sequence[Fetch]) -> None:
        """Queue Records to fetch, in this order, behind earlier ones."""

    def close(self) -> None:
        """End all connections; requests in flight are dropped."""
