"""A report for people: one headline sentence, then tables that fit a terminal."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from monarch.metrics import UNITS
from monarch.report.format import folded, many, percent, room_advice
from monarch.report.model import POOL, Report
from monarch.report.nodes import node_lines, peer_lines, where
from monarch.units import format_count, format_duration, format_rate, format_size

_INACTIVE_MAX = 10
_CHANGED_MAX = 10
_NOTE = (
    "  Opens count with the sizes of the files opened; reads on them are not seen.\n"
    "  Bytes staged and read from the origin by Monarch are exact."
)


def render(report: Report) -> str:
    """Return the report as text; the same report gives the same text."""
    parts = [
        headline(report),
        *_inactive(report),
        _sources(report),
        *_lines(report),
        *tier_lines(report),
        *room_advice(report["run"]["bytes"], report["run"].get("room_bytes", 0)),
        *node_lines(report),
        *peer_lines(report),
        *unstaged_lines(report),
        *_passed(report),
        *fallback_lines(report),
        *survived_lines(report),
        _NOTE,
    ]
    lines = "\n".join(parts).split("\n")
    if report.get("nodes") or report.get("peers"):
        lines = [part for line in lines for part in folded(line)]
    return "\n".join(lines) + "\n"


def headline(report: Report) -> str:
    """Return the one sentence that says whether it worked."""
    run, cover, hits = report["run"], report["coverage"], report["hits"]
    start = f"monarch: active in {format_count(cover['active'])} of "
    start += f"{many(cover['processes'], 'processes')}{_extent(report)}; "
    if run["plain"]:
        return f"{start}nothing was staged: {run['plain']}."
    if not hits["opens"]:
        return f"{start}no file of {', '.join(run['datasets'])} was opened."
    names = [tier["name"] for tier in report["tiers"]]
    share = hits["local_by_bytes"]
    part = f"{percent(share)} of {format_size(hits['opened_bytes'])}"
    if share is None:
        part = f"{percent(hits['local_by_opens'])} of {many(hits['opens'], 'opens')}"
    read = format_size(report["origin"]["agent_read_bytes"])
    return f"{start}{part} came from {' and '.join(names)}, staged by reading {read}."


def _extent(report: Report) -> str:
    """Return of how many nodes the figures are, unless there is but one."""
    if nodes := report.get("nodes"):
        reported = sum(row["reported"] for row in nodes)
        missing = f"{format_count(reported)} of " if reported < len(nodes) else ""
        return f" on {missing}{many(len(nodes), 'nodes')}"
    node = report.get("node", {"nodes": 1})
    if node["nodes"] == 1:
        return ""
    return f" on {node['name']}, one of {many(node['nodes'], 'nodes')}"


def _inactive(report: Report) -> list[str]:
    rows = report["coverage"]["inactive"]
    lines = [
        f"  not active in {row['program'] or 'an unknown program'} "
        f"({format_count(row['count'])}): "
        "static, set-uid, excluded, of other rights or switched off"
        for row in rows[:_INACTIVE_MAX]
    ]
    if len(rows) > _INACTIVE_MAX:
        rest = many(len(rows) - _INACTIVE_MAX, "more programs")
        lines.append(f"  not active in {rest}")
    if unslotted := report["coverage"]["unslotted"]:
        lines.append(
            f"  {many(unslotted, 'more processes')} found no slot: opens are counted, "
            "the processes are not"
        )
    return lines


def _sources(report: Report) -> str:
    lines = [f"  {'source':<30}{'opens':>12}{'opened bytes':>15}"]
    for row in report["sources"]:
        if row["source"] == POOL and not row["opens"]:
            continue
        size = format_size(row["opened_bytes"])
        if row["kind"] == "outside":
            size = "-"
        lines.append(f"  {row['source']:<30}{format_count(row['opens']):>12}{size:>15}")
    return "\n".join(lines)


def _lines(report: Report) -> list[str]:
    metadata = report["metadata"]
    lines = [*_hits(report["hits"]), *_waits(report["waits"])]
    lines += _staged(report["staging"], " per node" if "nodes" in report else "")
    lines.append(_origin(report["origin"]))
    if metadata["ratio"] is not None:
        lines.append(
            "  stat calls answered without the origin: "
            f"{format_count(metadata['answered'])} ({percent(metadata['ratio'])})"
        )
    return lines


def _hits(hits: dict[str, Any]) -> list[str]:
    if not hits["opens"]:
        return []
    line = f"  ready when opened: {percent(hits['by_opens'])} of opens"
    if hits["by_bytes"] is not None:
        line += f", {percent(hits['by_bytes'])} of bytes"
    lines = [line]
    if hits.get("peer_by_opens"):
        line = f"  ready on a peer: {percent(hits['peer_by_opens'])} of opens"
        if hits["peer_by_bytes"] is not None:
            line += f", {percent(hits['peer_by_bytes'])} of bytes"
        lines.append(line)
    return lines


def _waits(waits: dict[str, Any]) -> list[str]:
    total = format_duration(waits["total_s"])
    if waits["count"] < 2:
        return [f"  1 cold open waited {total}"] * waits["count"]
    parts = [f"p{part} {format_duration(waits[f'p{part}_s'])}" for part in (50, 95, 99)]
    return [
        f"  {many(waits['count'], 'cold opens')} waited: {', '.join(parts)}, "
        f"{total} in all"
    ]


def _origin(origin: dict[str, Any]) -> str:
    line = (
        f"  origin: {format_size(origin['agent_read_bytes'])} read by Monarch, "
        f"{format_size(origin['programs_opened_bytes'])} opened by programs, "
    )
    avoided = origin["avoided_bytes"]
    return f"{line}{format_size(avoided) if avoided >= 0 else 'none'} avoided"


def _staged(staging: dict[str, Any], each: str) -> list[str]:
    """Return what was copied: on a node alone all of it comes from the origin."""
    files, size = many(staging["files"], "files"), format_size(staging["bytes"])
    line = f"  staged: {files}, {size}"
    rate = ""
    if staging["bytes_per_s"]:
        rate = f" at {format_rate(staging['bytes_per_s'])}{each}"
    adopted = ""
    if staging["adopted_files"]:
        adopted = (
            "; taken over from an earlier job: "
            f"{many(staging['adopted_files'], 'files')}, "
            f"{format_size(staging['adopted_bytes'])}"
        )
    if not staging.get("peer_files"):
        return [f"{line}{rate}{adopted}"]
    fetched = many(staging["peer_files"], "files")
    line += f"; from peers: {fetched}, {format_size(staging['peer_bytes'])}"
    return [f"{line}{adopted}", *[f"  copied{rate}"] * bool(rate)]


def tier_lines(report: Report) -> list[str]:
    """Return a line for each Tier, and for the pool if it was of use.

    On several nodes a File may be held more than once: what is held are Replicas.
    """
    held = "replicas" if "nodes" in report else "files"
    lines = []
    for number, tier in enumerate(report["tiers"]):
        line = f"  tier {tier['name']}: {format_size(tier['used_bytes'])} of "
        line += f"{format_size(tier['capacity_bytes'])} used by "
        line += many(tier["files"], held)
        if not tier["in_service"]:
            line += f"; lost{where(report, partial(_has_lost, number))}, out of service"
        lines.append(line)
    transit = report.get("transit")
    if transit and transit["files"]:
        lines.append(
            f"  {POOL} of {format_size(transit['capacity_bytes'])}: "
            f"{many(transit['files'], 'files')} passed, {format_size(transit['bytes'])}"
        )
    return lines


def _has_lost(number: int, node: Mapping[str, Any]) -> bool:
    tiers = node["tiers"]
    return number < len(tiers) and not tiers[number]["in_service"]


def unstaged_lines(report: Report) -> list[str]:
    """Return why Files were not staged."""
    return [
        f"  not staged: {many(row['files'], 'files')}, {format_size(row['bytes'])}: "
        f"{row['reason']}"
        for row in report["unstaged"]
    ]


def _passed(report: Report) -> list[str]:
    return [
        f"  {root} is pass-through: a program changed one of its directories"
        for root in report["passed_roots"]
    ]


def fallback_lines(report: Report) -> list[str]:
    """Return why opens went to the Origin."""
    return [
        f"  {many(row['opens'], 'opens')}{row['text'].removeprefix('opens')}"
        for row in report["fallbacks"]
    ]


def _has_survived(what: str, node: Mapping[str, Any]) -> bool:
    return any(one["what"] == what for one in node["survived"])


def survived_lines(report: Report) -> list[str]:
    """Return what went wrong and did no harm."""
    shown = {row["cause"] for row in report["fallbacks"]}
    lines = [
        f"  survived: {many(row['count'], UNITS[row['what']])} {row['text']}"
        f"{where(report, partial(_has_survived, row['what']))}"
        for row in report["survived"]
        if row["what"] not in shown
    ]
    lines += [f"  changed: {path}" for path in report.get("changed", ())[:_CHANGED_MAX]]
    return lines
