"""The first figures of a report: measured ones, and an estimate of the time saved."""

from collections.abc import Mapping
from typing import Any, Final

from monarch.report.model import Snapshot, ratio

RATE_BYTES_MIN: Final = 1 << 20
RATE_S_MIN: Final = 0.01
"""With fewer bytes or a shorter time, the rate of the origin is unknown."""


def headline(
    snapshot: Snapshot, hits: Mapping[str, Any], large: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the share of ready opens, the reads of the origin, and the time saved.

    Opens of large Files whose reads are served by Block are not part of the share: they
    never wait, and `reads` has the sources of their bytes.

    Args:
        hits: the opens of all other Files, by their sources.
        large: the reads of large Files.
    """
    counters, size = snapshot.counters, snapshot.run.bytes
    exact = snapshot.tally["origin_read_bytes"] + counters["bytes_read_origin"]
    opened = hits["origin_opened_bytes"]
    unseen = large["origin_unseen_opens"]
    unseen_bytes = counters["bytes_blocks"] if unseen else 0
    is_known = not opened and not unseen_bytes
    return {
        "ready_share": hits["by_opens"],
        "opens": hits["opens"],
        "origin_bytes": exact,
        "origin_opens": hits["origin_opens"],
        "origin_opened_bytes": opened,
        "origin_unseen_opens": unseen,
        "origin_unseen_bytes": unseen_bytes,
        "origin_multiple": ratio(exact, size) if is_known else None,
        "origin_multiple_max": ratio(exact + opened + unseen_bytes, size),
        "time_saved": time_saved(snapshot),
    }


def _family(counters: Mapping[str, int], start: str) -> int:
    return sum(count for name, count in counters.items() if name.startswith(start))


# -- the estimate ---------------------------------------------------------------------


def time_saved(snapshot: Snapshot) -> dict[str, Any]:
    """Return the time that reading the same bytes from the origin would have cost.

    It is an estimate: the bytes that programs read without the origin, divided by the
    measured rate of the origin, minus the start-up, and minus the waits of a process
    beyond the time of the bytes read from the origin, for which programs would have
    waited without Monarch, too. Whether opened files were read whole is unknown: the
    bytes that read calls returned are the upper limit.
    """
    avoided = _avoided_bytes(snapshot)
    rate = _origin_rate(snapshot)
    active = sum(process.count for process in snapshot.processes if process.active)
    total_s = sum(wait.total_ns for wait in snapshot.wait_totals) / 1e9
    waits_s = total_s / max(1, active)
    found: dict[str, Any] = {
        "seconds": None,
        "avoided_bytes": avoided,
        "origin_bytes_per_s": rate,
        "waits_s": waits_s,
        "startup_s": snapshot.run.startup_s,
        "reason": "",
    }
    if not snapshot.run.read_calls_bytes:
        return found | {"reason": "the programs ended before their reads were sampled"}
    if rate is None:
        return found | {"reason": "too little was read to know the origin's rate"}
    given_s = snapshot.tally["origin_read_bytes"] / rate
    lost_s = max(0.0, waits_s - given_s) + snapshot.run.startup_s
    saved = avoided / rate - lost_s
    return found | {"seconds": max(0.0, saved)}


def _avoided_bytes(snapshot: Snapshot) -> int:
    """Return the maximum bytes that programs have read, minus those of the origin."""
    counters = snapshot.counters
    opened = _family(counters, "bytes_hit_tier")
    opened += counters["bytes_peer_hit"] + counters["bytes_miss"]
    opened += counters["bytes_unpacked"]
    opened += counters["bytes_local"]
    taken = snapshot.run.read_calls_bytes - counters["bytes_read_origin"]
    return max(0, min(opened, taken) - snapshot.tally["origin_read_bytes"])


def _origin_rate(snapshot: Snapshot) -> float | None:
    """Return the rate at which all nodes together read the origin."""
    size = snapshot.tally["origin_read_bytes"]
    busy_s = snapshot.tally["origin_busy_ns"] / 1e9
    if size < RATE_BYTES_MIN or busy_s < RATE_S_MIN:
        return None
    return size * max(1, len(snapshot.nodes)) / busy_s
