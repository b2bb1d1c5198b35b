"""The sections with the development of the run, and the passes over the dataset."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from monarch.report.figures import figure, figure_of
from monarch.report.format import many, percent
from monarch.report.html import charts
from monarch.report.html.blocks import (
    Bar,
    Block,
    Chart,
    Charts,
    Grid,
    Lines,
    Section,
    Shape,
    short,
)
from monarch.report.html.charts import Series
from monarch.report.model import BLOCKS, Report
from monarch.report.series import pass_s
from monarch.units import format_duration, format_size

_OPENS: Final = {
    "ready": ("ready", "ready"),
    "waited": ("waited", "waited"),
    "origin": ("origin", "origin"),
    "blocks": ("peer", BLOCKS),
    "outside": ("outside", "other files"),
}
"""The style and the title of each series of opens."""
_PASSES_MAX: Final = 16
_COLUMNS_MAX: Final = 256


def over_time(report: Report) -> Section | None:
    """Return the section with the development of the run."""
    series = report.get("series")
    if series is None:
        return None
    title = "Over time"
    at_s = series["at_s"]
    if len(at_s) < 2 or not at_s[-1]:
        return Section("time", title, [Lines(("The run was too short for samples.",))])
    drawn = [
        _opens_chart(series, report),
        _bytes_chart(series),
        _rate_chart(series),
        _tiers_chart(series),
    ]
    shown = tuple(chart for chart in drawn if chart is not None)
    if not shown:
        return Section("time", title, [Lines(("No file was opened or staged.",))])
    return Section("time", title, [Charts(shown)])


def _opens_chart(series: Mapping[str, Any], report: Report) -> Chart | None:
    at_s, opens = series["at_s"], series["opens"]
    drawn = [
        Series(style, title, charts.rates(at_s, opens[name]))
        for name, (style, title) in reversed(_OPENS.items())
        if any(opens.get(name, ()))
    ]
    if not drawn:
        return None
    most = max(map(sum, zip(*(one.values for one in drawn), strict=True)))
    scale = charts.rate_scale(most)
    shapes = charts.stacked(at_s, drawn, scale.end)
    legend = [(one.style, one.name) for one in reversed(drawn)]
    later = (report.get("passes") or ())[1:]
    began = [one["began_s"] for one in later if one["began_s"] is not None]
    if 0 < len(began) <= _PASSES_MAX:
        shapes.append(charts.marks(began, at_s[-1], "mark"))
        legend.append(("mark", "start of a pass"))
    text = f"At most {most:,.0f} opens per second."
    return _timed(
        ("Opens by source", text, "opens per second"), scale, at_s, shapes, legend
    )


def _bytes_chart(series: Mapping[str, Any]) -> Chart | None:
    at_s = series["at_s"]
    drawn = [
        Series("ready", "staged", series["staged_bytes"]),
        Series("origin", "read from the origin", series["origin_bytes"]),
    ]
    most = max(max(one.values) for one in drawn)
    if not most:
        return None
    scale = charts.size_scale(most)
    # The wider line first: often both lines coincide.
    shapes = charts.lines(at_s, drawn[::-1], scale.end)
    legend = [(one.style, one.name) for one in drawn]
    text = f"{format_size(series['staged_bytes'][-1])} staged and "
    text += (
        f"{format_size(series['origin_bytes'][-1])} read from the origin at the end."
    )
    return _timed(("Bytes so far", text, "bytes"), scale, at_s, shapes, legend)


def _rate_chart(series: Mapping[str, Any]) -> Chart | None:
    at_s = series["at_s"]
    values = charts.rates(at_s, series["origin_bytes"])
    if not any(values):
        return None
    name = "read from the origin"
    scale = charts.size_scale(max(values))
    shapes = charts.stacked(at_s, [Series("origin", name, values)], scale.end)
    text = f"At most {format_size(max(values))} per second were read from the origin."
    scale = scale._replace(unit=f"{scale.unit}/s")
    texts = ("Rate of the origin", text, "bytes")
    return _timed(texts, scale, at_s, shapes, [("origin", name)])


def _tiers_chart(series: Mapping[str, Any]) -> Chart | None:
    at_s = series["at_s"]
    drawn = [
        Series(
            f"tier{number % 4}",
            f"{short(tier['name'], 24)}, {format_size(tier['capacity_bytes'])}",
            [used / tier["capacity_bytes"] for used in tier["used_bytes"]],
        )
        for number, tier in enumerate(series["tiers"])
        if tier["capacity_bytes"]
    ]
    if not drawn:
        return None
    scale = charts.share_scale()
    shapes = charts.lines(at_s, drawn, scale.end)
    legend = [(one.style, one.name) for one in drawn]
    ends = [f"{one.name}: {percent(one.values[-1])} full" for one in drawn]
    text = f"At the end {', '.join(ends)}."
    return _timed(
        ("Use of the tiers", text, "of capacity"), scale, at_s, shapes, legend
    )


def _timed(
    texts: tuple[str, str, str],
    scale: charts.Scale,
    at_s: Sequence[float],
    shapes: Sequence[Shape],
    legend: Sequence[tuple[str, str]],
) -> Chart:
    """Return a chart over the time since the start of the run.

    Args:
        texts: its title, its description, and the title of its vertical axis.
    """
    title, text, rises = texts
    across = charts.time_scale(at_s[-1])
    return Chart(
        title=title,
        text=text,
        rises=charts.titled(rises, scale.unit),
        runs=f"time since the start ({across.unit})",
        y_ticks=scale.ticks,
        x_ticks=across.ticks,
        shapes=tuple(shapes),
        legend=tuple(legend),
    )


# -- passes ---------------------------------------------------------------------------

_SEVERAL_NODES: Final = (
    "The opens of all nodes are counted together. Where each node opens every file, "
    "one pass of the job is a pass here for each node."
)


def passes(report: Report) -> Section | None:
    """Return the section with the passes over the dataset."""
    rows = report.get("passes")
    if not rows:
        return None
    times = [pass_s(row) for row in rows]
    most = max(time or 0.0 for time in times) or 1.0
    cells = [
        (
            figure(report, f"passes.{place}.number"),
            figure(report, f"passes.{place}.began_s"),
            figure_of(times[place], "duration"),
            Bar((times[place] or 0.0) / most, "plain"),
            figure(report, f"passes.{place}.ready_share"),
            Bar(row.get("ready_share") or 0.0, "ready"),
            figure(report, f"passes.{place}.opens"),
            figure(report, f"passes.{place}.files"),
        )
        for place, row in enumerate(rows)
    ]
    titles = ("pass", "began after", "time", "", "ready", "", "opens", "files")
    half = _PASSES_MAX // 2
    note = ""
    if len(cells) > _PASSES_MAX:
        note = f"{many(len(cells) - 2 * half, 'passes')} between are left out here."
        cells = [*cells[:half], *cells[-half:]]
    blocks: list[Block] = [Grid(titles, tuple(cells), frozenset(), note)]
    if len(report.get("nodes") or ()) > 1:
        blocks.append(Lines((_SEVERAL_NODES,)))
    if len(rows) > _PASSES_MAX:
        last = [time for time in times[-_COLUMNS_MAX:] if time is not None]
        if len(last) == len(times[-_COLUMNS_MAX:]):
            blocks.append(_pass_columns(last, len(rows)))
    return Section("passes", "Passes over the dataset", blocks)


def _pass_columns(times: Sequence[float], count: int) -> Chart:
    first = count - len(times) + 1
    names = [str(number) for number in range(first, count + 2)]
    scale = charts.duration_scale(max(times))
    shortest, longest = format_duration(min(times)), format_duration(max(times))
    text = f"From {shortest} to {longest}."
    if first > 1:
        text = f"The last {len(times)} passes: from {shortest} to {longest}."
    axes = charts.Axes("time", "number of the pass", names, scale)
    series = Series("plain", "", times, "duration")
    return charts.columns("Time of each pass", text, axes, [series])
