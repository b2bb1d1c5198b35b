"""Every figure that the agent counts itself, with its unit and meaning."""

from dataclasses import dataclass, field, fields
from typing import Any


def _figure(unit: str, text: str) -> Any:
    return field(default=0, metadata={"unit": unit, "text": text})


@dataclass(slots=True)
class AgentCounters:
    """Totals of one agent; the counters of programs are in the shared layout."""

    origin_read_bytes: int = _figure("bytes", "read from the origin, failures included")
    staged_files: int = _figure("files", "copied from the origin into a tier")
    staged_bytes: int = _figure("bytes", "sizes of those")
    demand_transfers: int = _figure("transfers", "ordered because a program waited")
    background_transfers: int = _figure("transfers", "ordered by background fill")
    adopted_files: int = _figure("files", "taken over from an earlier job, verified")
    adopted_bytes: int = _figure("bytes", "sizes of those")
    adoptions_refused: int = _figure("files", "of an earlier job that did not verify")
    transfers_failed: int = _figure("transfers", "that failed for any reason")
    files_changed: int = _figure("files", "whose origin differs from the catalog")
    files_written_elsewhere: int = _figure(
        "files", "left to the origin because another node has written to them"
    )
    copies_refused: int = _figure("transfers", "whose copy did not verify")
    tiers_full: int = _figure("events", "in which a tier was full before its capacity")
    tiers_lost: int = _figure("tiers", "taken out of service")
    replicas_lost: int = _figure("files", "that vanished from a tier")
    evicted_files: int = _figure("files", "removed to keep below the memory limit")
    evicted_bytes: int = _figure("bytes", "sizes of those")
    peer_files: int = _figure("files", "fetched from other nodes")
    peer_bytes: int = _figure("bytes", "sizes of those")
    peer_failures: int = _figure("transfers", "from other nodes that came to nothing")
    rehomed_files: int = _figure("files", "asked of a later node than their owner")
    origin_instead_files: int = _figure(
        "files", "read from the origin although another node owns them"
    )
    transit_files: int = _figure("files", "that went through the transit pool")
    transit_bytes: int = _figure("bytes", "sizes of those")
    transit_full: int = _figure("events", "in which the transit pool had no room")
    breakers_opened: int = _figure("events", "in which a peer was asked no more")
    breakers_closed: int = _figure("events", "in which such a peer was asked again")
    links_altered: int = _figure(
        "connections", "between agents tampered with on the network, and ended"
    )
    agent_errors: int = _figure("errors", "survived inside the agent")
    transfer_ns: int = _figure("ns", "sum of the durations of all transfers")
    busy_ns: int = _figure("ns", "during which at least one transfer ran")

    def as_dict(self) -> dict[str, int]:
        """Return all figures by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


UNITS = {f.name: str(f.metadata["unit"]) for f in fields(AgentCounters)}
TEXTS = {f.name: str(f.metadata["text"]) for f in fields(AgentCounters)}
