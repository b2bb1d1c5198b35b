"""The counters of the agent, each with its unit and meaning."""

from dataclasses import dataclass, field, fields
from typing import Any


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
    mapped_files: int = _figure("files", "large ones that programs were seen to map")
    breakers_opened: int = _figure("times", "a peer was suspended after failures")
    breakers_closed: int = _figure("times", "a suspended peer was resumed")
    links_altered: int = _figure(
        "connections", "between agents closed because messages had been altered"
    )
    agent_errors: int = _figure("errors", "in the agent, which continued")
    transfer_ns: int = _figure("ns", "total duration of all transfers")
    busy_ns: int = _figure("ns", "during which at least one transfer ran")

    def as_dict(self) -> dict[str, int]:
        """Return all counters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


UNITS = {f.name: str(f.metadata["unit"]) for f in fields(AgentCounters)}
TEXTS = {f.name: str(f.metadata["text"]) for f in fields(AgentCounters)}
