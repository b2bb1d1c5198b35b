"""Figures of a report by name, and their texts: for pages and comparisons."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from monarch.report.format import many, percent
from monarch.report.model import Report
from monarch.units import format_count, format_duration, format_rate, format_size

UNKNOWN: Final = "unknown"
WRITING_PARTS: Final = 2
"""Opens for writing are reported above 1/WRITING_PARTS of the other opens."""

# The first pattern that matches the last part of a name determines the kind of figure.
_KINDS: Final = (
    (re.compile(r"bytes_per_s|.*_bytes_per_s"), "rate"),
    (re.compile(r"ratio|.*_share|(?:.*_)?by_(?:opens|bytes)"), "share"),
    (re.compile(r"bytes|.*_bytes|bytes_(?!per_s).*"), "size"),
    (re.compile(r"seconds|(?!at_s|per_s).*_s"), "duration"),
    (re.compile(r"origin_multiple(?:_max)?|served_max_over_mean"), "multiple"),
)


class Figure(NamedTuple):
    """One figure with its text.

    Attributes:
        text: the rounded figure with its unit.
        value: the figure itself; None: unknown.
        path: its name in the report; "": computed from others.
        exact: the figure without rounding, if rounding loses digits.
    """

    text: str
    value: float | None
    path: str = ""
    exact: str = ""


def many_writing(report: Report) -> int:
    """Return the number of opens for writing, or 0 if they are few."""
    opens: int = report.get("opens_for_writing", 0)
    return opens if opens * WRITING_PARTS > report["hits"]["opens"] else 0


def kind_of(path: str) -> str:
    """Return the kind of a figure: size, rate, duration, share, multiple or count."""
    last = path.rpartition(".")[2]
    for pattern, kind in _KINDS:
        if pattern.fullmatch(last):
            return kind
    return "count"


def written(value: float | None, kind: str) -> str:
    """Return the text of a figure of a kind, with its unit."""
    if value is None:
        return UNKNOWN
    if kind == "count":
        return format_count(value) if isinstance(value, int) else f"{value:,.4g}"
    if kind == "multiple":
        return f"{value:.2f} x"
    texts = {"rate": format_rate, "size": format_size, "duration": format_duration}
    return percent(value) if kind == "share" else texts[kind](value)


def figure(report: Report, path: str) -> Figure:
    """Return the figure with a name.

    Raises:
        LookupError: the report has no such figure.
    """
    value = find(report, path)
    if value is not None and not isinstance(value, int | float):
        raise LookupError(path)
    return figure_of(value, kind_of(path), path)


def figure_of(value: float | None, kind: str, path: str = "") -> Figure:
    """Return a figure of a kind, with its exact value if rounding hides it."""
    exact = ""
    if kind == "size" and value is not None and value >= 1024:
        exact = f"{value:,.0f} B"
    return Figure(written(value, kind), value, path, exact)


def find(report: Report, path: str) -> Any:
    """Return the value at a dotted path, which may also begin within the headline.

    A part of the path is a key or, for a list, a number or the name of one of its rows.

    Raises:
        LookupError: the report has no such value.
    """
    parts = path.split(".")
    headline = report.get("headline")
    if parts[0] not in report and isinstance(headline, Mapping):
        parts = ["headline", *parts]
    found: Any = report
    for part in parts:
        found = _member(found, part)
    return found


def _member(found: Any, part: str) -> Any:
    if isinstance(found, Mapping) and part in found:
        return found[part]
    if isinstance(found, Sequence) and not isinstance(found, str):
        if part.isdecimal() and int(part) < len(found):
            return found[int(part)]
        for row in found:
            if isinstance(row, Mapping) and part in (
                row.get("name"),
                row.get("source"),
                row.get("cause"),
            ):
                return row
    raise LookupError(part)


def get(report: Report, path: str, default: Any = None) -> Any:
    """Return the value at a dotted path, or the default if the report lacks it."""
    try:
        return find(report, path)
    except LookupError:
        return default


def with_headline(report: Report) -> Report:
    """Return the report with a headline, which reports of schema 1 lack.

    Figures that schema 1 did not measure stay unknown.
    """
    if isinstance(report.get("headline"), Mapping):
        return report
    hits, origin, run = report["hits"], report["origin"], report["run"]
    read, opened = origin["agent_read_bytes"], origin["programs_opened_bytes"]
    size = run["bytes"]
    headline = {
        "ready_share": hits["by_opens"],
        "opens": hits["opens"],
        "origin_bytes": read,
        "origin_opened_bytes": opened,
        "origin_multiple": read / size if size and not opened else None,
        "origin_multiple_max": (read + opened) / size if size else None,
        "time_saved": None,
    }
    return {**report, "headline": headline}


def unmeasured(report: Report) -> list[str]:
    """Return phrases about reads of the origin that no figure includes."""
    if get(report, "run.plain"):
        return ["all that programs read"]
    found = []
    if opened := get(report, "headline.origin_opened_bytes"):
        direct = get(report, "headline.origin_opens")  # unknown in schema 1
        opens = many(direct, "opens") if direct else "opens"
        found.append(f"{opens} by programs (files of {format_size(opened)})")
    if unseen := get(report, "headline.origin_unseen_bytes"):
        opens = many(get(report, "headline.origin_unseen_opens"), "opens")
        size = format_size(unseen)
        found.append(f"{opens} by unseen reads (files of at most {size})")
    writing = get(report, "opens_for_writing", 0)
    if writing > (get(report, "headline.opens") or 0):
        found.append(f"{many(writing, 'opens')} for writing")
    if without := get(report, "coverage.processes", 0) - get(
        report, "coverage.active", 0
    ):
        found.append(f"{many(without, 'processes')} without Monarch")
    return found


def names(report: Report) -> list[str]:
    """Return the names of all single figures of a report, for suggestions."""
    headline = report.get("headline") or {}
    short = [name for name, value in headline.items() if not isinstance(value, Mapping)]
    return [*short, *_paths(report, "")]


def _paths(value: Any, path: str) -> list[str]:
    if isinstance(value, Mapping):
        start = f"{path}." if path else ""
        return [
            name for key, one in value.items() for name in _paths(one, f"{start}{key}")
        ]
    return [path] if isinstance(value, int | float) else []
