"""The figures of a job over time: samples on one grid, and passes over the dataset."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from monarch.report.model import Moment, TierFigures, ratio

POINTS_MAX: Final = 512
PASSES_MAX: Final = 256
FILES_MIN: Final = 2
"""With fewer files, each open would be a pass."""

_COUNTS: Final = ("ready", "waited", "origin", "blocks", "outside")
_BYTES: Final = ("staged_bytes", "origin_bytes")


def thinned(moments: Sequence[Moment], points_max: int) -> tuple[Moment, ...]:
    """Return every n-th sample up to the last; n is the least power of 2 that fits."""
    step = 1
    while -(-len(moments) // step) > points_max:
        step *= 2
    return tuple(moments[::-1][::step][::-1])


def summed(parts: Sequence[tuple[float, Sequence[Moment]]]) -> tuple[Moment, ...]:
    """Return the sums over nodes, on the grid of the node with the most samples.

    Args:
        parts: the delay of the start of each node after the first, and its samples.
    """
    grids = [(late_s, rows) for late_s, rows in parts if rows]
    if not grids:
        return ()
    late_s, grid = max(grids, key=lambda part: len(part[1]))
    times = [late_s + row.at_s for row in grid]
    last_s = max(late + rows[-1].at_s for late, rows in grids)
    if last_s > times[-1]:
        times[-1] = last_s
    columns = [_at(late, rows, times) for late, rows in grids]
    return tuple(
        _added(at_s, rows)
        for at_s, rows in zip(times, zip(*columns, strict=True), strict=True)
    )


def _at(
    late_s: float, moments: Sequence[Moment], times: Sequence[float]
) -> Iterator[Moment]:
    """Yield the latest sample of a node at each time."""
    known = [late_s + moment.at_s for moment in moments]
    for at_s in times:
        place = bisect_right(known, at_s)
        yield moments[place - 1] if place else Moment(0.0)


def _added(at_s: float, rows: Sequence[Moment]) -> Moment:
    tiers = max(len(row.tiers) for row in rows)
    return replace(
        Moment(at_s),
        **{name: sum(getattr(row, name) for row in rows) for name in _COUNTS + _BYTES},
        tiers=tuple(
            sum(row.tiers[n] for row in rows if n < len(row.tiers))
            for n in range(tiers)
        ),
    )


def _period_s(moments: Sequence[Moment]) -> float:
    """Return the usual time between samples, without the dense ones at the start."""
    spans = [b.at_s - a.at_s for a, b in pairwise(moments)]
    later = sorted(spans[len(spans) // 2 :])
    return later[len(later) // 2] if later else moments[0].at_s


def columns(
    moments: Sequence[Moment], tiers: Sequence[TierFigures]
) -> dict[str, Any] | None:
    """Return the samples as JSON, each figure as a list; None without samples."""
    if not moments:
        return None
    return {
        "period_s": _period_s(moments),
        "at_s": [round(moment.at_s, 3) for moment in moments],
        "opens": {name: [getattr(m, name) for m in moments] for name in _COUNTS},
        **{name: [getattr(m, name) for m in moments] for name in _BYTES},
        "tiers": [
            {
                "name": tier.name,
                "capacity_bytes": tier.capacity_bytes,
                "used_bytes": [m.tiers[n] if n < len(m.tiers) else 0 for m in moments],
            }
            for n, tier in enumerate(tiers)
        ],
    }


def passes(moments: Sequence[Moment], files: int) -> list[dict[str, Any]]:
    """Return the passes over the dataset, each with as many opens as files.

    Times are interpolated between samples; those of a pass that is shorter than the
    time between two samples are None.
    """
    total = _opens(moments[-1]) if moments else 0
    if files < FILES_MIN or not total:
        return []
    count = min(PASSES_MAX, -(-total // files))
    return [_pass(moments, number, files, total) for number in range(1, count + 1)]


def _pass(
    moments: Sequence[Moment], number: int, files: int, total: int
) -> dict[str, Any]:
    first, last = (number - 1) * files, min(number * files, total)
    began = _when(moments, first, begins=True)
    ended = _when(moments, last, begins=False)
    # Opens that read large files by Block are never ready, and never wait.
    blocks = min(ended.blocks - began.blocks, last - first)
    whole = last - first - blocks
    ready = min(ended.ready - began.ready, whole)
    at_s: tuple[float | None, ...] = round(began.at_s, 3), round(ended.at_s, 3)
    if ended.at_s - began.at_s < max(
        _gap_s(moments, one.at_s) for one in (began, ended)
    ):
        at_s = None, None
    return {
        "number": number,
        "began_s": at_s[0],
        "ended_s": at_s[1],
        "opens": last - first,
        "files": files,
        "ready_share": ratio(ready, whole),
    }


def pass_s(row: Mapping[str, Any]) -> float | None:
    """Return the time of a pass, None if it is unknown."""
    began_s, ended_s = row["began_s"], row["ended_s"]
    return None if began_s is None else float(ended_s - began_s)


def _opens(moment: Moment) -> int:
    return moment.ready + moment.waited + moment.origin + moment.blocks


def _gap_s(moments: Sequence[Moment], at_s: float) -> float:
    """Return the time between the samples on both sides of a time."""
    times = [0.0, *(moment.at_s for moment in moments)]
    after = min(max(1, bisect_left(times, at_s)), len(times) - 1)
    return times[after] - times[after - 1]


def _when(moments: Sequence[Moment], opens: int, *, begins: bool) -> Moment:
    """Return the interpolated sample at a number of opens.

    Args:
        begins: at the end of the time with this number of opens, not at its start.
    """
    before = Moment(0.0)
    for moment in moments:
        reached = _opens(moment) > opens if begins else _opens(moment) >= opens
        if reached:
            span = _opens(moment) - _opens(before)
            part = (opens - _opens(before)) / span if span else 0.0
            return Moment(
                before.at_s + part * (moment.at_s - before.at_s),
                ready=before.ready + round(part * (moment.ready - before.ready)),
                blocks=before.blocks + round(part * (moment.blocks - before.blocks)),
            )
        before = moment
    return before
