"""The table of metrics: complete, in base units, and documented."""

import re

from monarch.metrics import (
    PROGRAM_COUNTERS,
    TEXTS,
    UNITS,
    agent_metric,
    metrics,
    metrics_reference,
)
from monarch.native import COUNTERS

TIERS = re.compile(r"(opens|bytes)_hit_tier\d")


def test_each_counter_of_programs_is_a_metric():
    known = {one.name for one in metrics()}
    names = [spec.name for spec in COUNTERS if not TIERS.fullmatch(spec.name)]

    assert set(names) == set(PROGRAM_COUNTERS), "say in PROGRAM_COUNTERS what it is"
    assert {metric for metric, _ in PROGRAM_COUNTERS.values()} <= known


def test_labels_are_as_many_as_the_metric_has():
    labels = {one.name: one.labels for one in metrics()}

    for metric, values in PROGRAM_COUNTERS.values():
        assert len(values) == len(labels[metric]), metric


def test_names_are_unique_and_follow_the_rules_of_prometheus():
    names = [one.full_name for one in metrics()]

    assert len(names) == len(set(names))
    for one in metrics():
        assert re.fullmatch(r"monarch_[a-z][a-z_]*[a-z]", one.full_name)
        assert one.full_name.endswith("_total") == (one.kind == "counter")
        if one.unit in ("seconds", "bytes"):
            assert one.unit in one.name, f"{one.name} names no unit"
        assert "_ns" not in one.name


def test_each_counter_of_the_agent_is_a_metric_in_base_units():
    assert agent_metric("busy_ns").full_name == "monarch_busy_seconds_total"
    assert agent_metric("staged_bytes").full_name == "monarch_staged_bytes_total"
    assert len({agent_metric(name).name for name in UNITS}) == len(TEXTS)


def test_the_reference_has_a_row_for_each_metric():
    lines = metrics_reference().splitlines()

    rows = [line for line in lines if line.startswith("| `monarch_")]
    assert len(rows) == len(list(metrics()))
    assert all(row.count("|") == 6 for row in rows)
    assert "| `monarch_tier_used_bytes` | gauge | `tier` | bytes | " in "\n".join(rows)
