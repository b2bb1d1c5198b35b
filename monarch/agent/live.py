"""The answers of a running agent to `monarch status` and `monarch top`.

Unlike a report, this is cheap enough for a request every second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monarch import __version__
from monarch import report as reports
from monarch.agent.lifetime import AgentParts
from monarch.agent.stats import AgentStats
from monarch.agent.watching import NodeFigures, Watching
from monarch.metrics import STAGED_KINDS, WAITED_OPENS
from monarch.native import AgentState, Reason
from monarch.stager import Progress, ProgressMeter, Rates

if TYPE_CHECKING:
    from monarch.peers.mesh import Mesh

SCHEMA: Final = 1
"""The version of an answer; changes increase it, additions do not."""

_READY: Final = "opens_hit_tier"


class Live:
    """The figures of a running agent, and their rates.

    Args:
        run: the run directory.
        stats: returns the current figures.
        mesh: returns the connections to other nodes; None: no other nodes.

    Attributes:
        metrics_url: where metrics are exported; "" if they are not.
        watching: sends this node's figures to other nodes.
    """

    def __init__(
        self,
        run: Path,
        parts: AgentParts,
        stats: Callable[[], AgentStats],
        mesh: Callable[[], Mesh | None],
    ) -> None:
        self._run = run
        self._state = parts.state
        self._joining = parts.joining
        self.stats = stats
        self._meter = ProgressMeter()
        self._rates = Rates()
        self.metrics_url = ""
        self.watching = Watching(mesh, self._figures)
        if parts.joining.cluster is not None:
            parts.joining.cluster.on_note = self.watching.hear

    def __repr__(self) -> str:
        return f"<Live {self._rates!r}>"

    @property
    def state(self) -> AgentState:
        """The state of the agent."""
        return self._state.value

    def scanned_names(self) -> int:
        """Return the number of names that this node has found in the datasets."""
        found = (one.advance for one in self._joining.indexings)
        return sum(advance.done for advance in found if not advance.compares)

    def sample(self) -> None:
        """Sample the counters once a second; send them to other nodes that watch."""
        now_s = time.monotonic()
        if self._rates.is_due(now_s):
            self._rates.note(now_s, _grows(self.stats()))
        self.watching.tell()

    # -- answers ------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return all figures and the current report."""
        stats = self.stats()
        report = reports.summarize(stats.snapshot(complete=False))
        return {**self.figures(stats), "report": report}

    def figures(self, stats: AgentStats | None = None) -> dict[str, Any]:
        """Return the figures that `monarch top` shows."""
        stats = stats or self.stats()
        self.watching.look()
        counters = stats.processes.totals()
        return {
            "schema": SCHEMA,
            "version": __version__,
            "run": os.fspath(self._run),
            "job": stats.label.job,
            "node": stats.label.node,
            "pid": os.getpid(),
            "state": self._state.value.name.lower(),
            "started_s": stats.label.started_s,
            "seconds": time.monotonic() - stats.label.clock_s,
            "datasets": [dataset.path for dataset in stats.setup.datasets],
            "indexing": self._indexing(stats),
            "living": stats.processes.living,
            "processes": _processes(stats),
            "in_flight": stats.stager.in_flight if stats.stager else 0,
            "staged": self._staged(stats),
            "tiers": [_by_name(tier) for tier in stats.tier_figures()],
            "opens": opens_by_source(counters),
            "waits": _waits(stats),
            "origin_read_bytes": stats.tally()["origin_read_bytes"],
            "per_s": self._rates.per_s(),
            "nodes": self._nodes(stats),
            "metrics": self.metrics_url,
        }

    def progress(self, stats: AgentStats) -> Progress:
        """Return the progress of staging."""
        return self._meter.measure(stats.stager) if stats.stager else Progress()

    def _staged(self, stats: AgentStats) -> dict[str, Any] | None:
        """Return the progress of staging; None before the Catalog is ready."""
        if stats.stager is None:
            return None
        found = self.progress(stats)
        fills = stats.setup.config.fill.enabled
        left_s = self._rates.left_s("staged_bytes", found.coming_bytes)
        return {
            **_by_name(found),
            "share": found.share,
            "left_s": left_s if fills else None,
            "no_room_files": _no_room(stats),
        }

    def _indexing(self, stats: AgentStats) -> list[dict[str, Any]]:
        """Return the progress of each dataset's scan; nothing once all are indexed."""
        if stats.namespace is not None:
            return []
        rows = []
        for one in self._joining.indexings:
            advance = one.advance
            rows.append(
                {
                    "path": one.dataset.path,
                    "names": 0 if advance.compares else advance.done,
                    "directories": advance.done if advance.compares else 0,
                    "expected": advance.total,
                    "done": one.ended.is_set(),
                }
            )
        return rows

    def _nodes(self, stats: AgentStats) -> list[dict[str, Any]]:
        """Return the state and the last reported figures of each node."""
        heard = self.watching.heard()
        own = stats.cluster.node_list.number if stats.cluster is not None else None
        rows = []
        for node in stats.nodes():
            age_s, told = heard.get(node["number"], (None, None))
            if node["number"] == own:
                age_s, told = 0.0, self._figures()
            figures = told.as_dict() if told is not None else None
            rows.append({**node, "age_s": age_s, "figures": figures})
        return rows

    def _figures(self) -> NodeFigures:
        """Return the figures of this node for the others."""
        stats = self.stats()
        found, per_s = self.progress(stats), self._rates.per_s()
        opens = opens_by_source(stats.processes.totals())
        return NodeFigures(
            bytes=found.bytes,
            kept_bytes=found.kept_bytes,
            bytes_per_s=round(per_s.get("staged_bytes", 0)),
            opens=opens["ready"] + opens["waited"] + opens["origin"],
            ready_opens=opens["ready"],
            opens_per_s=round(sum(per_s.get(n, 0) for n in _OPENS)),
            origin_read_bytes=stats.tally()["origin_read_bytes"],
            processes=stats.processes.living,
        )


def _by_name(figures: Any) -> dict[str, Any]:
    """Return the figures of a dataclass with slots."""
    return {name: getattr(figures, name) for name in figures.__slots__}


_OPENS: Final = ("ready_opens", "waited_opens", "origin_opens")


def opens_by_source(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the opens of all programs, as the report counts them."""
    return {
        "ready": sum(n for name, n in counters.items() if name.startswith(_READY)),
        "waited": sum(counters[name] for name in WAITED_OPENS),
        "origin": counters["opens_origin"] - counters["origin_blocks"],
        "blocks": counters["origin_blocks"],
        "outside": counters["opens_outside"] + counters["opens_write"],
    }


def _grows(stats: AgentStats) -> dict[str, float]:
    """Return the counts whose growth per second is shown."""
    tally, opens = stats.tally(), opens_by_source(stats.processes.totals())
    staged = sum(tally[f"{kind}_bytes"] for kind in STAGED_KINDS)
    files = sum(tally[f"{kind}_files"] for kind in STAGED_KINDS)
    return {
        # Files that pass through the Pool are not kept.
        "staged_bytes": staged - tally["transit_bytes"],
        "staged_files": files - tally["transit_files"],
        "origin_read_bytes": tally["origin_read_bytes"],
        "ready_opens": opens["ready"],
        "waited_opens": opens["waited"],
        "origin_opens": opens["origin"],
    }


def _processes(stats: AgentStats) -> dict[str, int]:
    seen = stats.processes.seen()
    return {
        "seen": sum(seen.values()),
        "active": sum(count for (_, active), count in seen.items() if active),
        "untracked": stats.processes.unslotted(),
    }


def _waits(stats: AgentStats) -> dict[str, Any]:
    buckets, total_ns = stats.processes.waits()
    return {"count": sum(buckets), "total_s": total_ns / 1e9}


def _no_room(stats: AgentStats) -> int:
    assert stats.stager is not None
    return len(stats.stager.replicas.absent(Reason.NO_ROOM))
