"""How a store is reached, and one Record to fetch from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from monarch.records.index import RecordsError
from monarch.records.stores.connection import Connection, Endpoint, Talk
from monarch.records.stores.exchange import Failure, Fault, Wanted


class Way(Protocol):
    """How a store is reached.

    Attributes:
        connections_max: to one endpoint.
        name: of the store, for messages; without secrets.
    """

    connections_max: int
    name: str

    def endpoints(self, key: bytes) -> Sequence[Endpoint]:
        """Return the servers that have a key, the best one first."""

    def begin(self, endpoint: Endpoint) -> Talk:
        """Return how a conversation with a server begins."""

    def moved(self, failure: Failure) -> Endpoint | None:
        """Learn from a failure of MOVED or ASKED where the object is."""

    def advice(self, fault: Fault) -> str:
        """Return what the user can do about a fault; "": nothing."""


@dataclass(slots=True, eq=False)
class Fetch:
    """One Record to fetch.

    Attributes:
        place: where it goes; None: `done` gets it.
        done: is called once by the thread, with the error, or with what has no place.
        endpoint: the only server to ask, if another one has named it.
        sent_s: when it was asked for last.
    """

    wanted: Wanted
    place: memoryview | None
    done: Callable[[RecordsError | None, bytearray | None], None]
    attempts: int = 0
    endpoint: Endpoint | None = None
    sent_s: float = 0.0
    connection: Connection | None = None


@dataclass(slots=True)
class FetchCounts:
    """What the thread has done."""

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    late: int = 0
    reconnects: int = 0
    most_in_flight: int = 0
