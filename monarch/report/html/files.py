"""The sections about tiers and files: staged and unstaged files, and errors."""

from collections.abc import Sequence
from typing import Final

from monarch.report.figures import figure, figure_of, get
from monarch.report.format import many
from monarch.report.html import charts
from monarch.report.html.blocks import (
    Bar,
    Block,
    Cell,
    Grid,
    Lines,
    Paths,
    Section,
    after_count,
    short,
)
from monarch.report.html.charts import Series
from monarch.report.model import POOL, Report
from monarch.units import format_size

_LINES_MAX: Final = 10
_ROWS_MAX: Final = 16
_EXAMPLES_MAX: Final = 3
_LEFT: Final = frozenset({0})
_OF_LOADERS: Final = {
    "ranks": "ranks",
    "batches": "batches",
    "bytes": "bytes of their records",
    "wait_p50_s": "median wait of a step, on the rank where it was longest",
    "wait_p99_s": "99% of the steps waited no longer, on the worst rank",
    "wait_max_s": "longest wait of a step",
    "waited_s": "all waits of the rank that waited longest",
    "slowest_rank": "that rank",
    "utilization_min": "least share of its time in which a rank did not wait",
    "requests": "requests",
    "read_per_delivered": "bytes read for each byte delivered",
    "memory_bytes": "memory of the readers",
    "restarts": "readers that had to be replaced",
}


def tiers(report: Report) -> Section | None:
    """Return the section with the contents of the tiers."""
    rows = report.get("tiers")
    if not rows:
        return None
    cells: list[tuple[Cell, ...]] = []
    for place, tier in enumerate(rows):
        name = short(tier["name"], 40)
        lost = "" if tier["in_service"] else " (out of service)"
        used, capacity = tier["used_bytes"], tier["capacity_bytes"]
        cells.append(
            (
                f"{name}{lost}",
                short(tier["kind"], 40),
                figure(report, f"tiers.{place}.files"),
                figure(report, f"tiers.{place}.used_bytes"),
                figure(report, f"tiers.{place}.capacity_bytes"),
                figure_of(used / capacity, "share") if capacity else "",
                Bar(used / capacity if capacity else 0.0, f"tier{place % 4}"),
            )
        )
    if get(report, "transit.capacity_bytes"):
        cells.append(_pool_row(report))
    titles = ("tier", "kind", "files", "used at the end", "capacity", "full", "")
    copies = "Several nodes may hold a copy of one file; each copy counts."
    note = copies if report.get("nodes") else ""
    blocks: list[Block] = [Grid(titles, tuple(cells), frozenset({0, 1}), note)]
    return Section("tiers", "Tiers", blocks)


def _pool_row(report: Report) -> tuple[Cell, ...]:
    used, capacity = (get(report, f"transit.{n}_bytes") for n in ("used", "capacity"))
    return (
        POOL,
        "ram",
        figure(report, "transit.files"),
        figure(report, "transit.used_bytes"),
        figure(report, "transit.capacity_bytes"),
        figure_of(used / capacity, "share"),
        Bar(used / capacity, "outside"),
    )


def files(report: Report) -> Section | None:
    """Return the section with the sizes of the files of the datasets."""
    rows = report.get("file_sizes")
    if not rows:
        return None
    names = [*(format_size(row["from_bytes"]) for row in rows)]
    names.append(format_size(rows[-1]["to_bytes"]))
    counts = [row["files"] for row in rows]
    text = f"{many(sum(counts), 'files')} in {many(len(counts), 'ranges')} of size."
    scale = charts.count_scale(max(counts))
    runs = charts.titled("size of the file", charts.LOG)
    axes = charts.Axes("files", runs, names, scale)
    series = Series("plain", "files", counts)
    chart = charts.columns("Files by size", text, axes, [series])
    total = Grid(
        ("files", "size of the datasets"),
        ((figure(report, "run.files"), figure(report, "run.bytes")),),
        frozenset(),
    )
    return Section("files", "Files of the datasets", [total, chart])


def unstaged(report: Report) -> Section | None:
    """Return the section with the files that were not staged, by reason."""
    rows = report.get("unstaged")
    if not rows:
        return None
    cells = tuple(
        (
            short(row["reason"]),
            figure(report, f"unstaged.{place}.files"),
            figure(report, f"unstaged.{place}.bytes"),
            Paths(tuple(map(short, (row.get("examples") or ())[:_EXAMPLES_MAX]))),
        )
        for place, row in enumerate(rows[:_ROWS_MAX])
    )
    titles = ("reason", "files", "size", "examples")
    grid = Grid(titles, cells, frozenset({0, 3}))
    return Section("unstaged", "Not staged when the job ended", [grid])


def slowest(report: Report) -> Section | None:
    """Return the section with the slowest copies."""
    rows = report.get("slowest")
    if not rows:
        return None
    most = max(row["seconds"] for row in rows) or 1.0
    cells = tuple(
        (
            Paths((short(row["path"]),)),
            figure(report, f"slowest.{place}.seconds"),
            Bar(row["seconds"] / most, "waited"),
            figure(report, f"slowest.{place}.bytes"),
            short(row["source"], 40),
        )
        for place, row in enumerate(rows[:_ROWS_MAX])
    )
    grid = Grid(("file", "took", "", "size", "from"), cells, frozenset({0, 4}))
    return Section("slowest", "Slowest copies", [grid])


def problems(report: Report) -> Section | None:
    """Return the section with errors and handled problems."""
    blocks: list[Block] = []
    if report.get("errors"):
        blocks.append(_errors(report))
    if report.get("survived"):
        blocks.append(_survived(report))
    for name, title in (("failures", "Failed:"), ("changed", "Changed by others:")):
        if texts := report.get(name):
            blocks += [Lines((title,)), _limited(texts)]
    return Section("problems", "Errors, and what was done", blocks) if blocks else None


def loaders(report: Report) -> Section | None:
    """Return the section about the loaders of programs."""
    found = report.get("loader")
    if not found:
        return None
    cells = tuple(
        (text, figure(report, f"loader.{name}"))
        for name, text in _OF_LOADERS.items()
        if found.get(name) is not None
    )
    return Section("loaders", "Loaders", [Grid(("", "of all ranks"), cells, _LEFT)])


def _errors(report: Report) -> Grid:
    cells = tuple(
        (
            short(row["errno"], 40),
            short(row["operation"], 40),
            figure(report, f"errors.{place}.count"),
            Paths((short(row["example"]),) if row.get("example") else ()),
        )
        for place, row in enumerate(report["errors"][:_ROWS_MAX])
    )
    return Grid(("error", "of", "times", "example"), cells, frozenset({0, 1, 3}))


def _survived(report: Report) -> Grid:
    cells = tuple(
        (
            figure(report, f"survived.{place}.count"),
            after_count(row["text"]),
            short(row["what"]),
        )
        for place, row in enumerate(report["survived"][:_ROWS_MAX])
    )
    titles = ("count", "what happened", "name in the report")
    return Grid(titles, cells, frozenset({1, 2}))


def _limited(texts: Sequence[str]) -> Lines:
    lines = [short(text) for text in texts[:_LINES_MAX]]
    if len(texts) > _LINES_MAX:
        lines.append(f"… and {len(texts) - _LINES_MAX:,} more in the JSON report")
    return Lines(tuple(lines), is_literal=True)
