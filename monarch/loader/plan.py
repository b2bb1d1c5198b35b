"""How far ahead a loader requests, and its memory: pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from monarch.errors import UsageError
from monarch.loader.buffers import rounded
from monarch.loader.options import MIB, Options
from monarch.loader.portions import ALIGN, GAP_ALONE, ROW
from monarch.records.groups import Groups
from monarch.records.keys import UNKNOWN_LENGTH

_AHEAD_MIN: Final = 8
_BATCHES_AHEAD: Final = 8
_LATE: Final = 8
"""Factor of the held batches if a late Record can hold the memory of its batch."""
AUTO_BYTES: Final = 256 * MIB
"""Default memory of an automatic window, unless memory_limit is given."""
AUTO_REQUESTS: Final = 16384
GUESSED_BYTES: Final = 64 << 10
"""Assumed size of a Record of unknown length."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How far ahead a loader requests.

    Attributes:
        memory_limit: bytes of all buffers of a node.
        spare: how many of these the mixed Groups do not need.
        positions: number of portions that fit into it.
        batches: batches to request ahead; None: as many as fit.
        window: maximum requests in flight to a store.
    """

    memory_limit: int
    spare: int
    positions: int
    batches: int | None
    window: int


def plan(given: Options, groups: Groups, groups_mixed: int) -> Plan:
    """Return the plan for some options.

    Args:
        groups_mixed: number of Groups that are mixed with each other.

    Raises:
        UsageError: memory_limit is too small.
    """
    largest = rounded(_largest_portion(given, groups))
    if given.shuffle != "global":
        least, usual = groups_mixed + 1, _usual(groups_mixed)
        limit = _limit(given, least, largest, usual * largest)
        window = _window(given, limit, largest // max(1, given.batch_size))
        spare, positions = limit - usual * largest, max(1, limit // largest)
        return Plan(limit, max(0, spare), positions, given.prefetch_batches, window)
    if groups.index.keys is not None:
        return _plan_of_store(given, groups, largest)
    batches = max(_or(given.prefetch_batches, _BATCHES_AHEAD), given.lateness)
    limit = _limit(given, 2, largest, _held(given, batches) * largest)
    ahead = given.prefetch_batches
    batches = batches if ahead is None else ahead
    return Plan(limit, 0, max(1, limit // largest), batches, 1)


def spare_bytes(given: Options) -> int:
    """Return `spare` of a plan as far as it is known before the index is."""
    if given.shuffle == "global":
        return 0
    usual = _usual(given.groups_in_flight) * rounded(given.group_bytes)
    return max(0, (given.memory_limit or 0) - usual)


def _usual(mixed: int) -> int:
    """Return the usual number of Groups in memory for a number of mixed ones."""
    return mixed + max(mixed, _AHEAD_MIN)


def _plan_of_store(given: Options, groups: Groups, largest: int) -> Plan:
    """Return the plan if each Record is a request to a store."""
    mean = _mean_batch(given, groups)
    if given.window == "auto":
        usual = max(AUTO_BYTES, 4 * largest)
        limit = _limit(given, 2, largest, usual)
        fits = min(limit // mean, AUTO_REQUESTS // given.batch_size)
        batches = _or(given.prefetch_batches, max(_BATCHES_AHEAD, fits))
    else:
        wanted = -(-given.window // given.batch_size) + 1
        batches = _or(given.prefetch_batches, max(wanted, given.lateness))
        limit = _limit(given, 2, largest, _held(given, batches) * largest)
    window = _window(given, limit, mean // given.batch_size)
    return Plan(limit, 0, max(1, limit // mean), batches, window)


def _held(given: Options, batches: int) -> int:
    """Return the number of batches in memory for a number requested ahead."""
    return (batches + 2) * (_LATE if given.lateness else 1)


def _window(given: Options, limit: int, record_bytes: int) -> int:
    """Return the maximum requests in flight to a store."""
    if given.window != "auto":
        wanted = given.window
    else:
        wanted = min(AUTO_REQUESTS, max(1, limit // max(1, record_bytes)))
    return min(wanted, given.readers_max or wanted)


def _limit(given: Options, least: int, largest: int, usual: int) -> int:
    limit = given.memory_limit
    if limit is None:
        return usual
    if limit < least * largest:
        raise UsageError(
            f"memory_limit={limit} is less than the {least * largest} bytes that "
            f"{least} groups of {largest} bytes need; raise it, or lower "
            "groups_in_flight or group_bytes"
        )
    return limit


def _largest_portion(given: Options, groups: Groups) -> int:
    """Return the bytes of the largest portion, with assumptions on unknown lengths."""
    index = groups.index
    if not len(index):
        return ALIGN
    row = ROW.itemsize + ALIGN
    if given.shuffle == "global":
        most = int(index.units["length"].max())
        if index.keys is None:
            most += GAP_ALONE
        elif most == UNKNOWN_LENGTH:
            most = GUESSED_BYTES
        return given.batch_size * (most + row)
    sizes = groups.request_bytes() + groups.record_counts() * row
    return int(sizes.max()) + ALIGN


def _mean_batch(given: Options, groups: Groups) -> int:
    """Return the bytes of an average batch."""
    lengths = groups.index.units["length"]
    known = lengths[lengths != UNKNOWN_LENGTH]
    mean = float(known.mean()) if len(known) else GUESSED_BYTES
    return rounded(int(given.batch_size * (mean + ROW.itemsize + ALIGN)))


def _or(value: int | None, other: int) -> int:
    return other if value is None else value
