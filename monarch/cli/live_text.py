"""The answers of a running agent, as lines and tables for `status` and `top`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from monarch.report.format import (
    Part,
    Table,
    fitted,
    listed,
    many,
    percent,
    short_names,
)
from monarch.report.model import BLOCKS
from monarch.units import format_count, format_duration, format_rate, format_size

NAMES_MAX: Final = 4
NODES_MAX: Final = 16
BAR: Final = 20
_UNKNOWN: Final = "-"
_SOURCES: Final = (
    ("ready", "ready", "ready_opens"),
    ("waited", "staged while they waited", "waited_opens"),
    ("origin", "origin", "origin_opens"),
)
Figures = Mapping[str, Any]


def status_parts(answer: Figures) -> list[Part]:
    """Return the output of `monarch status` for one agent."""
    from monarch.report import report_parts

    head = (
        f"{answer['run']}: {answer['state']}, agent {answer['pid']}, "
        f"{many(answer['living'], 'processes')}, "
        f"{many(answer['in_flight'], 'files')} being copied"
    )
    lines = [*staged_lines(answer), *node_lines(answer["nodes"])]
    if answer["metrics"]:
        lines.append(f"  metrics: {answer['metrics']}")
    if answer["staged"] is None and answer["state"] != "plain":
        return [head, *lines]
    return [head, *lines, *report_parts(answer["report"])]


def top_parts(figures: Figures, *, ascii_only: bool = False) -> list[Part]:
    """Return one frame of `monarch top` for one agent."""
    processes = figures["processes"]
    head = (
        f"{figures['job']} on {figures['node']}: {figures['state']} for "
        f"{format_duration(figures['seconds'])}, active in "
        f"{format_count(processes['active'])} of {many(processes['seen'], 'processes')}"
    )
    if figures["staged"] is None:
        return [head, *staged_lines(figures), *node_lines(figures["nodes"])]
    parts: list[Part] = [head, *staged_lines(figures, bar=True, ascii_only=ascii_only)]
    parts += [_origin_line(figures), "", _tiers(figures["tiers"]), "", _opens(figures)]
    if figures["waits"]["count"]:
        parts.append(_wait_line(figures["waits"]))
    if figures["nodes"]:
        parts += ["", *node_lines(figures["nodes"]), _nodes(figures["nodes"])]
    if ascii_only:
        return [p.replace("µs", "us") if isinstance(p, str) else p for p in parts]
    return parts


# -- staging ------------------------------------------------------------------------


def staged_lines(
    figures: Figures, *, bar: bool = False, ascii_only: bool = False
) -> list[str]:
    """Return the progress of staging, or of the scan before it."""
    staged = figures["staged"]
    if staged is None:
        return _index_lines(figures)
    share = staged["share"]
    if share is None:
        return ["  staged: this node keeps no files"]
    start = "  staged"
    if bar:
        start += f" {_bar(share, ascii_only)}"
    amount = f"{percent(share)} of {format_size(staged['kept_bytes'])}"
    parts = [f"{start} {amount}", *_pace(staged, figures["per_s"])]
    lines = [", ".join(parts)]
    files = f"{format_count(staged['files'])} of {many(staged['kept_files'], 'files')}"
    if len(figures["nodes"]) > 1:
        files += ", the share of this node"
    lines.append(f"  ready: {files}")
    if staged["no_room_files"]:
        lines.append(f"  no tier has room for {many(staged['no_room_files'], 'files')}")
    return lines


def _pace(staged: Figures, per_s: Mapping[str, float]) -> list[str]:
    """Return the rate of staging and the time left; nothing when it is done."""
    if staged["bytes"] >= staged["kept_bytes"]:
        return []
    if not staged["coming_bytes"]:
        return ["nothing more will be staged"]
    parts = [format_rate(per_s["staged_bytes"])] if per_s else []
    if staged["left_s"]:
        parts.append(f"{format_duration(staged['left_s'])} left")
    return parts


def _index_lines(figures: Figures) -> list[str]:
    lines = []
    for row in figures["indexing"]:
        if row["done"]:
            lines.append(f"  indexed {row['path']}")
        elif row["directories"]:
            done, expected = row["directories"], row["expected"]
            text = f"{format_count(done)} of {many(expected, 'directories')}"
            lines.append(f"  comparing {row['path']}: {text}")
        else:
            found = f"{many(row['names'], 'names')} found"
            if row["expected"]:
                found += f" of ~{format_count(row['expected'])}"
            lines.append(f"  indexing {row['path']}: {found}")
    if lines:
        return lines
    where = ", ".join(figures["datasets"])
    return [f"  {where}: no index yet, nothing is staged"]


def _bar(share: float, ascii_only: bool) -> str:
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    done = min(BAR, int(BAR * share))
    return f"[{full * done}{empty * (BAR - done)}]"


def _origin_line(figures: Figures) -> str:
    line = f"  origin: {format_size(figures['origin_read_bytes'])} read by Monarch"
    per_s = figures["per_s"]
    return f"{line}, {format_rate(per_s['origin_read_bytes'])}" if per_s else line


def _tiers(tiers: Sequence[Figures]) -> Table:
    rows = []
    for tier in tiers:
        used, capacity = tier["used_bytes"], tier["capacity_bytes"]
        full = percent(used / capacity) if capacity else _UNKNOWN
        if not tier["in_service"]:
            full = "lost"
        sizes = format_size(used), format_size(capacity)
        rows.append((tier["name"], full, *sizes, format_count(tier["files"])))
    titles = ("tier", "full", "used", "capacity", "files")
    return Table(titles, (30, 8, 12, 12, 12), tuple(rows))


def _opens(figures: Figures) -> Table:
    opens, per_s = figures["opens"], figures["per_s"]
    known = sum(opens[kind] for kind, _, _ in _SOURCES)
    rows = []
    for kind, text, rate in _SOURCES:
        share = percent(opens[kind] / known) if known else _UNKNOWN
        now = format_count(round(per_s[rate])) if per_s else _UNKNOWN
        rows.append((text, share, format_count(opens[kind]), now))
    if opens.get("blocks"):
        rows.append((BLOCKS, _UNKNOWN, format_count(opens["blocks"]), _UNKNOWN))
    rows.append(("pass-through", _UNKNOWN, format_count(opens["outside"]), _UNKNOWN))
    return Table(
        ("opens", "share", "total", "per second"), (30, 8, 12, 12), tuple(rows)
    )


def _wait_line(waits: Figures) -> str:
    mean = format_duration(waits["total_s"] / waits["count"])
    return f"  {many(waits['count'], 'waits')} for copies, {mean} on average"


# -- nodes --------------------------------------------------------------------------


def node_lines(nodes: Sequence[Figures]) -> list[str]:
    """Return the states of the nodes of a job, with the names of the missing ones."""
    if not nodes:
        return []
    names = short_names([node["name"] for node in nodes])
    found: dict[str, list[str]] = {}
    for node, name in zip(nodes, names, strict=True):
        found.setdefault(_state(node), []).append(name)
    there = [state for state in ("running", "starting", "finished") if state in found]
    counts = ", ".join(f"{len(found[state])} {state}" for state in there)
    lines = [f"  {many(len(nodes), 'nodes')}: {counts or 'none has joined'}"]
    lines += [
        f"  {state}: {listed(found[state], NAMES_MAX)}"
        for state in ("never joined", "left")
        if state in found
    ]
    return lines


def _state(node: Figures) -> str:
    return str(node["phase"] if node["standing"] == "joined" else node["standing"])


def _nodes(nodes: Sequence[Figures]) -> Table:
    """Return a row for each node; of many nodes, for those that have staged least."""
    names = short_names([node["name"] for node in nodes])
    pairs = sorted(zip(nodes, names, strict=True), key=lambda pair: _staged(pair[0]))
    shown = pairs if len(pairs) <= NODES_MAX else pairs[: NODES_MAX - 1]
    rows = [_node_row(node, name) for node, name in shown]
    if len(shown) < len(pairs):
        rest = f"{format_count(len(pairs) - len(shown))} more"
        rows.append((rest, *[""] * 6))
    return Table(
        ("node", "state", "staged", "rate", "opens/s", "ready", "origin"),
        (15, 13, 8, 13, 9, 7, 12),
        tuple(rows),
    )


def _staged(node: Figures) -> float:
    figures = node["figures"]
    if figures is None:
        return 2.0
    return figures["bytes"] / figures["kept_bytes"] if figures["kept_bytes"] else 1.0


def _node_row(node: Figures, name: str) -> tuple[str, ...]:
    figures = node["figures"]
    start = fitted(name, 15), fitted(_state(node), 12)
    if figures is None:
        return (*start, *[_UNKNOWN] * 5)
    opens = figures["opens"]
    return (
        *start,
        percent(_staged(node)),
        format_rate(figures["bytes_per_s"]),
        format_count(figures["opens_per_s"]),
        percent(figures["ready_opens"] / opens) if opens else _UNKNOWN,
        format_size(figures["origin_read_bytes"]),
    )
