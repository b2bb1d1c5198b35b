"""Computes the report of a snapshot: sums, ratios and quantiles."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from monarch import __version__
from monarch.metrics import TEXTS
from monarch.report.causes import CAUSES
from monarch.report.headline import headline
from monarch.report.large import large_summary
from monarch.report.loaders import loader_summary
from monarch.report.model import (
    BLOCKS,
    POOL,
    SCHEMA,
    UNKNOWN_STATUS,
    Report,
    SlowCopy,
    Snapshot,
    WaitBucket,
    WaitTotal,
    plain,
    ratio,
)
from monarch.report.packed import packed_summary
from monarch.report.series import columns, passes

# Counters of the agent for handled problems.
_TROUBLES = (
    "transfers_failed",
    "copies_refused",
    "adoptions_refused",
    "files_changed",
    "files_written_elsewhere",
    "tiers_full",
    "tiers_lost",
    "replicas_lost",
    "evicted_files",
    "peer_failures",
    "rehomed_files",
    "origin_instead_files",
    "transit_full",
    "reads_without_token",
    "links_altered",
    "agent_errors",
)
_ELSEWHERE_TEXT = (
    "opens in a sample used an unknown path of a dataset; add the path to `aliases`"
)


def summarize(snapshot: Snapshot) -> Report:
    """Return the report of a snapshot as plain JSON."""
    sources = _sources(snapshot)
    hits, large = _hits(sources), large_summary(snapshot.counters)
    return {
        "schema": SCHEMA,
        "exact": [
            *("headline.origin_bytes", "reads", "staging", "origin.agent_read_bytes"),
            *("tiers", "agent", "peers"),
        ],
        "opened_sizes": [
            *("headline.origin_opened_bytes", "sources", "hits"),
            "origin.programs_opened_bytes",
        ],
        "estimates": ["headline.time_saved", "passes"],
        "tool": {"name": "monarch-staging", "version": __version__},
        "node": _node(snapshot),
        "peers": [plain(peer) for peer in snapshot.peers],
        "headline": headline(snapshot, hits, large),
        "run": _run(snapshot),
        "coverage": _coverage(snapshot),
        "sources": sources,
        "hits": hits,
        "reads": large,
        "waits": _waits(snapshot),
        "staging": _staging(snapshot),
        "origin": _origin(snapshot, hits),
        "metadata": _metadata(snapshot),
        "tiers": [plain(tier) for tier in snapshot.tiers],
        "transit": _transit(snapshot),
        "packed": packed_summary(snapshot.tally),
        "series": columns(snapshot.moments, snapshot.tiers),
        "passes": passes(snapshot.moments, snapshot.run.files),
        "slowest": [_slow(copy) for copy in snapshot.slowest],
        "errors": [plain(one) for one in snapshot.errors],
        "file_sizes": [plain(one) for one in snapshot.file_sizes],
        "opens_for_writing": snapshot.counters["opens_write"],
        "unstaged": [_jsonable(plain(one)) for one in snapshot.unstaged if one.files],
        "share": plain(snapshot.share),
        "lacking": [_jsonable(plain(one)) for one in snapshot.lacking],
        "failures": list(snapshot.failures),
        "fallbacks": _fallbacks(snapshot),
        "survived": _survived(snapshot),
        "changed": list(snapshot.changed),
        "passed_roots": list(snapshot.passed_roots),
        "loader": loader_summary(snapshot.loader),
        "elsewhere": [plain(one) for one in snapshot.elsewhere],
        "counters": dict(snapshot.counters),
        "agent": dict(snapshot.tally),
    }


def quantile(buckets: Sequence[WaitBucket], part: float) -> float:
    """Return the quantile of the waits in seconds; `part` is from 0 to 1."""
    rest = part * sum(bucket.count for bucket in buckets)
    for bucket in buckets:
        if bucket.count and rest <= bucket.count:
            span = bucket.to_ns - bucket.from_ns
            return (bucket.from_ns + span * rest / bucket.count) / 1e9
        rest -= bucket.count
    return 0.0


def _node(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "number": snapshot.number,
        "name": snapshot.run.node,
        "nodes": max(1, len(snapshot.nodes)),
    }


def _run(snapshot: Snapshot) -> dict[str, Any]:
    """Return the figures of the job; figures that are not known yet are null."""
    run = snapshot.run
    ended_s = run.started_s + run.seconds
    return {
        **_jsonable(plain(run)),
        "read_calls_bytes": run.read_calls_bytes or None,
        "ended_s": ended_s if run.complete else None,
        "exit_status": None if run.exit_status == UNKNOWN_STATUS else run.exit_status,
        "config": snapshot.config,
        "versions": snapshot.versions,
    }


def _slow(copy: SlowCopy) -> dict[str, Any]:
    return {**plain(copy), "source": "origin"}


def _coverage(snapshot: Snapshot) -> dict[str, Any]:
    """Return the processes, including those that could not be tracked."""
    active = sum(p.count for p in snapshot.processes if p.active)
    tracked = sum(p.count for p in snapshot.processes)
    return {
        "active": active,
        "processes": tracked + snapshot.unslotted,
        "untracked": snapshot.unslotted,
        "unslotted": snapshot.unslotted,
        "programs": [plain(p) for p in snapshot.processes],
        "inactive": [
            {"program": p.program, "count": p.count}
            for p in snapshot.processes
            if not p.active
        ],
    }


def _sources(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return opens and sizes by their source at the first look-up."""
    counters = snapshot.counters
    rows = [
        _row(tier.name, "hit", counters, f"hit_tier{number}")
        for number, tier in enumerate(snapshot.tiers)
    ]
    pool = _pool(len(rows), counters)
    if snapshot.nodes or snapshot.pool_capacity_bytes or pool["opens"]:
        rows.append(pool)
    if snapshot.nodes or counters["opens_peer_hit"]:
        rows.append(_row("a peer, while the open waited", "peer", counters, "peer_hit"))
    decoded = _row("decoded while the open waited", "packed", counters, "unpacked")
    if decoded["opens"] or decoded["opened_bytes"] or snapshot.tally["packed_files"]:
        rows.append(decoded)
    rows.append(_row("staged while the open waited", "miss", counters, "miss"))
    rows.append(_less_blocks(_row("origin", "origin", counters, "origin"), counters))
    if counters["origin_blocks"] or counters["bytes_blocks"]:
        rows.append(_blocks(counters))
    passed = counters["opens_outside"] + counters["opens_write"]
    rows.append(
        {
            "source": "pass-through",
            "kind": "outside",
            "opens": passed,
            "opened_bytes": 0,
        }
    )
    return rows


def _pool(tiers: int, counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the row of the pool, whose counters follow those of the Tiers."""
    opens = size = 0
    while f"opens_hit_tier{tiers}" in counters:
        opens += counters[f"opens_hit_tier{tiers}"]
        size += counters[f"bytes_hit_tier{tiers}"]
        tiers += 1
    row = {"source": POOL, "kind": "hit"}
    return {**row, "opens": opens, "opened_bytes": size}


def _less_blocks(row: dict[str, Any], counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the row of the origin without opens that are read by Block."""
    opens = row["opens"] - counters["origin_blocks"]
    return {
        **row,
        "opens": opens,
        "opened_bytes": row["opened_bytes"] - counters["bytes_blocks"],
    }


def _blocks(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the row of large Files whose reads are served by Block."""
    row = {"source": BLOCKS, "kind": "blocks"}
    size = counters["bytes_blocks"]
    return {**row, "opens": counters["origin_blocks"], "opened_bytes": size}


def _row(
    source: str, kind: str, counters: Mapping[str, int], name: str
) -> dict[str, Any]:
    opens, size = counters[f"opens_{name}"], counters[f"bytes_{name}"]
    return {"source": source, "kind": kind, "opens": opens, "opened_bytes": size}


def _hits(sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the shares of opens, all of the same total.

    No share includes opens of large Files that are read by Block: they never wait, and
    their Files are not ready.
    """
    known = [row for row in sources if row["kind"] not in ("blocks", "outside")]
    opens = sum(row["opens"] for row in known)
    size = sum(row["opened_bytes"] for row in known)
    hit = [row for row in known if row["kind"] == "hit"]
    peer = [row for row in known if row["kind"] == "peer"]
    local = [row for row in known if row["kind"] != "origin"]
    origin = [row for row in known if row["kind"] == "origin"]
    return {
        "opens": opens,
        "opened_bytes": size,
        "by_opens": ratio(sum(row["opens"] for row in hit), opens),
        "by_bytes": ratio(sum(row["opened_bytes"] for row in hit), size),
        "peer_by_opens": ratio(sum(row["opens"] for row in peer), opens),
        "peer_by_bytes": ratio(sum(row["opened_bytes"] for row in peer), size),
        "local_by_opens": ratio(sum(row["opens"] for row in local), opens),
        "local_by_bytes": ratio(sum(row["opened_bytes"] for row in local), size),
        "origin_opens": sum(row["opens"] for row in origin),
        "origin_opened_bytes": sum(row["opened_bytes"] for row in origin),
    }


def _waits(snapshot: Snapshot) -> dict[str, Any]:
    """Return quantiles, limited by the exact sum because buckets are coarse."""
    buckets = _all_sources(snapshot.waits)
    count = sum(bucket.count for bucket in buckets)
    total_s = sum(wait.total_ns for wait in snapshot.wait_totals) / 1e9

    def bounded(part: float) -> float:
        # The total of the waits that are at least this long cannot exceed the sum.
        longer = count - math.ceil(part * count) + 1
        return min(quantile(buckets, part), total_s / longer)

    return {
        "count": count,
        "total_s": total_s,
        "p50_s": total_s if count == 1 else bounded(0.50),
        "p95_s": total_s if count == 1 else bounded(0.95),
        "p99_s": total_s if count == 1 else bounded(0.99),
        "whole": snapshot.counters["whole_waits"],
        "whole_served": snapshot.counters["whole_served"],
        "by_source": [_waits_for(snapshot, total) for total in snapshot.wait_totals],
    }


def _waits_for(snapshot: Snapshot, total: WaitTotal) -> dict[str, Any]:
    buckets = [b for b in snapshot.waits if b.source == total.source and b.count]
    return {
        "source": total.source,
        "count": sum(bucket.count for bucket in buckets),
        "total_s": total.total_ns / 1e9,
        "buckets": [
            {"from_s": b.from_ns / 1e9, "to_s": b.to_ns / 1e9, "count": b.count}
            for b in buckets
        ],
    }


def _all_sources(waits: Sequence[WaitBucket]) -> list[WaitBucket]:
    """Return the histogram of the waits for all sources, in order."""
    counts: Counter[tuple[int, int]] = Counter()
    for bucket in waits:
        counts[bucket.from_ns, bucket.to_ns] += bucket.count
    return [WaitBucket(*edges, count) for edges, count in sorted(counts.items())]


def _staging(snapshot: Snapshot) -> dict[str, Any]:
    tally = snapshot.tally
    busy_s = tally["busy_ns"] / 1e9
    copied = tally["staged_bytes"] + tally["peer_bytes"]
    return {
        "files": tally["staged_files"],
        "bytes": tally["staged_bytes"],
        "peer_files": tally["peer_files"],
        "peer_bytes": tally["peer_bytes"],
        "hinted_files": tally["hinted_files"],
        "hinted_bytes": tally["hinted_bytes"],
        "shared_files": tally["shared_files"],
        "shared_bytes": tally["shared_bytes"],
        "adopted_files": tally["adopted_files"],
        "adopted_bytes": tally["adopted_bytes"],
        "busy_s": busy_s,
        "bytes_per_s": ratio(copied, busy_s),
        "concurrency": plain(snapshot.fill) if snapshot.fill.least else None,
    }


def _origin(snapshot: Snapshot, hits: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "agent_read_bytes": snapshot.tally["origin_read_bytes"],
        "programs_opened_bytes": hits["origin_opened_bytes"],
    }


def _metadata(snapshot: Snapshot) -> dict[str, Any]:
    counters = snapshot.counters
    answered = counters["stats_answered"] + counters["stats_descriptor"]
    answered += counters["absent_answered"]
    return {
        "answered": answered,
        "listings": counters["listings_answered"],
        "origin": counters["stats_origin"],
        "ratio": ratio(answered, answered + counters["stats_origin"]),
    }


def _transit(snapshot: Snapshot) -> dict[str, Any]:
    """Return the use of the pool for Files that other nodes keep."""
    return {
        "capacity_bytes": snapshot.pool_capacity_bytes,
        "used_bytes": snapshot.pool_used_bytes,
        "files": snapshot.tally["transit_files"],
        "bytes": snapshot.tally["transit_bytes"],
    }


def _fallbacks(snapshot: Snapshot) -> list[dict[str, Any]]:
    rows = [(cause.counter, cause.whole_text) for cause in CAUSES]
    rows.append(("opens_elsewhere", _ELSEWHERE_TEXT))
    counters = Counter(snapshot.counters)
    counters["origin_large"] -= counters["origin_blocks"]  # not fallbacks
    counts = [(name, text, counters[name]) for name, text in rows]
    return [{"cause": n, "text": t, "opens": count} for n, t, count in counts if count]


def _survived(snapshot: Snapshot) -> list[dict[str, Any]]:
    rows = [(name, TEXTS[name], snapshot.tally[name]) for name in _TROUBLES]
    rows += [
        (cause.counter, cause.whole_text, snapshot.counters[cause.counter])
        for cause in CAUSES
        if cause.trouble
    ]
    return [{"what": n, "text": t, "count": count} for n, t, count in rows if count]


def _jsonable(value: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in value.items()}
