"""The text report of a staging without programs, and whether it is complete."""

from collections.abc import Mapping
from typing import Any

from monarch.report.format import many
from monarch.report.model import Report
from monarch.report.node_table import missing_lines
from monarch.units import format_count, format_duration, format_size


def is_complete(report: Report) -> bool:
    """Return whether every File is staged as its Placement requires, for later jobs."""
    share = report["share"]
    names = "unplaced_files", "partly_held_files", "part_files", "copies_short"
    lacking = any(share[name] for name in names) or report["lacking"]
    reported = all(row["reported"] for row in report.get("nodes", ()))
    return reported and not lacking


def is_staging(report: Report) -> bool:
    """Return whether the report is of `monarch stage`, which runs no program."""
    ran = report["run"]["command"] or report["coverage"]["processes"]
    return "share" in report and not ran


def render_staged(report: Report) -> str:
    """Return the report as plain text."""
    return "\n".join(staged_lines(report)) + "\n"


def staged_lines(report: Report) -> list[str]:
    """Return the report as lines of any length, because of their paths."""
    nodes = report.get("nodes", ())
    return [
        _headline(report),
        *(_node_line(row) for row in nodes if row["reported"]),
        *missing_lines(nodes),
        *_shortfalls(report),
        *(f"  changed after the scan: {path}" for path in report["changed"]),
    ]


def _headline(report: Report) -> str:
    where = many(len(report["nodes"]), "nodes") if "nodes" in report else "this node"
    staging = report["staging"]
    read = format_size(report["origin"]["agent_read_bytes"])
    parts = [f"{read} read from the origin"]
    if fetched := staging["peer_bytes"]:
        parts.append(f"{format_size(fetched)} passed between nodes")
    if shared := staging.get("shared_files"):
        parts.append(f"{many(shared, 'files')} linked from another job")
    if adopted := staging["adopted_files"]:
        parts.append(f"{many(adopted, 'files')} adopted from an earlier job")
    time = format_duration(report["run"]["seconds"])
    amount = _amount(report) + _parts(report["share"])
    return f"staged {amount} on {where} in {time}: {', '.join(parts)}"


def _amount(report: Report) -> str:
    files, ready = report["run"]["files"], report["share"]["ready_files"]
    text = f"{many(files, 'files')}, {format_size(report['run']['bytes'])}"
    if ready == files:
        return text
    return f"{format_count(ready)} {'of' if ready < files else 'copies of'} {text}"


def _parts(share: Mapping[str, Any]) -> str:
    """Return the size of the parts of files that nodes hold in part."""
    if not share["part_files"]:
        return ""
    return f", and {format_size(share['part_bytes'])} in parts"


def _node_line(row: Mapping[str, Any]) -> str:
    share = row["share"]
    return (
        f"  {row['name']}: {many(share['ready_files'], 'files')}, "
        f"{format_size(share['ready_bytes'])}{_parts(share)} "
        f"({format_count(row['staged_files'])} from the origin, "
        f"{format_count(row['fetched_files'])} from other nodes, "
        f"{format_count(row['adopted_files'])} adopted)"
    )


def _shortfalls(report: Report) -> list[str]:
    share = report["share"]
    lines = []
    if share["unplaced_files"]:
        lines.append(
            f"  {many(share['unplaced_files'], 'files')}, "
            f"{format_size(share['unplaced_bytes'])}, stay at the origin: "
            "no node has room for them"
        )
    if share["partly_held_files"]:
        lines.append(
            f"  {format_size(share['partly_left_bytes'])} of "
            f"{many(share['partly_held_files'], 'files')}, held in part, "
            "stay at the origin: no node has room for them"
        )
    if share["part_files"]:
        lines.append(
            "  what is staged in parts is not retained: a later job reads it from the "
            "origin"
        )
    if share["copies_short"]:
        lines.append(
            f"  {format_count(share['copies_short'])} of the copies that the mode asks "
            "for have no room"
        )
    for where, part in _reports(report):
        lines += [
            f"  {where}not staged: {many(row['files'], 'files')}, "
            f"{format_size(row['bytes'])}: {row['reason']}"
            for row in part["lacking"]
        ]
        lines += [f"  {where}{failure}" for failure in part["failures"]]
    return lines


def _reports(report: Report) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the reports of the nodes, each with the prefix of its lines."""
    if "nodes" not in report:
        return [("", report)]
    return [(f"{row['name']}: ", row) for row in report["nodes"] if row["reported"]]
