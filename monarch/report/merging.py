"""Merges the reports of the nodes of a job: totals, and a row for each node."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any, Final

from monarch.report.loaders import together
from monarch.report.model import (
    OTHERS,
    UNKNOWN_STATUS,
    ErrorCount,
    FillFigures,
    JobFigures,
    Moment,
    ProcessFigures,
    Report,
    ShareFigures,
    SlowCopy,
    Snapshot,
    TierFigures,
    Unstaged,
    WaitBucket,
    WaitTotal,
    ratio,
)
from monarch.report.node_report import (
    NodeReportError,
    decode_node_report,
    listed_peers,
    shorter,
)
from monarch.report.series import POINTS_MAX, summed, thinned
from monarch.report.summing import summarize

CHANGED_MAX: Final = 20
EXAMPLES_MAX: Final = 3
ERRORS_MAX: Final = 16
SLOWEST_MAX: Final = 10

_NO_REPORT: Final = {
    "never joined": "never joined",
    "left": "left before the job ended",
}


def merge(own: Snapshot, reports: Mapping[int, bytes]) -> Report:
    """Return the report of the whole job.

    Args:
        own: the figures of this node.
        reports: the reports of the other nodes, by node number.
    """
    if len(own.nodes) < 2:
        return summarize(own)
    # The peers of this node are limited like those of the others.
    found = {own.number: replace(own, peers=shorter(own.peers, listed_peers(own)))}
    reason = {peer.number: _NO_REPORT.get(peer.standing, "") for peer in own.peers}
    for number in set(range(len(own.nodes))) & set(reports) - {own.number}:
        try:
            found[number] = decode_node_report(reports[number], number, own)
        except NodeReportError as error:
            reason[number] = f"its report is not valid: {error}"
    parts = [found[number] for number in sorted(found)]
    seen = _seen(parts)
    rows = [
        _node_row(found[number])
        if number in found
        else _missing_row(number, name, reason.get(number, ""), seen)
        for number, name in enumerate(own.nodes)
    ]
    total = {**summarize(_total(own, parts))}
    del total["node"], total["peers"]
    exact = [name for name in total["exact"] if name != "peers"]
    return {
        **total,
        "exact": [*exact, "exchange"],
        "nodes": rows,
        "exchange": _exchange(parts),
        "imbalance": _imbalance(rows),
        "breakers": _breakers(parts, own.nodes),
    }


def _total(own: Snapshot, parts: Sequence[Snapshot]) -> Snapshot:
    """Return one snapshot with the sums of all nodes."""
    runs = [part.run for part in parts]
    started_s = min(run.started_s for run in runs)
    run = replace(
        own.run,
        started_s=started_s,
        seconds=max(run.started_s + run.seconds for run in runs) - started_s,
        files=max(run.files for run in runs),
        bytes=max(run.bytes for run in runs),
        room_bytes=max(run.room_bytes for run in runs),
        complete=all(run.complete for run in runs),
        plain=own.run.plain if all(run.plain for run in runs) else "",
        exit_status=_exit_status(runs),
        startup_s=max(run.startup_s for run in runs),
        agent_cpu_s=sum(run.agent_cpu_s for run in runs),
        agent_rss_max_bytes=max(run.agent_rss_max_bytes for run in runs),
        read_calls_bytes=sum(run.read_calls_bytes for run in runs),
    )
    changed = dict.fromkeys(path for part in parts for path in part.changed)
    return Snapshot(
        run=run,
        counters=_sums(part.counters for part in parts),
        tally=_sums(part.tally for part in parts),
        tiers=_tiers(parts),
        processes=_processes(parts),
        unslotted=sum(part.unslotted for part in parts),
        waits=_waits(parts),
        wait_totals=_wait_totals(parts),
        pool_capacity_bytes=sum(part.pool_capacity_bytes for part in parts),
        pool_used_bytes=sum(part.pool_used_bytes for part in parts),
        moments=_moments(parts, run.started_s),
        slowest=_slowest(parts),
        errors=_errors(parts),
        loader=together(part.loader for part in parts),
        file_sizes=own.file_sizes,
        config=own.config,
        versions=own.versions,
        unstaged=_unstaged(part.unstaged for part in parts),
        share=_share(parts),
        fill=_fill(parts),
        lacking=_unstaged(part.lacking for part in parts),
        failures=tuple(failure for part in parts for failure in part.failures),
        changed=tuple(changed)[:CHANGED_MAX],
        passed_roots=tuple(
            dict.fromkeys(root for part in parts for root in part.passed_roots)
        ),
        elsewhere=tuple(dict.fromkeys(one for part in parts for one in part.elsewhere)),
        nodes=own.nodes,
        number=own.number,
    )


def _exit_status(runs: Sequence[JobFigures]) -> int:
    """Return the highest known exit status: that of a failed program, if any."""
    known = [run.exit_status for run in runs if run.exit_status != UNKNOWN_STATUS]
    return max(known, default=UNKNOWN_STATUS)


def _fill(parts: Sequence[Snapshot]) -> FillFigures:
    """Return the range over the nodes with background fill."""
    fills = [part.fill for part in parts if part.fill.least]
    if not fills:
        return FillFigures()
    return FillFigures(
        least=min(fill.least for fill in fills),
        most=max(fill.most for fill in fills),
        found=any(fill.found for fill in fills),
    )


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _tiers(parts: Sequence[Snapshot]) -> tuple[TierFigures, ...]:
    """Add up Tiers of the same number, like the counters of hits."""
    total = []
    for row in zip_longest(*(part.tiers for part in parts)):
        tiers = [tier for tier in row if tier is not None]
        total.append(
            TierFigures(
                "/".join(dict.fromkeys(tier.name for tier in tiers)),
                "/".join(dict.fromkeys(tier.kind for tier in tiers)),
                sum(tier.capacity_bytes for tier in tiers),
                sum(tier.used_bytes for tier in tiers),
                sum(tier.files for tier in tiers),
                all(tier.in_service for tier in tiers),
                "/".join(dict.fromkeys(tier.codec for tier in tiers)),
                tiers[0].expected_ratio,
                tiers[0].why,
                sum(tier.lru_files for tier in tiers),
                sum(tier.lru_bytes for tier in tiers),
            )
        )
    return tuple(total)


def _processes(parts: Sequence[Snapshot]) -> tuple[ProcessFigures, ...]:
    counts: Counter[tuple[str, bool]] = Counter()
    for one in (process for part in parts for process in part.processes):
        counts[one.program, one.active] += one.count
    return tuple(
        ProcessFigures(program, active, count)
        for (program, active), count in sorted(counts.items())
    )


def _waits(parts: Sequence[Snapshot]) -> tuple[WaitBucket, ...]:
    counts: Counter[tuple[int, int, str]] = Counter()
    for bucket in (bucket for part in parts for bucket in part.waits):
        counts[bucket.from_ns, bucket.to_ns, bucket.source] += bucket.count
    return tuple(
        WaitBucket(first, last, count, source)
        for (first, last, source), count in sorted(counts.items())
    )


def _wait_totals(parts: Sequence[Snapshot]) -> tuple[WaitTotal, ...]:
    totals: Counter[str] = Counter()
    for wait in (wait for part in parts for wait in part.wait_totals):
        totals[wait.source] += wait.total_ns
    return tuple(WaitTotal(source, total_ns) for source, total_ns in totals.items())


def _moments(parts: Sequence[Snapshot], started_s: float) -> tuple[Moment, ...]:
    late = [(part.run.started_s - started_s, part.moments) for part in parts]
    return thinned(summed(late), POINTS_MAX)


def _slowest(parts: Sequence[Snapshot]) -> tuple[SlowCopy, ...]:
    copies = (copy for part in parts for copy in part.slowest)
    return tuple(sorted(copies, key=lambda copy: -copy.seconds)[:SLOWEST_MAX])


def _errors(parts: Sequence[Snapshot]) -> tuple[ErrorCount, ...]:
    """Add up by errno and step, the most frequent first."""
    counts: dict[tuple[str, str], ErrorCount] = {}
    for error in (error for part in parts for error in part.errors):
        key = error.errno, error.operation
        known = counts.get(key, replace(error, count=0))
        counts[key] = replace(known, count=known.count + error.count)
    return tuple(sorted(counts.values(), key=lambda one: -one.count)[:ERRORS_MAX])


def _share(parts: Sequence[Snapshot]) -> ShareFigures:
    """Add up the Files of the nodes; Files that fit no node are the same on all."""
    shares = [part.share for part in parts]
    return ShareFigures(
        kept_files=sum(share.kept_files for share in shares),
        ready_files=sum(share.ready_files for share in shares),
        ready_bytes=sum(share.ready_bytes for share in shares),
        unplaced_files=max(share.unplaced_files for share in shares),
        unplaced_bytes=max(share.unplaced_bytes for share in shares),
        copies_short=sum(share.copies_short for share in shares),
        part_files=sum(share.part_files for share in shares),
        part_bytes=sum(share.part_bytes for share in shares),
        partly_held_files=max(share.partly_held_files for share in shares),
        partly_left_bytes=max(share.partly_left_bytes for share in shares),
    )


def _unstaged(lists: Iterable[Sequence[Unstaged]]) -> tuple[Unstaged, ...]:
    """Add up by reason."""
    sums: dict[str, Unstaged] = {}
    for one in chain.from_iterable(lists):
        known = sums.get(one.reason, Unstaged(one.reason, 0, 0))
        sums[one.reason] = Unstaged(
            one.reason,
            known.files + one.files,
            known.bytes + one.bytes,
            (known.examples + one.examples)[:EXAMPLES_MAX],
        )
    return tuple(sums.values())


# -- nodes ------------------------------------------------------------------------

_SOURCE_KINDS: Final = ("hit", "peer", "packed", "miss", "origin", "blocks", "outside")


def _node_row(part: Snapshot) -> dict[str, Any]:
    """Return the figures of one node; the totals of the report are their sums."""
    report = summarize(part)
    opens = {kind: [0, 0] for kind in _SOURCE_KINDS}
    for source in report["sources"]:
        opens[source["kind"]][0] += source["opens"]
        opens[source["kind"]][1] += source["opened_bytes"]
    return {
        "number": part.number,
        "name": part.nodes[part.number],
        "reported": True,
        "seconds": part.run.seconds,
        "plain": part.run.plain,
        "active": report["coverage"]["active"],
        "processes": report["coverage"]["processes"],
        "ready_share": report["headline"]["ready_share"],
        "cpu_s": part.run.agent_cpu_s,
        "opens": report["hits"]["opens"],
        "opened_bytes": report["hits"]["opened_bytes"],
        "hit_opens": opens["hit"][0],
        "hit_bytes": opens["hit"][1],
        "peer_hit_opens": opens["peer"][0],
        "peer_hit_bytes": opens["peer"][1],
        "packed_opens": opens["packed"][0],
        "packed_bytes": opens["packed"][1],
        "miss_opens": opens["miss"][0],
        "miss_bytes": opens["miss"][1],
        "origin_opens": opens["origin"][0],
        "origin_bytes": opens["origin"][1],
        "block_opens": opens["blocks"][0],
        "block_bytes": opens["blocks"][1],
        "origin_read_bytes": report["origin"]["agent_read_bytes"],
        "staged_files": report["staging"]["files"],
        "staged_bytes": report["staging"]["bytes"],
        **_exchange([part]),
        "capacity_bytes": sum(tier.capacity_bytes for tier in part.tiers),
        "used_bytes": sum(tier.used_bytes for tier in part.tiers),
        "tiers": report["tiers"],
        "transit": report["transit"],
        "adopted_files": report["staging"]["adopted_files"],
        "unstaged": report["unstaged"],
        "share": report["share"],
        "lacking": report["lacking"],
        "failures": report["failures"],
        "fallbacks": report["fallbacks"],
        "survived": report["survived"],
        "peers": report["peers"],
    }


def _seen(parts: Sequence[Snapshot]) -> dict[str, Counter[int]]:
    """Return the transfers of all nodes with each node, by its number."""
    names = "fetched_files", "fetched_bytes", "served_files", "served_bytes"
    seen = {name: Counter[int]() for name in names}
    for peer in (peer for part in parts for peer in part.peers):
        for name in names:
            seen[name][peer.number] += getattr(peer, name)
    return seen


def _missing_row(
    number: int, name: str, reason: str, seen: Mapping[str, Counter[int]]
) -> dict[str, Any]:
    """Return the row of a node without a report, from the figures of its peers."""
    return {
        "number": number,
        "name": name,
        "reported": False,
        "why": reason or "its report did not arrive in time",
        "fetched_from_it_files": seen["fetched_files"][number],
        "fetched_from_it_bytes": seen["fetched_bytes"][number],
        "served_to_it_files": seen["served_files"][number],
        "served_to_it_bytes": seen["served_bytes"][number],
    }


def _exchange(parts: Sequence[Snapshot]) -> dict[str, int]:
    peers = [peer for part in parts for peer in part.peers]
    return {
        "fetched_files": sum(peer.fetched_files for peer in peers),
        "fetched_bytes": sum(peer.fetched_bytes for peer in peers),
        "served_files": sum(peer.served_files for peer in peers),
        "served_ranges": sum(peer.served_ranges for peer in peers),
        "served_bytes": sum(peer.served_bytes for peer in peers),
    }


def _imbalance(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the ratio of the bytes served by the busiest node to the mean."""
    reported = [row for row in rows if row["reported"]]
    busiest = max(reported, key=lambda row: row["served_bytes"])
    mean = sum(row["served_bytes"] for row in reported) / len(reported)
    return {
        "served_max_over_mean": ratio(busiest["served_bytes"], mean),
        "busiest": busiest["number"],
    }


def _breakers(parts: Sequence[Snapshot], nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the nodes that suspended peers, with these peers and the counts."""
    return [
        {
            "node": part.number,
            "peer": peer.number,
            "peer_name": peer.name if peer.number == OTHERS else nodes[peer.number],
            "opened": peer.breaker_opened,
            "closed": peer.breaker_closed,
        }
        for part in parts
        for peer in part.peers
        if peer.breaker_opened
    ]
