"""The figures of a running or ending agent, gathered for a report or a status."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.agent.namespace import Namespace
from monarch.agent.processes import Processes
from monarch.agent.setup import Setup
from monarch.catalog.unmanaged import shown
from monarch.cluster import Membership, node_name
from monarch.metrics import Tally
from monarch.native import PeerReceiver, PeerServer, Reason, ReplicaState, Traffic
from monarch.peers.protocol import Standing, View
from monarch.report import (
    JobFigures,
    PeerFigures,
    ProcessFigures,
    Snapshot,
    TierFigures,
    Unstaged,
    WaitBucket,
)
from monarch.stager import PeerEvents, Sources, Stager

CHANGED_MAX = 20

_REASONS = {
    Reason.NONE: "not asked for before the job ended",
    Reason.STOPPING: "the job ended before they were copied",
    Reason.NO_ROOM: "no tier had room for them",
    Reason.CHANGED: "changed on the origin, or written to",
    Reason.ERROR: "copying them failed too often",
    Reason.MEMORY: "removed again to keep below the memory limit",
    Reason.BUSY: "their origin did not answer, or there was no room at that moment",
}
_STANDINGS: Final = {
    Standing.UNSEEN: "never joined",
    Standing.JOINED: "joined",
    Standing.LEFT: "left",
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """Both ends of the data plane between peers, and what became of our requests."""

    server: PeerServer
    receiver: PeerReceiver
    sources: Sources

    def figures(self, peers: list[PeerFigures]) -> list[PeerFigures]:
        """Return the figures of peers with what went to and came from them."""
        served, fetched = self.server.traffic(), self.receiver.traffic()
        return [
            _exchanged(
                peer,
                self.sources.events(peer.number),
                served[peer.number],
                fetched[peer.number],
            )
            for peer in peers
        ]


def _exchanged(
    peer: PeerFigures, events: PeerEvents, served: Traffic, fetched: Traffic
) -> PeerFigures:
    return replace(
        peer,
        fetched_files=events.fetched_files,
        fetched_bytes=events.fetched_bytes,
        fetch_failures=events.failures,
        late=events.late,
        corrupt=events.corrupt,
        fetch_refused=events.refused,
        complaints=events.complaints,
        served_files=served.replies,
        served_bytes=served.bytes,
        refused=served.refused,
        malformed=served.malformed + fetched.malformed,
        breaker_opened=events.opened,
        breaker_closed=events.closed,
    )


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
        self._membership: Membership | None = None
        self._view: Callable[[], View] | None = None
        self._altered: Callable[[], int] = lambda: 0
        self._exchange: Exchange | None = None
        self._settled: tuple[PeerFigures, ...] | None = None
        self._started_s = time.time()
        self._started = time.monotonic()

    def __repr__(self) -> str:
        return f"<Figures of {self.job} on {self.node}>"

    def join(
        self,
        membership: Membership,
        view: Callable[[], View],
        altered: Callable[[], int] = lambda: 0,
    ) -> None:
        """Tell of all nodes of the job from now on.

        Args:
            view: returns how they stand.
            altered: returns how many connections to them were tampered with.
        """
        self._membership, self._view, self._altered = membership, view, altered

    def share(
        self, server: PeerServer, receiver: PeerReceiver, sources: Sources
    ) -> None:
        """Tell what goes to and comes from the other nodes from now on."""
        self._exchange = Exchange(server, receiver, sources)

    def settle(self) -> None:
        """Tell of peers as they are now, whatever becomes of them and of both ends.

        Due when the job is over: how it ends is no trouble of a peer's.
        """
        if self._settled is None:
            self._settled = self._peers()

    def nodes(self) -> list[dict[str, Any]]:
        """Return how each node of the job stands; nothing if this is all of it."""
        if self._membership is None or self._view is None:
            return []
        if len(self._membership.nodes) == 1:
            return []
        return [
            {
                "number": member.number,
                "name": name,
                "standing": _STANDINGS[member.standing],
                "phase": member.phase.name.lower(),
            }
            for member, name in zip(
                self._view().members, self._membership.nodes, strict=True
            )
        ]

    def snapshot(self, *, complete: bool = True) -> Snapshot:
        """Return the figures of this moment."""
        waits, wait_total_ns = self.processes.waits()
        self.tally.links_altered = self._altered()
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
            nodes=tuple(node["name"] for node in self.nodes()),
            number=self._membership.number if self._membership is not None else 0,
            peers=self._peers(),
            **self._pool(),
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
            room_bytes=self.namespace.room_bytes if self.namespace is not None else 0,
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
                len(self.stager.replicas.ready_in(number)),
                account.in_service,
            )
            for number, (tier, account) in enumerate(
                zip(self.setup.tiers, self.stager.ledger.accounts, strict=True)
            )
        )

    def _pool(self) -> dict[str, int]:
        account = self.stager.ledger.transit if self.stager is not None else None
        if account is None:
            return {}
        return {
            "pool_capacity_bytes": account.capacity_bytes,
            "pool_used_bytes": account.used_bytes,
        }

    def _unstaged(self) -> tuple[Unstaged, ...]:
        if self.stager is None:
            return ()
        replicas = self.stager.replicas
        found = []
        for reason, text in _REASONS.items():
            files = self._of_ours(replicas.absent(reason))
            size = int(replicas.sizes[files].sum())
            found.append(Unstaged(text, len(files), size))
        staging = np.flatnonzero(replicas.in_state(ReplicaState.STAGING))
        under_way = self._of_ours(staging)
        size = int(replicas.sizes[under_way].sum())
        found.append(Unstaged("being copied", len(under_way), size))
        return tuple(found)

    def _of_ours(self, files: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return those that this node owns: all nodes together tell of each once."""
        if self._exchange is None:
            return files
        sources = self._exchange.sources
        ours: npt.NDArray[np.bool_] = sources.placement.owners[files] == sources.own
        return files[ours]

    def _peers(self) -> tuple[PeerFigures, ...]:
        if self._settled is not None:
            return self._settled
        peers = [
            PeerFigures(node["number"], node["name"], node["standing"])
            for node in self.nodes()
        ]
        if self._membership is not None and peers:
            del peers[self._membership.number]
        if self._exchange is not None:
            peers = self._exchange.figures(peers)
        return tuple(peers)

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


def _buckets(counts: list[int]) -> tuple[WaitBucket, ...]:
    edges = [native.wait_bucket_ns(number) for number in range(len(counts))]
    edges.append(2 * edges[-1])
    return tuple(
        WaitBucket(edges[n], edges[n + 1], count) for n, count in enumerate(counts)
    )
