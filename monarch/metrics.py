"""The counters of the agent, and the metrics that it exports."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final


def _figure(unit: str, text: str) -> Any:
    return field(default=0, metadata={"unit": unit, "text": text})


@dataclass(slots=True)
class AgentCounters:
    """The counters of one agent; those of programs are in shared memory.

    The unit and the meaning follow a count: ``3 files evicted to stay below ...``.
    """

    origin_read_bytes: int = _figure(
        "bytes", "read from the origin, failed transfers included"
    )
    tried_bytes: int = _figure("bytes", "of these were read to choose codecs")
    tried_reads: int = _figure("reads", "of the origin to choose codecs")
    staged_files: int = _figure("files", "copied from the origin into a tier")
    staged_bytes: int = _figure("bytes", "total size of the staged files")
    demand_transfers: int = _figure("transfers", "started because a program waited")
    background_transfers: int = _figure("transfers", "started by background fill")
    adopted_files: int = _figure("files", "adopted from an earlier job and verified")
    adopted_bytes: int = _figure("bytes", "total size of the adopted files")
    adoptions_refused: int = _figure("files", "of an earlier job failed verification")
    transfers_failed: int = _figure("transfers", "failed; the origin was read instead")
    files_changed: int = _figure("files", "changed at the origin after the scan")
    files_written_elsewhere: int = _figure(
        "files", "left to the origin because another node has written to them"
    )
    copies_refused: int = _figure(
        "transfers", "failed verification; the origin was read instead"
    )
    tiers_full: int = _figure("events", "of a tier that was full below its capacity")
    tiers_lost: int = _figure("tiers", "taken out of service")
    replicas_lost: int = _figure("files", "disappeared from a tier")
    evicted_files: int = _figure("files", "evicted to stay below the memory limit")
    evicted_bytes: int = _figure("bytes", "total size of the evicted files")
    shared_files: int = _figure(
        "files", "linked from another job of the user on this node"
    )
    shared_bytes: int = _figure("bytes", "in these")
    peer_files: int = _figure("files", "fetched from peers")
    peer_bytes: int = _figure("bytes", "total size of the fetched files")
    peer_failures: int = _figure("transfers", "from peers failed")
    rehomed_files: int = _figure("files", "fetched from a node other than their owner")
    origin_instead_files: int = _figure(
        "files", "read from the origin although another node owns them"
    )
    transit_files: int = _figure("files", "passed through the transit pool")
    transit_bytes: int = _figure("bytes", "total size of these files")
    reads_without_token: int = _figure(
        "reads",
        "of the origin for programs began after 100 ms although as many as "
        "origin.max_readers permits were running",
    )
    transit_full: int = _figure("events", "of a transit pool without free space")
    hinted_files: int = _figure("files", "read ahead because of hints")
    hinted_bytes: int = _figure("bytes", "total size of these files")
    packed_files: int = _figure("files", "packed into packed tiers, or adopted so")
    packed_bytes: int = _figure("bytes", "total size of these files")
    stored_bytes: int = _figure("bytes", "that they take of the tiers")
    raw_files: int = _figure(
        "files", "of these are stored as they are: they do not shrink"
    )
    pack_ns: int = _figure("ns", "of processor time spent to compress them")
    unpacked_files: int = _figure(
        "files", "decoded from packed tiers, each time counted"
    )
    unpacked_bytes: int = _figure("bytes", "total size of these")
    unpack_ns: int = _figure("ns", "of processor time spent to decode them")
    frames_dropped: int = _figure("files", "in packed tiers were damaged")
    evicted_packed_files: int = _figure(
        "packed files", "evicted to stay below the memory limit"
    )
    came_packed_files: int = _figure("files", "came packed from peers")
    packed_extents: int = _figure("pieces", "of 8 MiB of large files were packed")
    compacted_segments: int = _figure(
        "pack files", "freed because most of their content was unused"
    )
    compacted_bytes: int = _figure("bytes", "of frames copied out of these")
    breakers_opened: int = _figure("times", "a peer was suspended after failures")
    breakers_closed: int = _figure("times", "a suspended peer was resumed")
    links_altered: int = _figure(
        "connections", "between agents closed because messages had been altered"
    )
    agent_errors: int = _figure("errors", "in the agent, which continued")
    transfer_ns: int = _figure("ns", "total duration of all transfers")
    busy_ns: int = _figure("ns", "during which at least one transfer ran")
    origin_busy_ns: int = _figure("ns", "during which at least one read the origin")

    def as_dict(self) -> dict[str, int]:
        """Return all counters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


STAGED_KINDS: Final = ("staged", "shared", "peer", "adopted")
"""Each kind is counted as `KIND_files` and `KIND_bytes`."""

WAITED_OPENS: Final = ("opens_peer_hit", "opens_unpacked", "opens_miss")
"""Counters of programs: opens that waited for a Replica and got it."""
UNITS = {f.name: str(f.metadata["unit"]) for f in fields(AgentCounters)}
TEXTS = {f.name: str(f.metadata["text"]) for f in fields(AgentCounters)}


# -- metrics ------------------------------------------------------------------------

PREFIX: Final = "monarch_"
JOB_LABEL: Final = "monarch_job"
"""Each sample has it: agents of several jobs may write files in one directory."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of Prometheus, in base units.

    Attributes:
        kind: counter, gauge, or histogram.
        unit: seconds, bytes, or the name of the counted items.
        labels: in addition to JOB_LABEL.
    """

    name: str
    kind: str
    unit: str
    text: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Return the name of its samples."""
        end = "_total" if self.kind == "counter" else ""
        return f"{PREFIX}{self.name}{end}"


def _gauge(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", unit, text, labels)


def _counter(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", unit, text, labels)


_GAUGES: Final = (
    _gauge("info", "1", "always 1, for the labels", "version", "node"),
    _gauge("state", "1", "1 for the state in which the agent is, else 0", "state"),
    _gauge("start_time_seconds", "seconds", "when the agent started, since 1970"),
    _gauge(
        "scanned_names", "names", "found so far by scans; 0 where a saved index is used"
    ),
    _gauge("dataset_files", "files", "in the datasets"),
    _gauge("dataset_bytes", "bytes", "in the datasets"),
    _gauge("kept_files", "files", "that this node is to keep, whole or in part"),
    _gauge("kept_bytes", "bytes", "that this node is to keep"),
    _gauge("ready_files", "files", "of those that are staged, whole"),
    _gauge("ready_bytes", "bytes", "of those that are staged"),
    _gauge("coming_bytes", "bytes", "that are not staged, but may still come"),
    _gauge("tier_capacity_bytes", "bytes", "that a tier takes at most", "tier"),
    _gauge("tier_used_bytes", "bytes", "that the files in a tier take", "tier"),
    _gauge("tier_files", "files", "in a tier", "tier"),
    _gauge("tier_in_service", "1", "0 once a tier has failed, else 1", "tier"),
    _gauge("transfers_in_flight", "transfers", "that run now"),
    _gauge("processes_running", "processes", "of the job on this node"),
    _gauge("nodes", "nodes", "of the job, by how they stand", "standing"),
    _gauge("agent_resident_bytes", "bytes", "of memory that the agent uses"),
)
_COUNTERS: Final = (
    _counter("agent_cpu_seconds", "seconds", "of CPU that the agent has used"),
    _counter("tier_lru_files", "files", "that have left a tier for others", "tier"),
    _counter("tier_lru_bytes", "bytes", "that these have given back", "tier"),
    _counter(
        "processes", "processes", "of the job, by whether Monarch works", "active"
    ),
    _counter("untracked_processes", "processes", "that could not be tracked"),
    _counter(
        "opens",
        "opens",
        "of files of datasets, by what answered them: tier, pool, peer (after a wait "
        "for a peer), staged (after a wait for the origin), or origin",
        *("source", "tier"),
    ),
    _counter(
        "opened_bytes",
        "bytes",
        "sizes of the files opened, not how much was read of them",
        *("source", "tier"),
    ),
    _counter("origin_opens", "opens", "that the origin answered, by cause", "cause"),
    _counter("passed_opens", "opens", "of other files, or for writing", "kind"),
    _counter("whole_opens", "opens", "that waited for a large file", "outcome"),
    _counter("metadata_calls", "calls", "stat, access and listings", "answer"),
    _counter("large_reads", "calls", "reads of large files while they fill", "source"),
    _counter("large_read_bytes", "bytes", "that these reads have given", "source"),
    _counter("large_maps", "calls", "mappings of large files", "source"),
    _counter(
        "large_opens",
        "opens",
        "of large files whose reads are served by block; they are opens of the origin, "
        "too",
    ),
    _counter("large_opened_bytes", "bytes", "sizes of the files opened by these"),
    _counter("large_used_opens", "opens", "of these, read or mapped by a seen call"),
    _counter("large_mapped_opens", "opens", "of these, mapped"),
    _counter("written_marks", "marks", "of files, directories and roots written to"),
)
_WAITS: Final = Metric(
    "open_wait_seconds",
    "histogram",
    "seconds",
    "that opens and reads waited for copies",
)

PROGRAM_COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    **{
        f"{kind}_{name}": (metric, (source, ""))
        for kind, metric in (("opens", "opens"), ("bytes", "opened_bytes"))
        for name, source in (
            ("peer_hit", "peer"),
            ("unpacked", "packed"),
            ("miss", "staged"),
            ("origin", "origin"),
        )
    },
    **{
        f"origin_{cause}": ("origin_opens", (cause,))
        for cause in (
            *(
                "written",
                "refused",
                "full",
                "busy",
                "whole",
                "large",
                "timeout",
                "silent",
            ),
            *("slots", "lost", "vfork", "denied", "early", "program", "link"),
            *("inside", "parent", "covered", "new", "unlisted", "names", "how"),
        )
    },
    "opens_outside": ("passed_opens", ("outside",)),
    "opens_elsewhere": ("passed_opens", ("elsewhere",)),
    "opens_write": ("passed_opens", ("write",)),
    "whole_waits": ("whole_opens", ("waited",)),
    "whole_served": ("whole_opens", ("served",)),
    "stats_answered": ("metadata_calls", ("catalog",)),
    "stats_descriptor": ("metadata_calls", ("descriptor",)),
    "absent_answered": ("metadata_calls", ("absent",)),
    "listings_answered": ("metadata_calls", ("listing",)),
    "stats_origin": ("metadata_calls", ("origin",)),
    "reads_local": ("large_reads", ("local",)),
    "bytes_local": ("large_read_bytes", ("local",)),
    "reads_origin": ("large_reads", ("origin",)),
    "maps_local": ("large_maps", ("local",)),
    "maps_origin": ("large_maps", ("origin",)),
    "bytes_read_origin": ("large_read_bytes", ("origin",)),
    "origin_blocks": ("large_opens", ()),
    "bytes_blocks": ("large_opened_bytes", ()),
    "blocks_used": ("large_used_opens", ()),
    "blocks_mapped": ("large_mapped_opens", ()),
    "mutations": ("written_marks", ()),
}
"""The metric and labels of each counter of programs, except the counters of tiers.

These are `opens_hit_tierN` and `bytes_hit_tierN`.
"""


def agent_metric(name: str) -> Metric:
    """Return the metric of a counter of the agent: the same in base units."""
    unit, text = UNITS[name], TEXTS[name]
    if unit == "ns":
        return Metric(f"{name.removesuffix('_ns')}_seconds", "counter", "seconds", text)
    return Metric(name, "counter", unit, text)


def metrics() -> Iterator[Metric]:
    """Yield all metrics, in the order in which they are documented."""
    yield from _GAUGES
    yield from _COUNTERS
    yield _WAITS
    yield from map(agent_metric, UNITS)


def metrics_reference() -> str:
    """Return the documentation of all metrics, in Markdown."""
    lines = [
        "# Metrics",
        "",
        "Metrics of an agent, exported if `metrics.port` or `metrics.textfile` is set.",
        "",
        f"Each sample has the label `{JOB_LABEL}`, the name of the job. Times are in "
        "seconds, sizes in bytes.",
        "Counters start with the agent, which runs as long as its job.",
        "",
        "| name | type | labels | unit | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in metrics():
        labels = ", ".join(f"`{label}`" for label in one.labels) or "-"
        row = f"| `{one.full_name}` | {one.kind} | {labels} | {one.unit} | {one.text} |"
        lines.append(row)
    return "\n".join(lines) + "\n"
