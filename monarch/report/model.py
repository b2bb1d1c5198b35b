"""A snapshot of the figures of a job, the input of every report."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

SCHEMA: Final = 2

OTHERS: Final = -1
"""The number of a PeerFigures that sums up several nodes."""

NO_ROOM: Final = "no tier had room for them"
"""The reason of unstaged files that fit no Tier."""

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
    """How long programs ran before the Catalog existed."""
    exit_status: int = UNKNOWN_STATUS
    """128 plus the signal number, if a signal has ended the program."""
    startup_s: float = 0.0
    """Time until the agent served programs from the Catalog."""
    agent_cpu_s: float = 0.0
    agent_rss_max_bytes: int = 0
    read_calls_bytes: int = 0
    """Bytes that the seen read calls of programs returned, of any file."""


@dataclass(frozen=True, slots=True)
class TierFigures:
    """The state of one Tier.

    Attributes:
        codec: codec of its packed Files; plain: they are not packed.
        expected_ratio: expected ratio of plain to stored bytes.
        why: why the codec was chosen; "": it was given.
        lru_files: Files evicted for others because they were least recently opened.
        lru_bytes: space that these evictions have freed.
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
    """The counts up to a time, in seconds since the start of the agent.

    Attributes:
        ready: opens answered at once by a Tier.
        blocks: opens of large Files whose reads are served by Block.
        outside: opens of other files than those of the dataset, or for writing.
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
    """The figures that loaders of programs reported at their end.

    Attributes:
        ranks: number of loaders.
        wait_p50_s: the median wait of a step, on the rank where it was longest; the
            other quantiles likewise.
        waited_s: total wait of the rank that waited longest, `slowest_rank`.
        utilization_min: the lowest share of time in which a rank did not wait.
        requests: requests of all readers.
        memory_bytes: peak memory of all readers, added up.
        retries: retried requests.
        hedges: late requests that were sent twice.
        store_delay_p50_s: the median delay of replies of a store, for the reader where
            it was longest; 0: records were in files. The other quantile likewise.
        store_reconnects: lost connections to a store.
        store_servers: the servers of stores, in the order of `store_served`.
        store_served: number of requests that each server has answered.
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
    """A name of a dataset that programs use and the configuration lacks.

    Attributes:
        alias: the name to add; "": it is not evident from the path.
        example: a path that was opened.
    """

    dataset: str
    alias: str
    example: str


@dataclass(frozen=True, slots=True)
class ShareFigures:
    """The part of the datasets that a node should hold, and that it holds.

    Attributes:
        kept_files: Files that it should hold whole.
        ready_files: Files in its Tiers, whether it should hold them or not.
        unplaced_files: Files that fit no node.
        copies_short: Replicas that the mode requires but that do not fit.
        part_files: large Files of which it should hold only a part.
        part_bytes: bytes of these parts that it holds.
        partly_held_files: large Files of which only a part fits the nodes.
        partly_left_bytes: the remaining bytes of these Files.
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
    """The number of concurrent copies from the Origin while no program waits.

    Attributes:
        least: the lowest number of a node; 0: no fill.
        most: the highest number of a node.
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
        fetch_failures: requests to the peer that failed by an error or a time-out.
        late: failures by a time-out.
        corrupt: failures by a wrong checksum or seal.
        fetch_refused: requests that the peer refused.
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
        """Return whether the peer is not joined, or a transfer has failed."""
        return self.standing != "joined" or any(
            (self.fetch_failures, self.corrupt, self.malformed, self.breaker_opened)
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All figures of a job on one node at one time.

    Attributes:
        unstaged: Files that this node owns and that are in none of its Tiers.
        share: the part of the datasets of this node.
        fill: the concurrency of background fill.
        lacking: Files that it should hold and does not hold; of large ones, the missing
            parts.
        failures: errors of the first Files that could not be copied.
        nodes: the names of the job's nodes by number; empty for one node.
        number: the number of this node.
        peers: the other nodes.
        pool_capacity_bytes: the size of the transit pool.
        moments: the counts over time.
        file_sizes: sizes of the files of the datasets; the same on all nodes.
        config: the effective configuration of this node.
        versions: versions of Monarch and of its environment.
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
