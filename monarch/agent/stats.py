"""The figures of a running or ending agent, as a value, for reports and `status`."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch import report as reports
from monarch.agent.figures import file_sizes, versions, wait_buckets, wait_totals
from monarch.agent.loaders import LoaderRows
from monarch.agent.namespace import Namespace
from monarch.agent.processes import Processes
from monarch.agent.recorder import Recorder, own_cost
from monarch.agent.setup import Setup
from monarch.cluster import NodeList, node_name
from monarch.errors import shown
from monarch.metrics import AgentCounters
from monarch.native import PeerReceiver, PeerServer, Reason, ReplicaState
from monarch.peers.protocol import Member, Phase, Standing, View
from monarch.placement import Mode
from monarch.stager import CodecInUse, FillConcurrency, Sources, Stager

CHANGED_MAX = 20
EXAMPLES_MAX: Final = 3

UNINDEXED = "the datasets were not indexed yet"

_REASONS = {
    Reason.NONE: "not requested before the job ended",
    Reason.STOPPING: "the job ended before they were copied",
    Reason.NO_ROOM: "no tier had room for them",
    Reason.CHANGED: "changed on the origin, or written to",
    Reason.ERROR: "copying them failed too often",
    Reason.DENIED: "Monarch may not read them (permissions)",
    Reason.MEMORY: "removed again to keep below the memory limit",
    Reason.BUSY: "their origin did not answer, or no space was free at that moment",
}
_MEANWHILE = {
    Reason.NONE: "not requested yet",
    Reason.STOPPING: "the job is ending",
}
_STANDINGS: Final = {
    Standing.UNSEEN: "never joined",
    Standing.JOINED: "joined",
    Standing.LEFT: "left",
}


@dataclass(frozen=True, slots=True)
class RunLabel:
    """The names of an agent's job and node, and its start time.

    Args:
        started_s: seconds since the epoch.
        clock_s: the same moment by a monotonic clock.
    """

    job: str
    node: str
    started_s: float = field(default_factory=time.time)
    clock_s: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, job_node: str) -> RunLabel:
        """Return the label of an agent that starts now.

        Args:
            job_node: the name of its run directory.
        """
        node = node_name(os.environ)
        return cls(job_node.removesuffix(f".{node}"), node)


@dataclass(frozen=True, slots=True)
class PeerTraffic:
    """Both ends of the data connections to peers, and the results of requests."""

    server: PeerServer
    receiver: PeerReceiver
    sources: Sources

    def add_to(self, peer: reports.PeerFigures) -> reports.PeerFigures:
        """Return the figures of a peer with the traffic in both directions."""
        events = self.sources.events(peer.number)
        served = self.server.traffic()[peer.number]
        fetched = self.receiver.traffic()[peer.number]
        return replace(
            peer,
            fetched_files=events.fetched_files,
            # As the peer counts: packed Files are sent as they are stored.
            fetched_bytes=fetched.bytes,
            fetch_failures=events.failures,
            late=events.late,
            corrupt=events.corrupt,
            fetch_refused=events.refused,
            complaints=events.complaints,
            served_files=served.replies - served.ranges,
            served_ranges=served.ranges,
            served_bytes=served.bytes,
            refused=served.refused,
            malformed=served.malformed + fetched.malformed,
            breaker_opened=events.opened,
            breaker_closed=events.closed,
        )


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """The states of the nodes of the job.

    Args:
        links_altered: how many connections to them were tampered with.
        links: None until this node exchanges Files with others.
    """

    node_list: NodeList
    view: View
    links_altered: int = 0
    links: PeerTraffic | None = None

    def nodes(self) -> list[dict[str, Any]]:
        """Return the standing of each node; nothing if the job has only this one."""
        if len(self.node_list.nodes) == 1:
            return []
        return [
            {
                "number": member.number,
                "name": name,
                "standing": _STANDINGS[self._standing(member)],
                "phase": member.phase.name.lower(),
            }
            for member, name in zip(
                self.view.members, self.node_list.nodes, strict=True
            )
        ]

    def _standing(self, member: Member) -> Standing:
        """Return the state of a node: at the end of the job no node counts as LEFT.

        Others may leave a moment before this node sees that the job is over.
        """
        over = self.view.finished and member.phase is Phase.FINISHED
        return Standing.JOINED if over else member.standing

    def peers(self) -> tuple[reports.PeerFigures, ...]:
        """Return the figures of all other nodes."""
        peers = [
            reports.PeerFigures(node["number"], node["name"], node["standing"])
            for node in self.nodes()
            if node["number"] != self.node_list.number
        ]
        if self.links is None:
            return tuple(peers)
        return tuple(self.links.add_to(peer) for peer in peers)


@dataclass(frozen=True, slots=True)
class AgentStats:
    """All data for a report of this agent.

    Args:
        namespace: None until the Catalog is published.
        stager: None until Files are staged.
        fill: how many background Transfers read the Origin at once.
        plain: why programs run without a Catalog; "" if they do not.
        late_s: how long programs ran before the Catalog was ready.
        cluster: None for a node without peers.
        final_peers: the figures of peers when the job was over, if it is.
        recorder: has the samples of the figures.
        loaders: the figures that loaders of programs have reported.
    """

    setup: Setup
    label: RunLabel
    processes: Processes
    counters: AgentCounters
    namespace: Namespace | None = None
    stager: Stager | None = None
    fill: FillConcurrency | None = None
    plain: str = ""
    late_s: float = 0.0
    cluster: ClusterStats | None = None
    final_peers: tuple[reports.PeerFigures, ...] | None = None
    recorder: Recorder | None = None
    loaders: LoaderRows = field(default_factory=LoaderRows)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the standing of each node; nothing if the job has only this one."""
        return self.cluster.nodes() if self.cluster is not None else []

    def peers(self) -> tuple[reports.PeerFigures, ...]:
        """Return the figures of all other nodes, as they were when the job was over."""
        if self.final_peers is not None:
            return self.final_peers
        return self.cluster.peers() if self.cluster is not None else ()

    def snapshot(self, *, complete: bool = True) -> reports.Snapshot:
        """Return the current figures."""
        waits = self.processes.waits_by_source()
        recorded = self._recorded()  # no sample is later than the end
        return reports.Snapshot(
            run=self._job(complete),
            counters=self.processes.totals(),
            tally=self.tally(),
            tiers=self.tier_figures(),
            processes=self._processes(),
            unslotted=self.processes.unslotted(),
            waits=wait_buckets(waits),
            wait_totals=wait_totals(waits),
            unstaged=self._unstaged(complete=complete),
            changed=self._changed(),
            passed_roots=self._passed_roots(),
            elsewhere=self._elsewhere(),
            **self._share(),
            fill=self._fill(),
            nodes=tuple(node["name"] for node in self.nodes()),
            number=self.cluster.node_list.number if self.cluster is not None else 0,
            peers=self.peers(),
            **self._pool(),
            **recorded,
            errors=self._errors(),
            loader=self.loaders.figures(),
            file_sizes=file_sizes(self._sizes()),
            config=json.loads(self.setup.config_text),
            versions=versions(),
        )

    def _job(self, complete: bool) -> reports.JobFigures:
        namespace, label = self.namespace, self.label
        inventory = namespace.inventory if namespace is not None else None
        return reports.JobFigures(
            job=label.job,
            node=label.node,
            command=self.setup.command,
            started_s=label.started_s,
            seconds=time.monotonic() - label.clock_s,
            datasets=tuple(
                name for dataset in self.setup.datasets for name in dataset.names
            ),
            files=len(inventory) if inventory is not None else 0,
            bytes=inventory.total_bytes if inventory is not None else 0,
            complete=complete,
            plain=self.plain or (UNINDEXED if self.late_s and not self.stager else ""),
            late_s=self.late_s,
            **self._cost(),
            room_bytes=namespace.room_bytes if namespace is not None else 0,
        )

    def tally(self) -> dict[str, int]:
        """Return the counters of this agent."""
        altered = self.cluster.links_altered if self.cluster is not None else 0
        counted = {**self.counters.as_dict(), "links_altered": altered}
        tally = self.stager.table.tally() if self.stager is not None else {}
        return {name: count + tally.get(name, 0) for name, count in counted.items()}

    def tier_figures(self) -> tuple[reports.TierFigures, ...]:
        """Return the capacity and contents of each Tier."""
        if self.stager is None:
            return tuple(
                reports.TierFigures(
                    tier.name, tier.kind, tier.capacity_bytes, 0, 0, True
                )
                for tier in self.setup.tiers
            )
        storage, replicas = self.stager.storage, self.stager.replicas
        found = []
        accounts = storage.ledger.accounts
        for number, (tier, account) in enumerate(
            zip(storage.tiers, accounts, strict=True)
        ):
            figures = reports.TierFigures(
                tier.name,
                tier.kind,
                tier.capacity_bytes,
                account.used_bytes,
                len(replicas.ready_in(number)) + len(storage.packed_in(number)),
                account.in_service,
                *astuple(storage.codecs.get(number, CodecInUse())),
            )
            evicted, size_bytes = account.evicted_files, account.evicted_bytes
            found.append(replace(figures, lru_files=evicted, lru_bytes=size_bytes))
        return tuple(found)

    def _pool(self) -> dict[str, Any]:
        account = self.stager.pool_account if self.stager is not None else None
        if account is None:
            return {}
        return {
            "pool_capacity_bytes": account.capacity_bytes,
            "pool_used_bytes": account.used_bytes,
        }

    def _unstaged(self, *, complete: bool) -> tuple[reports.Unstaged, ...]:
        if self.stager is None:
            return ()
        replicas, policy = self.stager.replicas, self.stager.policy
        texts = _REASONS if complete else _REASONS | _MEANWHILE
        found = [(text, replicas.absent(reason)) for reason, text in texts.items()]
        packed = self.stager.storage.packed_in()
        found = [(text, np.setdiff1d(files, packed)) for text, files in found]
        # Blocks of a File that is kept in part arrive as long as the job runs.
        staging = replicas.in_state(ReplicaState.STAGING)
        staging &= policy.kept_whole | ~policy.units.is_large
        staging[packed] = False
        found.append(("being copied", np.flatnonzero(staging)))
        unstaged = []
        for text, files in found:
            # Only owners count a File, so that all nodes together count it once.
            owned = policy.owned(files)
            size_bytes = int(replicas.sizes[owned].sum())
            examples = self._paths(owned[:EXAMPLES_MAX])
            unstaged.append(reports.Unstaged(text, len(owned), size_bytes, examples))
        return tuple(unstaged)

    def _paths(self, files: Iterable[int]) -> tuple[str, ...]:
        if self.namespace is None:
            return ()
        return tuple(self.namespace.path(int(file)) for file in files)

    def _processes(self) -> tuple[reports.ProcessFigures, ...]:
        """Return the processes by program, including those without a slot."""
        seen = Counter(self.processes.seen())
        if self.recorder is not None:
            for program, count in self.recorder.untracked.items():
                seen[program, False] += count
        return tuple(
            reports.ProcessFigures(program, active, count)
            for (program, active), count in sorted(seen.items())
        )

    def _cost(self) -> dict[str, Any]:
        """Return the agent's resource use, and the observed reads of programs."""
        cpu_s, memory_bytes = own_cost()
        recorder, status = self.recorder, self.processes.exit_status()
        return {
            "exit_status": reports.UNKNOWN_STATUS if status is None else status,
            "startup_s": recorder.startup_s if recorder is not None else 0.0,
            "agent_cpu_s": cpu_s,
            "agent_rss_max_bytes": memory_bytes,
            "read_calls_bytes": recorder.read_calls_bytes if recorder else 0,
        }

    def _recorded(self) -> dict[str, Any]:
        if self.recorder is None or self.namespace is None:
            return {}
        return {
            "moments": self.recorder.moments(),
            "slowest": tuple(
                reports.SlowCopy(self.namespace.path(file), ns / 1e9, size_bytes)
                for file, size_bytes, ns in self.recorder.slowest
            ),
        }

    def _errors(self) -> tuple[reports.ErrorCount, ...]:
        if self.stager is None:
            return ()
        return tuple(
            reports.ErrorCount(
                errno.errorcode.get(code, str(code)),
                step.name.lower(),
                count,
                *self._paths([file]),
            )
            for (code, step), (count, file) in self.stager.errors.items()
        )

    def _sizes(self) -> npt.NDArray[np.uint64]:
        inventory = self.namespace.inventory if self.namespace is not None else None
        return inventory.sizes if inventory is not None else np.zeros(0, np.uint64)

    def _share(self) -> dict[str, Any]:
        """Return this node's share, the missing part of it, and the failures."""
        if self.stager is None or self.namespace is None:
            return {}
        share, sizes = self.stager.share, self.stager.replicas.sizes
        copies_short = 0
        if self.setup.config.peers.mode == Mode.REPLICATE.value:
            copies_short = len(sizes) - len(share.unplaced) - len(share.partly_placed)
            copies_short -= len(share.kept)
        return {
            "share": reports.ShareFigures(
                kept_files=len(share.kept),
                ready_files=len(share.ready),
                ready_bytes=int(sizes[share.ready].sum()),
                unplaced_files=len(share.unplaced),
                unplaced_bytes=int(sizes[share.unplaced].sum()),
                copies_short=copies_short,
                part_files=len(share.kept_in_part),
                part_bytes=share.part_bytes,
                partly_held_files=len(share.partly_placed),
                partly_left_bytes=share.left_bytes,
            ),
            "lacking": tuple(
                reports.Unstaged(_REASONS[reason], lack.files, lack.bytes)
                for reason, lack in share.lacking.items()
            ),
            "failures": tuple(
                f"{self.namespace.path(file)}: {reason}"
                for file, reason in self.stager.failures.items()
                if self.stager.replicas.ready_tier(file) is None
                and file not in self.stager.changed
            ),
        }

    def _fill(self) -> reports.FillFigures:
        fill = self.fill
        if fill is None or not self.setup.config.fill.enabled:
            return reports.FillFigures()
        return reports.FillFigures(fill.home, fill.home, fill.is_measured)

    def _changed(self) -> tuple[str, ...]:
        if self.stager is None or self.namespace is None:
            return ()
        return tuple(self.namespace.path(f) for f in self.stager.changed[:CHANGED_MAX])

    def _elsewhere(self) -> tuple[reports.Elsewhere, ...]:
        """Return the names of datasets that programs use and the Catalog lacks."""
        if self.namespace is None:
            return ()
        found: dict[tuple[str, ...], reports.Elsewhere] = {}
        for dev, ino, path in self.processes.elsewhere():
            for root in self.namespace.roots:
                alias = root.named_by(path, dev, ino)
                if alias is not None:
                    one = (shown(root.path), shown(alias), shown(path))
                    found.setdefault(one[:2], reports.Elsewhere(*one))
        return tuple(found.values())

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
