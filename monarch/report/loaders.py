"""The part of a report about loaders: sums over ranks and nodes, and its lines."""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from monarch.report.format import many, percent
from monarch.report.model import LoaderFigures, Report, plain, ratio
from monarch.units import format_count, format_duration, format_size


def together(figures: Iterable[LoaderFigures]) -> LoaderFigures:
    """Return the figures of several loaders, or nodes, as one."""
    return reduce(_added, figures, LoaderFigures())


def _added(one: LoaderFigures, other: LoaderFigures) -> LoaderFigures:
    slower = one if one.waited_s >= other.waited_s else other
    sums = {
        name: getattr(one, name) + getattr(other, name)
        for name in (
            *("ranks", "batches", "records", "bytes", "requests", "request_bytes"),
            *("memory_bytes", "restarts"),
        )
    }
    most = {
        name: max(getattr(one, name), getattr(other, name))
        for name in ("wait_p50_s", "wait_p99_s", "wait_max_s", "waited_s")
    }
    least = min(one.utilization_min, other.utilization_min)
    rank = slower.slowest_rank if slower.ranks else other.slowest_rank
    return LoaderFigures(**sums, **most, slowest_rank=rank, utilization_min=least)


def loader_summary(figures: LoaderFigures) -> dict[str, Any] | None:
    """Return the figures by name, None if no program has used a loader."""
    if not figures.ranks:
        return None
    read = ratio(figures.request_bytes, figures.bytes)
    return {**plain(figures), "read_per_delivered": read}


def loader_lines(report: Report) -> list[str]:
    """Return what the text of a report says about loaders."""
    found: Mapping[str, Any] | None = report.get("loader")
    if not found:
        return []
    waits = [format_duration(found[f"wait_{name}_s"]) for name in ("p50", "p99", "max")]
    lines = [
        f"  loaders: {many(found['ranks'], 'ranks')} took "
        f"{many(found['batches'], 'batches')} ({format_size(found['bytes'])}); a step "
        f"waited {waits[0]} (p50), {waits[1]} (p99), {waits[2]} (longest); rank "
        f"{found['slowest_rank']} waited {format_duration(found['waited_s'])} in all"
    ]
    if found["requests"]:
        size = format_size(found["request_bytes"] // found["requests"])
        text = (
            f"  loaders: {format_count(found['requests'])} requests of {size} on "
            f"average; ranks computed at least {percent(found['utilization_min'])} of "
            f"their time; {format_size(found['memory_bytes'])} of memory"
        )
        if (share := found["read_per_delivered"]) is not None:
            text += f"; read {share:.2f} x of what was given"
        lines.append(text)
    if found["restarts"]:
        readers = many(found["restarts"], "readers")
        lines.append(f"  loaders: {readers} had to be replaced")
    return lines
