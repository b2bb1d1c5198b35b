"""Figures of fictitious nodes and jobs, for tests of reports."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from monarch.metrics import AgentCounters
from monarch.native import COUNTERS
from monarch.report import JobFigures, PeerFigures, ProcessFigures, Snapshot
from monarch.report import TierFigures as Tier

MIB = 1 << 20
FOUR = ("node0", "node1", "node2", "node3")
JOB = JobFigures(
    job="7.0",
    node="n1",
    command=("python", "train.py"),
    started_s=1e9,
    seconds=60.0,
    datasets=("/pfs/imagenet",),
    files=2000,
    bytes=200 * MIB,
)


def snapshot(
    counts: Mapping[str, int] | None = None,
    tally: Mapping[str, int] | None = None,
    **changes: Any,
) -> Snapshot:
    """Return the figures of a node alone: 200 MiB staged, 4 processes."""
    counters = dict.fromkeys((spec.name for spec in COUNTERS), 0) | dict(counts or {})
    plain = Snapshot(
        run=JOB,
        counters=counters,
        tally=AgentCounters(**(tally or {})).as_dict(),
        tiers=(Tier("ram", "ram", 1024 * MIB, 200 * MIB, 2000, True),),
        processes=(ProcessFigures("/usr/bin/python3", True, 4),),
        unslotted=0,
        waits=(),
        wait_totals=(),
        unstaged=(),
    )
    return replace(plain, **changes)


def node(number: int, names: tuple[str, ...], **changes: Any) -> Snapshot:
    """Return the figures of one node of several: each has served all the others."""
    others = [other for other in range(len(names)) if other != number]
    counts = {
        "opens_hit_tier0": 4000,
        "bytes_hit_tier0": 400 * MIB,
        "opens_peer_hit": 100 * len(others),
        "bytes_peer_hit": 10 * MIB * len(others),
        "opens_miss": 100,
        "bytes_miss": 10 * MIB,
    }
    tally = {
        "origin_read_bytes": 10 * MIB,
        "staged_files": 100,
        "staged_bytes": 10 * MIB,
        "busy_ns": 10**9,
        "origin_busy_ns": 10**9,
    }
    peers = tuple(
        PeerFigures(
            other,
            names[other],
            "joined",
            fetched_files=100,
            fetched_bytes=10 * MIB,
            served_files=100,
            served_bytes=10 * MIB,
        )
        for other in others
    )
    run = replace(JOB, node=names[number])
    told = snapshot(counts, tally, run=run, nodes=names, number=number, peers=peers)
    return replace(told, **changes)


def many(count: int) -> tuple[str, ...]:
    """Return the names of the nodes of a large cluster."""
    return tuple(f"gpu-{number:04d}.cluster.example.org" for number in range(count))
