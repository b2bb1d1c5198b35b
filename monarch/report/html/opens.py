"""The sections with the sources of opens, and with the waits for copies."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from monarch.report.figures import figure, figure_of, get
from monarch.report.format import many
from monarch.report.html import charts
from monarch.report.html.blocks import (
    Bar,
    Block,
    Cell,
    Chart,
    Grid,
    Lines,
    Section,
    after_count,
    short,
)
from monarch.report.html.charts import Series
from monarch.report.large import unseen_lines
from monarch.report.model import POOL, Report
from monarch.units import format_duration

_KINDS: Final = {
    "hit": "ready",
    "peer": "peer",
    "packed": "waited",
    "miss": "waited",
    "origin": "origin",
    "blocks": "peer",
}
_WAITED: Final = {
    "origin": "from the origin",
    "peer": "from a peer",
    "blocks": "for parts of large files",
}
_ROWS_MAX: Final = 16
_COLUMNS_MAX: Final = 256

Rows = Sequence[Mapping[str, Any]]


def sources(report: Report) -> Section | None:
    """Return the section with the opens by their source."""
    rows = report.get("sources")
    if not rows:
        return None
    counted = [row for row in rows if row["kind"] not in ("blocks", "outside")]
    total = sum(row["opens"] for row in counted)
    most = max(row["opens"] for row in rows) or 1
    cells: list[tuple[Cell, ...]] = []
    for place, row in enumerate(rows):
        if row["source"] == POOL and not row["opens"]:
            continue
        outside = row["kind"] == "outside"
        has_share = total and row in counted
        share: Cell = figure_of(row["opens"] / total, "share") if has_share else ""
        size: Cell = "" if outside else figure(report, f"sources.{place}.opened_bytes")
        opens = figure(report, f"sources.{place}.opens")
        bar = Bar(row["opens"] / most, _KINDS.get(row["kind"], "outside"))
        cells.append((short(row["source"]), opens, share, bar, size))
    titles = ("source", "opens", "share", "", "size of the files opened")
    note = "A file counts with its size at each open, whatever part of it was read."
    blocks: list[Block] = [Grid(titles, tuple(cells), note=note)]
    blocks += _reads(report)
    if report.get("fallbacks"):
        blocks.append(_fallbacks(report))
    return Section("sources", "Where opens were answered", blocks)


def _reads(report: Report) -> list[Block]:
    """Return the reads of large files, with the bytes that Monarch has counted."""
    unseen = Lines(tuple(line.strip() for line in unseen_lines(report)))
    blocks: list[Block] = [unseen] if unseen.lines else []
    if not get(report, "reads.local_reads") and not get(report, "reads.origin_reads"):
        return blocks
    rows = tuple(
        (
            f"large files: read from {where}",
            figure(report, f"reads.{name}_reads"),
            figure(report, f"reads.{name}_bytes"),
        )
        for name, where in (("local", "copies"), ("origin", "the origin"))
    )
    titles = ("bytes that programs read", "reads", "bytes read")
    return [Grid(titles, rows), *blocks]


def _fallbacks(report: Report) -> Grid:
    rows = tuple(
        (figure(report, f"fallbacks.{place}.opens"), after_count(row["text"]))
        for place, row in enumerate(report["fallbacks"][:_ROWS_MAX])
    )
    return Grid(("opens", "why they read the origin"), rows, frozenset({1}))


def waits(report: Report) -> Section | None:
    """Return the section with the waits of opens and reads for copies."""
    if not get(report, "waits.count"):
        return None
    names = (
        "waits.count",
        "waits.total_s",
        "waits.p50_s",
        "waits.p95_s",
        "waits.p99_s",
    )
    titles = ("waits", "in total", "p50", "p95", "p99")
    cells = tuple(figure(report, name) for name in names)
    blocks: list[Block] = [Grid(titles, (cells,), frozenset())]
    rows = get(report, "waits.by_source") or ()
    if chart := _wait_columns(rows):
        blocks.append(chart)
    if len(rows) > 1:
        blocks.append(_wait_sources(report, rows))
    return Section("waits", "Waits for copies", blocks)


def _wait_sources(report: Report, rows: Rows) -> Grid:
    cells = tuple(
        (
            _WAITED.get(row["source"], _WAITED["origin"]),
            figure(report, f"waits.by_source.{place}.count"),
            figure(report, f"waits.by_source.{place}.total_s"),
        )
        for place, row in enumerate(rows)
    )
    return Grid(("source", "waits", "in total"), cells)


def _wait_columns(rows: Rows) -> Chart | None:
    found: dict[tuple[float, float], dict[str, int]] = {}
    for row in rows:
        for bucket in row["buckets"]:
            if bucket["count"]:
                edges = bucket["from_s"], bucket["to_s"]
                found.setdefault(edges, {})[row["source"]] = bucket["count"]
    groups = _without_gaps(
        found, {_edges(one) for row in rows for one in row["buckets"]}
    )
    if not groups:
        return None
    styles = {"origin": "waited", "peer": "peer", "blocks": "plain"}
    series = [
        Series(
            styles.get(row["source"], "outside"),
            _WAITED.get(row["source"], _WAITED["origin"]),
            [found.get(edges, {}).get(row["source"], 0) for edges in groups],
        )
        for row in rows
    ]
    names = [format_duration(edges[0]) for edges in groups]
    names.append(format_duration(groups[-1][1]))
    heights = charts.totals(series)
    ranges = many(len(groups), "ranges")
    text = f"{many(int(sum(heights)), 'waits')} in {ranges} of their length."
    scale = charts.count_scale(max(heights))
    axes = charts.Axes("waits", charts.titled("wait", charts.LOG), names, scale)
    return charts.columns("How long programs waited for copies", text, axes, series)


def _edges(bucket: Mapping[str, Any]) -> tuple[float, float]:
    return bucket["from_s"], bucket["to_s"]


def _without_gaps(
    found: Mapping[tuple[float, float], Any], known: set[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the buckets from the first to the last with a wait, including gaps."""
    if not found:
        return []
    first, last = min(found)[0], max(found)[1]
    inside = sorted(one for one in known if first <= one[0] and one[1] <= last)
    # If a report lists no empty buckets, one wide bucket fills a gap.
    gaps = [(one[1], two[0]) for one, two in pairwise(inside) if one[1] < two[0]]
    return sorted([*inside, *gaps])[:_COLUMNS_MAX]
