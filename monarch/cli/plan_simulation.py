"""`monarch plan --simulate`: how long epochs would take, as options, JSON and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from monarch.errors import UsageError
from monarch.placement.forecast import Forecast
from monarch.placement.frequency import local_share_at_best
from monarch.placement.simulation import (
    FILL_MOST,
    ORIGIN,
    PEERS,
    Epoch,
    Reading,
    Site,
    TierRate,
    simulate,
    without_monarch,
)
from monarch.report.format import Part, Table, fitted, percent
from monarch.units import (
    UnitError,
    format_duration,
    format_size,
    parse_duration,
    parse_rate,
)

NAME_WIDTH: Final = 15
_TIER_RATES: Final = {"ram": 4 * 10**9, "ssd": 10**9}


@dataclass(frozen=True, slots=True)
class TierRoom:
    """A Tier of each node, and its capacity if it is the same everywhere."""

    name: str
    kind: str
    capacity_bytes: int


def simulation(
    options: Mapping[str, Any],
    found: Forecast,
    tiers: Sequence[TierRoom],
    epochs: int,
    fill_copies: int | None,
) -> dict[str, Any]:
    """Return the simulated epochs of a job as plain JSON.

    Args:
        tiers: of each node, fastest first.
        fill_copies: how many a node runs at once; 0: none; None: it measures this.
    """
    rates = _tier_rates(options["tier_rate"], tiers)
    site = Site(
        _rate("--origin-rate", options["origin_rate"]),
        _duration("--origin-latency", options["origin_latency"]),
        _rate("--network-rate", options["network_rate"]),
        _tiers(found, tiers, rates),
        FILL_MOST if fill_copies is None else fill_copies,
    )
    size = found.total_bytes / found.files if found.files else 1.0
    nodes = len(found.shares)
    reading = Reading(
        files=found.files,
        file_bytes=max(1.0, size),
        held=found.held_bytes / found.total_bytes if found.total_bytes else 1.0,
        nodes=nodes,
        passes=nodes if options["reads"] == "everything" else 1,
        readers=options["readers"],
        compute_s=_compute_s(options["compute"], size),
        in_readers=options["serial"],
    )
    first, later = simulate(site, reading)
    direct = without_monarch(site, reading)
    local = site.local_share
    best = local_share_at_best(local, epochs, 1 if reading.passes > 1 else nodes)
    return {
        "reads": options["reads"],
        "epochs": epochs,
        "first": _epoch(first),
        "later": _epoch(later),
        "without": _epoch(direct),
        "seconds": first.seconds + (epochs - 1) * later.seconds,
        "seconds_without": epochs * direct.seconds,
        "local": {"share": local, "share_at_best": best},
    }


def simulation_parts(found: Mapping[str, Any]) -> list[Part]:
    """Return a simulation as lines and a table."""
    rows = [("first epoch", found["first"])]
    if found["epochs"] > 1:
        rows.append(("each later epoch", found["later"]))
    rows.append(("each without Monarch", found["without"]))
    tiers = [name for name in found["later"]["read"] if name not in (ORIGIN, PEERS)]
    table = Table(
        ("simulated", "time", "limited by", "origin", "peers", "tiers"),
        (20, 12, 16, 10, 10, 10),
        tuple(_row(title, epoch, tiers) for title, epoch in rows),
    )
    total, direct = found["seconds"], found["seconds_without"]
    ratio = f", {total / direct:.2f} of the time" if direct else ""
    return [
        table,
        f"  all {found['epochs']:,} epochs: {format_duration(total)}; without Monarch "
        f"{format_duration(direct)}{ratio}",
        *_local(found),
    ]


def _row(title: str, epoch: Mapping[str, Any], tiers: Sequence[str]) -> tuple[str, ...]:
    read = epoch["read"]
    local = sum(read.get(name, 0) for name in tiers)
    return (
        title,
        format_duration(epoch["seconds"]),
        fitted(epoch["limited_by"], NAME_WIDTH),
        *(format_size(size) for size in (read[ORIGIN], read[PEERS], local)),
    )


def _local(found: Mapping[str, Any]) -> list[Part]:
    """Return a line on the gain of another Placement, if any."""
    share, best = found["local"]["share"], found["local"]["share_at_best"]
    if found["reads"] == "everything" or best - share < 0.01:
        return []
    return [
        f"  a node finds {percent(share)} of what it reads in its own tiers; if it "
        f"kept the files that it reads most often, {percent(best)}"
    ]


def _epoch(epoch: Epoch) -> dict[str, Any]:
    return {
        "seconds": epoch.seconds,
        "limited_by": epoch.limited_by,
        "read": dict(epoch.read),
        "origin_bytes": epoch.origin_bytes,
    }


# -- from options to values ---------------------------------------------------------


def _tiers(
    found: Forecast, tiers: Sequence[TierRoom], rates: Sequence[int]
) -> tuple[TierRate, ...]:
    """Return the share of the dataset in each Tier of an average node."""
    bytes_in = [0.0] * len(tiers)
    for share in found.shares:
        room = share.room_bytes
        for number, tier in enumerate(tiers):
            # The last Tier has the rest: capacities may be those of the node.
            last = number == len(tiers) - 1
            taken = room if last else min(room, tier.capacity_bytes)
            room -= taken
            if share.room_bytes:
                bytes_in[number] += share.held_bytes * taken / share.room_bytes
    total = found.total_bytes * len(found.shares) or 1
    return tuple(
        TierRate(tier.name, size / total, rate)
        for tier, size, rate in zip(tiers, bytes_in, rates, strict=True)
    )


def _tier_rates(text: str | None, tiers: Sequence[TierRoom]) -> list[int]:
    if text is None:
        return [_TIER_RATES[tier.kind] for tier in tiers]
    rates = [_rate("--tier-rate", part) for part in text.split(",")]
    if len(rates) != len(tiers):
        raise UsageError(f"--tier-rate: {len(rates)} rates for {len(tiers)} tiers")
    return rates


def _rate(option: str, text: str | None) -> int:
    if text is None:
        raise UsageError(f"--simulate needs {option}")
    try:
        rate = parse_rate(text)
    except UnitError as error:
        raise UsageError(f"{option}: {error}") from error
    if not rate:
        raise UsageError(f"{option}: {text!r} is no rate above 0")
    return rate


def _duration(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except UnitError as error:
        raise UsageError(f"{option}: {error}") from error


def _compute_s(text: str, file_bytes: float) -> float:
    """Return the seconds of computation for a file of mean size."""
    if "/" in text:
        return file_bytes / _rate("--compute", text)
    return _duration("--compute", text)
