"""The values of all metrics of an agent at one moment; see monarch/metrics.py."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from monarch import __version__
from monarch.agent.live import Live
from monarch.agent.stats import AgentStats
from monarch.metrics import PROGRAM_COUNTERS, agent_metric
from monarch.native import AgentState, wait_bucket_ns

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_HIT: Final = {"opens": "opens_hit_tier", "opened_bytes": "bytes_hit_tier"}


class Sample(NamedTuple):
    """One value of a metric.

    Attributes:
        metric: its name in the table, without prefix.
        labels: their values, in the order of the table.
    """

    metric: str
    labels: tuple[str, ...]
    value: float


class Histogram(NamedTuple):
    """The counts of a histogram.

    Attributes:
        buckets: the upper bound of each, and the number of values up to it.
        total: the sum of all values.
    """

    buckets: tuple[tuple[float, int], ...]
    total: float


def samples(live: Live) -> list[Sample]:
    """Return the values of all metrics except the histogram."""
    stats = live.stats()
    return [
        *_about_agent(live, stats),
        *_about_files(live, stats),
        *_about_programs(stats),
        *(
            Sample(agent_metric(name).name, (), _base(name, value))
            for name, value in stats.tally().items()
            if name in stats.counters.as_dict()
        ),
    ]


def waits(stats: AgentStats) -> Histogram:
    """Return the histogram of the waits of opens."""
    counts, total_ns = stats.processes.waits()
    ends = [wait_bucket_ns(number) / 1e9 for number in range(1, len(counts))]
    below, so_far = [], 0
    for end, count in zip([*ends, float("inf")], counts, strict=True):
        so_far += count
        below.append((end, so_far))
    return Histogram(tuple(below), total_ns / 1e9)


def _base(name: str, value: float) -> float:
    """Return a counter in base units."""
    return value / 1e9 if name.endswith("_ns") else value


def _about_agent(live: Live, stats: AgentStats) -> Iterator[Sample]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Sample("info", (__version__, stats.label.node), 1)
    for state in AgentState:
        yield Sample("state", (state.name.lower(),), int(state is live.state))
    yield Sample("start_time_seconds", (), stats.label.started_s)
    yield Sample("agent_cpu_seconds", (), used.ru_utime + used.ru_stime)
    yield Sample("agent_resident_bytes", (), _resident_bytes())
    found = Counter(node["standing"] for node in stats.nodes())
    for standing, count in (found or {"joined": 1}).items():
        yield Sample("nodes", (standing,), count)


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def _about_files(live: Live, stats: AgentStats) -> Iterator[Sample]:
    namespace, found = stats.namespace, live.progress(stats)
    inventory = namespace.inventory if namespace is not None else None
    yield Sample("scanned_names", (), live.scanned_names())
    yield Sample("dataset_files", (), len(inventory) if inventory is not None else 0)
    size = inventory.total_bytes if inventory is not None else 0
    yield Sample("dataset_bytes", (), size)
    yield Sample("kept_files", (), found.kept_files)
    yield Sample("kept_bytes", (), found.kept_bytes)
    yield Sample("ready_files", (), found.files)
    yield Sample("ready_bytes", (), found.bytes)
    yield Sample("coming_bytes", (), found.coming_bytes)
    in_flight = stats.stager.in_flight if stats.stager is not None else 0
    yield Sample("transfers_in_flight", (), in_flight)
    for tier in stats.tier_figures():
        yield Sample("tier_capacity_bytes", (tier.name,), tier.capacity_bytes)
        yield Sample("tier_used_bytes", (tier.name,), tier.used_bytes)
        yield Sample("tier_files", (tier.name,), tier.files)
        yield Sample("tier_in_service", (tier.name,), int(tier.in_service))
        yield Sample("tier_lru_files", (tier.name,), tier.lru_files)
        yield Sample("tier_lru_bytes", (tier.name,), tier.lru_bytes)


def _about_programs(stats: AgentStats) -> Iterator[Sample]:
    processes, seen = stats.processes, Counter[str]({"true": 0, "false": 0})
    for (_, active), count in processes.seen().items():
        seen[str(active).lower()] += count
    yield Sample("processes_running", (), processes.living)
    yield Sample("untracked_processes", (), processes.unslotted())
    for text, count in seen.items():
        yield Sample("processes", (text,), count)
    totals = processes.totals()
    names = [tier.name for tier in stats.setup.tiers]
    yield from _hits(totals, names)
    for name, (metric, labels) in PROGRAM_COUNTERS.items():
        yield Sample(metric, labels, totals[name])


def _hits(totals: Mapping[str, int], names: list[str]) -> Iterator[Sample]:
    """Yield opens answered at once; the Pool's counter follows those of the Tiers."""
    for metric, start in _HIT.items():
        counts: Counter[tuple[str, str]] = Counter()
        found = (one for one in totals if one.startswith(start))
        for number, name in enumerate(found):
            in_tier = number < len(names)
            label = ("tier", names[number]) if in_tier else ("pool", "")
            counts[label] += totals[name]
        for labels, count in counts.items():
            yield Sample(metric, labels, count)
