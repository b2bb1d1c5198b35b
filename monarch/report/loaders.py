"""The part of a report about loaders: sums over ranks and nodes, and text lines."""

from collections import Counter
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
            *("memory_bytes", "restarts", "retries", "hedges", "store_reconnects"),
        )
    }
    most = {
        name: max(getattr(one, name), getattr(other, name))
        for name in (
            *("wait_p50_s", "wait_p99_s", "wait_max_s", "waited_s"),
            *("store_delay_p50_s", "store_delay_p99_s", "store_window"),
        )
    }
    served = Counter(served_by(one))
    served.update(served_by(other))
    least = min(one.utilization_min, other.utilization_min)
    rank = slower.slowest_rank if slower.ranks else other.slowest_rank
    return LoaderFigures(
        **sums,
        **most,
        slowest_rank=rank,
        utilization_min=least,
        store_servers=tuple(served),
        store_served=tuple(served.values()),
    )


def served_by(figures: LoaderFigures) -> dict[str, int]:
    """Return the number of requests that each server of a store has answered."""
    return dict(zip(figures.store_servers, figures.store_served, strict=True))


def loader_summary(figures: LoaderFigures) -> dict[str, Any] | None:
    """Return the figures by name, None if no program has used a loader."""
    if not figures.ranks:
        return None
    read = ratio(figures.request_bytes, figures.bytes)
    lists = {
        "store_servers": list(figures.store_servers),
        "store_served": list(figures.store_served),
    }
    return {**plain(figures), **lists, "read_per_delivered": read}


def loader_lines(report: Report) -> list[str]:
    """Return the lines of a text report about loaders."""
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
            text += f"; read {share:.2f} x the delivered bytes"
        lines.append(text)
    if found["store_delay_p50_s"]:
        lines.append(_store_line(found))
    if found["restarts"]:
        readers = many(found["restarts"], "readers")
        lines.append(f"  loaders: {readers} had to be replaced")
    return lines


def _store_line(found: Mapping[str, Any]) -> str:
    usual, late = (
        format_duration(found[f"store_delay_{name}_s"]) for name in ("p50", "p99")
    )
    served = zip(found["store_servers"], found["store_served"], strict=True)
    total = sum(found["store_served"])
    shares = [f"{name} {percent(ratio(count, total))}" for name, count in served]
    return (
        f"  loaders: the store answered in {usual} (p50), {late} (p99), up to "
        f"{many(found['store_window'], 'requests')} in flight; "
        f"{many(found['retries'], 'retries')}, {many(found['hedges'], 'hedges')}, "
        f"{many(found['store_reconnects'], 'lost connections')}; by server: "
        f"{', '.join(shares) or 'unknown'}"
    )
