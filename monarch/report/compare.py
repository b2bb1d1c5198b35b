"""The figures of two reports side by side, with their ratios."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from monarch.report.figures import Figure, figure, figure_of, get, with_headline
from monarch.report.format import Part, Table, fitted, many
from monarch.report.model import Report
from monarch.report.series import pass_s

_FIGURES: Final = (
    ("opens ready without waiting", "headline.ready_share"),
    ("opens of dataset files", "headline.opens"),
    ("opens of large files by block", "reads.opens"),
    ("  with unseen reads", "reads.unseen_share"),
    ("read from the origin", "headline.origin_bytes"),
    ("  of the dataset", "headline.origin_multiple"),
    ("  of the dataset, at most", "headline.origin_multiple_max"),
    ("size of files opened there", "headline.origin_opened_bytes"),
    ("time saved (estimate)", "headline.time_saved.seconds"),
    ("run time", "run.seconds"),
    ("start-up", "run.startup_s"),
    ("waits for copies", "waits.count"),
    ("  in total", "waits.total_s"),
    ("  p50", "waits.p50_s"),
    ("  p95", "waits.p95_s"),
    ("  p99", "waits.p99_s"),
    ("staged from the origin", "staging.bytes"),
    ("staged from peers", "staging.peer_bytes"),
    ("staging rate", "staging.bytes_per_s"),
    ("processes", "coverage.processes"),
    ("  with Monarch active", "coverage.active"),
    ("files in the datasets", "run.files"),
    ("size of the datasets", "run.bytes"),
    ("CPU time of the agents", "run.agent_cpu_s"),
    ("memory of the agents", "run.agent_rss_max_bytes"),
)
_SAME: Final = (
    ("command", "run.command"),
    ("datasets", "run.datasets"),
    ("version of Monarch", "tool.version"),
    ("configuration", "run.config"),
)
_PASSES_MAX: Final = 8
_WIDTHS: Final = (30, 18, 18, 12)
_NONE: Final = "-"


class Row(NamedTuple):
    """One figure of two reports.

    Attributes:
        name: its name in the report.
        ratio: the second divided by the first; None: one is 0 or unknown.
    """

    label: str
    name: str
    first: Figure | None
    second: Figure | None
    ratio: float | None


def compared(first: Report, second: Report) -> list[Row]:
    """Return the figures that at least one of two reports has."""
    reports = with_headline(first), with_headline(second)
    passes = max(len(report.get("passes") or ()) for report in reports)
    labels = [*_FIGURES]
    for number in range(min(passes, _PASSES_MAX)):
        labels.append((f"pass {number + 1}: time", f"passes.{number}"))
        labels.append(("  ready without waiting", f"passes.{number}.ready_share"))
    rows = [_row(label, name, *reports) for label, name in labels]
    return [row for row in rows if row.first is not None or row.second is not None]


def comparison(titles: tuple[str, str], first: Report, second: Report) -> list[Part]:
    """Return a table of the differing figures of two reports, and lines of caveats.

    Args:
        titles: names of the two reports at the top of the table.
    """
    rows = compared(first, second)
    shown = list(_without_equal(rows))
    cells = tuple(
        (row.label, _text(row.first), _text(row.second), _ratio(row.ratio))
        for row in shown
    )
    top = ("", *(fitted(title, 17) for title in titles), "ratio")
    parts: list[Part] = [Table(top, _WIDTHS, cells)] if shown else []
    if equal := len(rows) - len(shown):
        parts.append(f"  equal in both, not shown: {many(equal, 'figures')}")
    return [*parts, *_differences(first, second)]


def _without_equal(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows whose texts differ, and the headings of indented ones."""
    heading: Row | None = None
    for row in rows:
        is_inner = row.label.startswith(" ")
        if _text(row.first) == _text(row.second):
            heading = heading if is_inner else row
            continue
        if is_inner and heading is not None:
            yield heading
        heading = None
        yield row


def _row(label: str, name: str, first: Report, second: Report) -> Row:
    one, two = _figure(first, name), _figure(second, name)
    ratio = None
    if one and two and one.value and two.value is not None:
        ratio = two.value / one.value
    return Row(label, name, one, two, ratio)


def _figure(report: Report, name: str) -> Figure | None:
    """Return a figure, None if the report lacks it; for a pass, its time."""
    found: Any = get(report, name)
    if isinstance(found, dict):
        return figure_of(pass_s(found), "duration")
    try:
        return figure(report, name)
    except LookupError:
        return None


def _text(one: Figure | None) -> str:
    return _NONE if one is None or one.value is None else one.text


def _ratio(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.3g} x" if value < 1000 else f"{value:,.0f} x"


def _differences(first: Report, second: Report) -> list[str]:
    """Return a line for each circumstance in which the two runs differ."""
    both = [
        (label, get(first, path), get(second, path))
        for label, path in _SAME
        if get(first, path) is not None and get(second, path) is not None
    ]
    lines = [f"  the {label} differs" for label, one, two in both if one != two]
    counts = [len(report.get("nodes") or (None,)) for report in (first, second)]
    if counts[0] != counts[1]:
        lines.append(f"  the number of nodes differs: {counts[0]} and {counts[1]}")
    return lines
