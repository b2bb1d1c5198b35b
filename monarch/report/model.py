"""The figures of one moment of a job, from which every report is made."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

SCHEMA: Final = 1

OTHERS: Final = -1
"""The number of a PeerFigures that sums up several nodes, to keep a list short."""

POOL: Final = "transit pool"
"""The source of what a node holds for a while of Files that others keep."""

Report = Mapping[str, Any]
"""A report is plain JSON: what is printed is what was written."""


def types_of(kind: type[Any]) -> dict[str, Any]:
    """Return the types of the figures of a kind, by their names."""
    if kind not in _TYPES:
        _TYPES[kind] = {field.name: field.type for field in fields(kind)}
    return _TYPES[kind]


# One entry for each kind of figures: thousands of nodes have millions of rows.
_TYPES: Final[dict[type[Any], dict[str, Any]]] = {}


def plain(figures: Any) -> dict[str, Any]:
    """Return flat figures by their names; without the copies of `asdict`."""
    return {name: getattr(figures, name) for name in types_of(type(figures))}


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Which job this is, and what it was given to stage."""

    job: str
    node: str
    command: tuple[str, ...]
    started_s: float
    seconds: float
    datasets: tuple[str, ...]
    files: int
    bytes: int
    complete: bool = True
    plain: str = ""


@dataclass(frozen=True, slots=True)
class TierFigures:
    """One Tier at the end."""

    name: str
    kind: str
    capacity_bytes: int
    used_bytes: int
    files: int
    in_service: bool


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """The processes of one program, and whether the Shim worked in them."""

    program: str
    active: bool
    count: int


@dataclass(frozen=True, slots=True)
class WaitBucket:
    """Cold-open waits from `from_ns` up to the next bucket."""

    from_ns: int
    to_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class Unstaged:
    """Files that are not in any Tier, for one reason."""

    reason: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """What a node had to do with one other node.

    Attributes:
        standing: whether that node has joined, left or never joined, in these words.
        fetched_files: Files that came from it.
        fetch_failures: requests to it that failed: it erred, or was late.
        late: of these, the ones that ran out of time.
        corrupt: of these, the ones whose bytes had a wrong checksum or seal.
        fetch_refused: requests to it that it answered without bytes.
        complaints: what other nodes told of failures of it.
        served_files: Files that it was given.
        refused: requests of it that were answered without bytes.
        malformed: connections with it that were closed because of a frame.
        breaker_opened: how often it was given up for a while ...
        breaker_closed: ... and found well again.
    """

    number: int
    name: str
    standing: str
    fetched_files: int = 0
    fetched_bytes: int = 0
    fetch_failures: int = 0
    late: int = 0
    corrupt: int = 0
    fetch_refused: int = 0
    complaints: int = 0
    served_files: int = 0
    served_bytes: int = 0
    refused: int = 0
    malformed: int = 0
    breaker_opened: int = 0
    breaker_closed: int = 0

    @property
    def moved_bytes(self) -> int:
        """Return what went over the wire, in both directions."""
        return self.fetched_bytes + self.served_bytes

    @property
    def has_trouble(self) -> bool:
        """Return whether anything went wrong between the two."""
        return self.standing != "joined" or any(
            (self.fetch_failures, self.corrupt, self.malformed, self.breaker_opened)
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is known about a job on one node at one moment.

    Attributes:
        nodes: the names of the job's nodes by number; none where there is but one.
        number: which of them this is.
        peers: the others.
        pool_capacity_bytes: what of Files that others keep may pass through at once.
    """

    run: JobFigures
    counters: Mapping[str, int]
    tally: Mapping[str, int]
    tiers: tuple[TierFigures, ...]
    processes: tuple[ProcessFigures, ...]
    unslotted: int
    waits: tuple[WaitBucket, ...]
    wait_total_ns: int
    unstaged: tuple[Unstaged, ...]
    changed: tuple[str, ...] = ()
    passed_roots: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    number: int = 0
    peers: tuple[PeerFigures, ...] = ()
    pool_capacity_bytes: int = 0
    pool_used_bytes: int = 0
