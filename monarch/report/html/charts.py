"""Charts as paths of SVG: series over time, and columns of a histogram.

All are drawn into a field of WIDTH by HEIGHT units, which the page stretches. So the
shapes need no font, and texts stay readable on a narrow screen.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from monarch.report.figures import written
from monarch.report.html.blocks import Chart, Shape, Tick

WIDTH: Final = 1000
HEIGHT: Final = 200
LOG: Final = "log scale"
"""The unit in the title of an axis on which equal distances are equal factors."""
TICKS: Final = 4
_TIME_TICKS: Final = 6
_GAP: Final = 0.12
"""The share of a column's width that stays free on each side."""
_SPANS: Final = ((1, "s"), (60, "min"), (3600, "h"), (86400, "d"))
_SIZES: Final = tuple(
    (1024**power, unit) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))
)
_COUNTS: Final = (
    (1, ""),
    (10**3, "thousands"),
    (10**6, "millions"),
    (10**9, "billions"),
)


class Scale(NamedTuple):
    """An axis from 0 to its end.

    Attributes:
        end: the value at its end.
        unit: the unit of its numbers; "": none.
        ticks: its marks.
    """

    end: float
    unit: str
    ticks: tuple[Tick, ...]


class Series(NamedTuple):
    """Values over time.

    Attributes:
        style: the name of its colour.
        name: its name in the legend.
        kind: the kind of its values, as in `figures.kind_of`.
    """

    style: str
    name: str
    values: Sequence[float]
    kind: str = "count"


def size_scale(most: float) -> Scale:
    """Return an axis of bytes."""
    return _scale(most, _SIZES)


def count_scale(most: float) -> Scale:
    """Return an axis of counts, whose marks are whole."""
    return _scale(most, _COUNTS, is_whole=True)


def rate_scale(most: float) -> Scale:
    """Return an axis of counts per second."""
    return _scale(most, _COUNTS)


def time_scale(seconds: float) -> Scale:
    """Return an axis of durations that ends at exactly this value."""
    return _scale(seconds, _SPANS, is_exact=True)


def duration_scale(most: float) -> Scale:
    """Return a vertical axis of durations."""
    return _scale(most, _SPANS)


def share_scale() -> Scale:
    """Return an axis of shares from 0 to 1."""
    ticks = tuple(Tick(100 - part, f"{part}") for part in (0, 25, 50, 75, 100))
    return Scale(1.0, "%", ticks)


def _scale(
    most: float,
    units: Sequence[tuple[float, str]],
    *,
    is_exact: bool = False,
    is_whole: bool = False,
) -> Scale:
    factor, unit = units[0]
    for factor_next, unit_next in units:
        if most >= factor_next * (2 if is_exact and factor_next > 1 else 1):
            factor, unit = factor_next, unit_next
    top = most / factor or 1.0
    step = _step(top / (_TIME_TICKS if is_exact else TICKS))
    if is_whole and factor == 1:
        step = max(step, 1)
    if not is_exact:
        top = step * math.ceil(top / step - 1e-9)
    count = math.floor(top / step + 1e-9)
    texts = [f"{number * step:g}" for number in range(count + 1)]
    places = [100 * number * step / top for number in range(count + 1)]
    if not is_exact:
        places = [100 - place for place in places]  # from the top
    return Scale(top * factor, unit, tuple(map(Tick, places, texts)))


def _step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is large enough."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least * (1 - 1e-9))


def rates(at_s: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return the growth rate of a sum before each moment; the first starts at 0."""
    before_s, before, found = 0.0, 0.0, []
    for moment, value in zip(at_s, values, strict=True):
        took_s = moment - before_s
        found.append(max(0.0, value - before) / took_s if took_s > 0 else 0.0)
        before_s, before = moment, value
    return found


def stacked(at_s: Sequence[float], series: Sequence[Series], end: float) -> list[Shape]:
    """Return stacked areas, each value held since the previous moment.

    The last one of the series is the lowest area.
    """
    sums = [0.0] * len(at_s)
    shapes = []
    for one in reversed(series):
        sums = [low + value for low, value in zip(sums, one.values, strict=True)]
        if any(one.values):
            shapes.append(Shape(_steps(at_s, sums, end), one.style))
    return shapes[::-1]  # the highest first: the others are drawn over it


def _steps(at_s: Sequence[float], values: Sequence[float], end: float) -> str:
    last_s = at_s[-1] or 1.0
    path, height = [f"M0 {HEIGHT}"], HEIGHT
    for moment, value in zip(at_s, values, strict=True):
        y = _down(value, end)
        if y != height:
            path.append(f"V{y}")
        height = y
        path.append(f"H{_across(moment, last_s)}")
    return "".join([*path, f"V{HEIGHT}Z"])


def lines(at_s: Sequence[float], series: Sequence[Series], end: float) -> list[Shape]:
    """Return a line for each of the series, from 0 at the start."""
    last_s = at_s[-1] or 1.0
    shapes = []
    for one in series:
        points = [
            f"{_across(moment, last_s)} {_down(value, end)}"
            for moment, value in zip(at_s, one.values, strict=True)
        ]
        shapes.append(Shape(f"M0 {HEIGHT}L{' '.join(points)}", one.style, is_line=True))
    return shapes


def marks(moments: Sequence[float], last_s: float, style: str) -> Shape:
    """Return vertical lines at moments."""
    path = "".join(f"M{_across(moment, last_s)} 0V{HEIGHT}" for moment in moments)
    return Shape(path, style, is_line=True)


def _across(value: float, end: float) -> int:
    return round(WIDTH * min(max(value / end, 0.0), 1.0))


def _down(value: float, end: float) -> int:
    return round(HEIGHT * (1 - min(max(value / end, 0.0), 1.0)))


class Axes(NamedTuple):
    """The two axes of columns.

    Attributes:
        rises: the title of the vertical axis, without its unit.
        runs: the title of the horizontal axis, with LOG if ranges grow by a factor.
        names: the left edge of each column, and the right edge of the last.
        scale: the vertical axis.
    """

    rises: str
    runs: str
    names: Sequence[str]
    scale: Scale


def totals(series: Sequence[Series]) -> list[float]:
    """Return the heights of stacked columns."""
    return [sum(values) for values in zip(*(s.values for s in series), strict=True)]


def columns(title: str, text: str, axes: Axes, series: Sequence[Series]) -> Chart:
    """Return columns of equal width; several series are stacked.

    Args:
        text: a description for readers who cannot see them.
    """
    names, scale = axes.names, axes.scale
    count = len(names) - 1
    shapes = []
    for place in range(count):
        low = 0.0
        for one in series:
            high = low + one.values[place]
            if high > low:
                path = _column((place, low, high), count, scale.end)
                value = written(one.values[place], one.kind)
                hint = f"{names[place]} to {names[place + 1]}: {value} {one.name}"
                shapes.append(Shape(path, one.style, title=hint.rstrip()))
            low = high
    every = math.ceil(len(names) / (TICKS + 1))
    ticks = [Tick(100 * n / count, names[n]) for n in range(0, len(names), every)]
    legend = [(one.style, one.name) for one in series if one.name and any(one.values)]
    return Chart(
        title=title,
        text=text,
        rises=titled(axes.rises, scale.unit),
        runs=axes.runs,
        y_ticks=scale.ticks,
        x_ticks=tuple(ticks),
        shapes=tuple(shapes),
        legend=tuple(legend),
    )


def _column(box: tuple[int, float, float], count: int, end: float) -> str:
    place, low, high = box
    left = round(WIDTH * (place + _GAP) / count)
    right = max(left + 1, round(WIDTH * (place + 1 - _GAP) / count))
    top = min(_down(high, end), _down(low, end) - 1)
    return f"M{left} {_down(low, end)}V{top}H{right}V{_down(low, end)}Z"


def titled(title: str, unit: str) -> str:
    """Return the title of an axis with its unit: `opens per second (thousands)`."""
    return f"{title} ({unit})" if unit else title
