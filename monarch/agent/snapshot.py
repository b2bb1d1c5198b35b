"""The figures of a running or ending agent, gathered for a report or a status."""

import os
import time

import numpy as np

from monarch import native
from monarch.agent.namespace import Namespace
from monarch.agent.processes import Processes
from monarch.agent.setup import Setup
from monarch.cluster import node_name
from monarch.metrics import Tally
from monarch.model import shown
from monarch.native import Reason, ReplicaState
from monarch.report import (
    JobFigures,
    ProcessFigures,
    Snapshot,
    TierFigures,
    Unstaged,
    WaitBucket,
)
from monarch.stager import Stager

CHANGED_MAX = 20

_REASONS = {
    Reason.NONE: "not asked for before the job ended",
    Reason.STOPPING: "the job ended before they were copied",
    Reason.NO_ROOM: "no tier had room for them",
    Reason.CHANGED: "changed on the origin, or written to",
    Reason.ERROR: "copying them failed too often",
    Reason.MEMORY: "removed again to keep below the memory limit",
}


class Figures:
    """Knows where every figure of this agent is found."""

    def __init__(self, setup: Setup, job_node: str, processes: Processes) -> None:
        self.setup = setup
        self.node = node_name(os.environ)
        self.job = job_node.removesuffix(f".{self.node}")
        self.processes = processes
        self.tally = Tally()
        self.namespace: Namespace | None = None
        self.stager: Stager | None = None
        self.plain = ""
        self._started_s = time.time()
        self._started = time.monotonic()

    def __repr__(self) -> str:
        return f"<Figures of {self.job} on {self.node}>"

    def snapshot(self, *, complete: bool = True) -> Snapshot:
        """Return the figures of this moment."""
        waits, wait_total_ns = self.processes.waits()
        return Snapshot(
            run=self._job(complete),
            counters=self.processes.totals(),
            tally=self.tally.as_dict(),
            tiers=self._tiers(),
            processes=tuple(
                ProcessFigures(program, active, count)
                for (program, active), count in sorted(self.processes.seen().items())
            ),
            unslotted=self.processes.unslotted(),
            waits=_buckets(waits),
            wait_total_ns=wait_total_ns,
            unstaged=self._unstaged(),
            changed=self._changed(),
            passed_roots=self._passed_roots(),
        )

    def _job(self, complete: bool) -> JobFigures:
        inventory = self.namespace.inventory if self.namespace is not None else None
        return JobFigures(
            job=self.job,
            node=self.node,
            command=self.setup.command,
            started_s=self._started_s,
            seconds=time.monotonic() - self._started,
            datasets=tuple(dataset.path for dataset in self.setup.datasets),
            files=len(inventory) if inventory is not None else 0,
            bytes=inventory.total_bytes if inventory is not None else 0,
            complete=complete,
            plain=self.plain,
        )

    def _tiers(self) -> tuple[TierFigures, ...]:
        if self.stager is None:
            return tuple(
                TierFigures(tier.name, tier.kind, tier.capacity_bytes, 0, 0, True)
                for tier in self.setup.tiers
            )
        return tuple(
            TierFigures(
                tier.name,
                tier.kind,
                tier.capacity_bytes,
                account.used_bytes,
                len(self.stager.table.ready_in(number)),
                account.in_service,
            )
            for number, (tier, account) in enumerate(
                zip(self.setup.tiers, self.stager.ledger.accounts, strict=True)
            )
        )

    def _unstaged(self) -> tuple[Unstaged, ...]:
        if self.stager is None:
            return ()
        table = self.stager.table
        found = []
        for reason, text in _REASONS.items():
            files = table.absent(reason)
            size = int(table.sizes[files].sum())
            found.append(Unstaged(text, len(files), size))
        busy = table.words % _TIER_UNIT == ReplicaState.STAGING
        under_way = np.flatnonzero(busy)
        size = int(table.sizes[under_way].sum())
        found.append(Unstaged("being copied", len(under_way), size))
        return tuple(found)

    def _changed(self) -> tuple[str, ...]:
        if self.stager is None or self.namespace is None:
            return ()
        return tuple(self.namespace.path(f) for f in self.stager.changed[:CHANGED_MAX])

    def _passed_roots(self) -> tuple[str, ...]:
        """Return the roots that programs have switched to pass-through."""
        if self.namespace is None:
            return ()
        marks = self.namespace.segments.record("flags")["roots"]
        return tuple(
            shown(root.path)
            for root, mark in zip(self.namespace.roots, marks, strict=False)
            if mark
        )


_TIER_UNIT = native.CONSTANTS["STATE_TIER_UNIT"]


def _buckets(counts: list[int]) -> tuple[WaitBucket, ...]:
    edges = [native.wait_bucket_ns(number) for number in range(len(counts))]
    edges.append(2 * edges[-1])
    return tuple(
        WaitBucket(edges[n], edges[n + 1], count) for n, count in enumerate(counts)
    )
