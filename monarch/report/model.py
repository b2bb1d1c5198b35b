"""A snapshot of the figures of a job, from which every report is made."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

SCHEMA: Final = 2

OTHERS: Final = -1
"""The number of a PeerFigures that sums up several nodes."""

NO_ROOM: Final = "no tier had room for them"
"""Why files are not staged that would fit nowhere."""

UNKNOWN_STATUS: Final = 1 << 16

BLOCKS: Final = "large files, read by block"
"""The source of opens of Files whose reads are served by Block."""

POOL: Final = "transit pool"
"""The source of Files that other nodes keep."""

Report = Mapping[str, Any]
"""A report is plain JSON; the text is made from the JSON alone."""


def types_of(kind: type[Any]) -> dict[str, Any]:
    """Return the types of the figures of a kind, by their names."""
    if kind not in _TYPES:
        _TYPES[kind] = {field.name: field.type for field in fields(kind)}
    return _TYPES[kind]


# Computed once for each kind, because thousands of nodes have millions of rows.
_TYPES: Final[dict[type[Any], dict[str, Any]]] = {}


def plain(figures: Any) -> dict[str, Any]:
    """Return the figures by name, without the deep copies of `asdict`."""
    return {name: getattr(figures, name) for name in types_of(type(figures))}


def ratio(part: float, whole: float) -> float | None:
    """Return part / whole, None if the whole is 0."""
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The job, its command and its datasets."""

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
    room_bytes: int = 0
    """The space of the files in Tiers, in whole pages."""
    late_s: float = 0.0
    """How long programs have run before there was a Catalog."""
    exit_status: int = UNKNOWN_STATUS
    """128 and the number of the signal that has ended the program, if one has."""
    startup_s: float = 0.0
    """How long the agent took until programs were served from the Catalog."""
    agent_cpu_s: float = 0.0
    agent_rss_max_bytes: int = 0
    read_calls_bytes: int = 0
    """What the read calls of programs returned, of any file, as far as it was seen."""


@dataclass(frozen=True, slots=True)
class TierFigures:
    """The state of one Tier.

    Attributes:
        codec: with which its Files are packed; plain: they are not.
        expected_ratio: at which they were expected to shrink.
        why: why the codec was chosen; "" where it was given.
        lru_files: that have left it for others, as they were opened longest ago.
        lru_bytes: the room that these have given back.
    """

    name: str
    kind: str
    capacity_bytes: int
    used_bytes: int
    files: int
    in_service: bool
    codec: str = "plain"
    expected_ratio: float = 1.0
    why: str = ""
    lru_files: int = 0
    lru_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """The processes of one program, and whether the Shim was active in them."""

    program: str
    active: bool
    count: int


@dataclass(frozen=True, slots=True)
class WaitBucket:
    """The number of waits for one source from `from_ns` up to `to_ns`."""

    from_ns: int
    to_ns: int
    count: int
    source: str = "origin"


@dataclass(frozen=True, slots=True)
class WaitTotal:
    """The sum of the waits for one source."""

    source: str
    total_ns: int


@dataclass(frozen=True, slots=True)
class Unstaged:
    """The Files that are in no Tier, for one reason, and the paths of a few."""

    reason: str
    files: int
    bytes: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """What was counted until a time, in seconds since the agent has started.

    Attributes:
        ready: opens answered at once by a Tier.
        blocks: opens of large Files whose reads are served by Block.
        outside: opens that are not of files of the dataset, or for writing.
        tiers: the used bytes of each Tier.
    """

    at_s: float
    ready: int = 0
    waited: int = 0
    origin: int = 0
    blocks: int = 0
    outside: int = 0
    staged_bytes: int = 0
    origin_bytes: int = 0
    tiers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoaderFigures:
    """The figures that loaders of programs have reported at their end.

    Attributes:
        ranks: how many loaders.
        wait_p50_s: the median wait of a step, of the rank where it was longest; so the
            others.
        waited_s: all waits of the rank that has waited longest, `slowest_rank`.
        utilization_min: the least share of its time in which a rank did not wait.
        requests: of all readers.
        memory_bytes: of all readers at their peaks.
        retries: requests that were made again.
        hedges: late requests that were made twice.
        store_delay_p50_s: the median delay of replies of a store, of the reader where
            it was longest; 0: records were in files. So the others.
        store_reconnects: connections to a store that were lost.
        store_servers: the servers of stores, in the order of `store_served`.
        store_served: how many requests each has answered.
    """

    ranks: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    wait_p50_s: float = 0.0
    wait_p99_s: float = 0.0
    wait_max_s: float = 0.0
    waited_s: float = 0.0
    slowest_rank: int = 0
    utilization_min: float = 1.0
    requests: int = 0
    request_bytes: int = 0
    memory_bytes: int = 0
    restarts: int = 0
    retries: int = 0
    hedges: int = 0
    store_delay_p50_s: float = 0.0
    store_delay_p99_s: float = 0.0
    store_window: int = 0
    store_reconnects: int = 0
    store_servers: tuple[str, ...] = ()
    store_served: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowCopy:
    """A copy from the origin that took long."""

    path: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """How often copies failed with one error at one step, and an example."""

    errno: str
    operation: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The files of the datasets from `from_bytes` up to `to_bytes`."""

    from_bytes: int
    to_bytes: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A name that programs have for a dataset and the configuration has not.

    Attributes:
        alias: the name to add; "" if the path does not show it.
        example: a path that was opened.
    """

    dataset: str
    alias: str
    example: str


@dataclass(frozen=True, slots=True)
class ShareFigures:
    """What a node is to keep of the datasets, and what it has.

    Attributes:
        kept_files: the Files that it is to keep whole.
        ready_files: the Files in its Tiers, whether it is to keep them or not.
        unplaced_files: the Files that no node has room for.
        copies_short: how many more Replicas the mode asks for than have room.
        part_files: the large Files of which it is to keep a part only.
        part_bytes: what it has of these parts.
        partly_held_files: the large Files of which nodes have room for a part only.
        partly_left_bytes: the rest of these.
    """

    kept_files: int = 0
    ready_files: int = 0
    ready_bytes: int = 0
    unplaced_files: int = 0
    unplaced_bytes: int = 0
    copies_short: int = 0
    part_files: int = 0
    part_bytes: int = 0
    partly_held_files: int = 0
    partly_left_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FillFigures:
    """How many Files are copied from the Origin at the same time, if nobody waits.

    Attributes:
        least: the number of the node with the lowest one; 0: no fill.
        most: that of the node with the highest one.
        found: whether it was found by measuring.
    """

    least: int = 0
    most: int = 0
    found: bool = False


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The transfers of a node with one peer.

    Attributes:
        standing: `joined`, `left` or `never joined`.
        fetched_files: Files fetched from the peer.
        fetch_failures: requests to the peer that failed, by an error or a time-out.
        late: failures by a time-out.
        corrupt: failures by a wrong checksum or seal.
        fetch_refused: requests to the peer that it refused.
        complaints: failures of the peer that other nodes reported.
        served_files: Files sent to the peer whole.
        served_ranges: ranges of Blocks of large Files sent to the peer.
        refused: requests of the peer that were refused.
        malformed: connections that were closed because of an invalid frame.
        breaker_opened: times that the peer was suspended.
        breaker_closed: times that the peer was resumed.
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
    served_ranges: int = 0
    served_bytes: int = 0
    refused: int = 0
    malformed: int = 0
    breaker_opened: int = 0
    breaker_closed: int = 0

    @property
    def moved_bytes(self) -> int:
        """Return the bytes transferred in both directions."""
        return self.fetched_bytes + self.served_bytes

    @property
    def has_trouble(self) -> bool:
        """Return whether the peer is gone or a transfer failed."""
        return self.standing != "joined" or any(
            (self.fetch_failures, self.corrupt, self.malformed, self.breaker_opened)
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All figures of a job on one node at one time.

    Attributes:
        unstaged: the Files that this node owns and no Tier of it has.
        share: what this node keeps.
        fill: how many Files background fill copies at once.
        lacking: the Files that it is to keep and does not have; of large ones, what is
            missing.
        failures: what went wrong with the first Files that could not be copied.
        nodes: the names of the job's nodes by number; empty for one node.
        number: the number of this node.
        peers: the other nodes.
        pool_capacity_bytes: the size of the transit pool.
        moments: how the counts rose.
        file_sizes: how large the files of the datasets are; the same on all nodes.
        config: the effective configuration of this node.
        versions: of Monarch and of what it runs on.
    """

    run: JobFigures
    counters: Mapping[str, int]
    tally: Mapping[str, int]
    tiers: tuple[TierFigures, ...]
    processes: tuple[ProcessFigures, ...]
    unslotted: int
    waits: tuple[WaitBucket, ...]
    wait_totals: tuple[WaitTotal, ...]
    unstaged: tuple[Unstaged, ...]
    changed: tuple[str, ...] = ()
    passed_roots: tuple[str, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    share: ShareFigures = ShareFigures()
    fill: FillFigures = FillFigures()
    lacking: tuple[Unstaged, ...] = ()
    failures: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    number: int = 0
    peers: tuple[PeerFigures, ...] = ()
    pool_capacity_bytes: int = 0
    pool_used_bytes: int = 0
    moments: tuple[Moment, ...] = ()
    slowest: tuple[SlowCopy, ...] = ()
    errors: tuple[ErrorCount, ...] = ()
    loader: LoaderFigures = LoaderFigures()
    file_sizes: tuple[FileSizes, ...] = ()
    config: Mapping[str, Any] | None = None
    versions: Mapping[str, str] | None = None
