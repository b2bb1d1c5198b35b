"""Advice: each piece has a figure that triggers it, and a line that can be used."""

from typing import Any

import pytest
import yaml

from monarch.config import schema
from monarch.report.advice import ADVICE_MAX, advise
from monarch.report.figures import find, with_headline
from monarch.report.model import NO_ROOM
from support import reports
from support.figures import MIB

GIB = 1 << 30


def changed(report, values):
    """The report with other values, each by its dotted path."""
    for path, value in values.items():
        *parts, last = path.split(".")
        place = report
        for part in parts:
            place = place[part]
        place[last] = value
    return report


def calm(nodes=1):
    """The report of a run that gives no reason for advice."""
    return changed(reports.good(nodes), {"waits.total_s": 0.5})


CASES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "not active": (
        {"coverage.processes": 5, "coverage.inactive": [{"program": "p", "count": 1}]},
        ("coverage.active", "srun --export=ALL"),
    ),
    "another path": (
        {"counters.opens_elsewhere": 3},
        ("counters.opens_elsewhere", "aliases: [/OTHER/PATH]"),
    ),
    "written": ({"passed_roots": ["/pfs/imagenet"]}, ("", "/pfs/imagenet")),
    "no room": (
        {"share.unplaced_bytes": 10 * GIB, "share.unplaced_files": 3},
        ("share.unplaced_bytes", "capacity: 11GiB"),
    ),
    "no room on a node alone": (
        {"unstaged": [{"reason": NO_ROOM, "files": 3, "bytes": GIB}]},
        ("", "capacity: 2GiB"),
    ),
    "no room for parts": (
        {"share.partly_left_bytes": GIB // 2},
        ("", "capacity: 1GiB"),
    ),
    "opened for writing": (
        {"opens_for_writing": 5000},
        ("opens_for_writing", 'open(path, "rb")'),
    ),
    "evicted": (
        {"agent.evicted_bytes": 5 * GIB},
        ("agent.evicted_bytes", "kind: ram, capacity: 7GiB"),
    ),
    "late": (
        {"counters.origin_early": 9000, "run.late_s": 31.4},
        ("counters.origin_early", "wait_max: 42s"),
    ),
    "large through": (
        {
            "fallbacks": [{"cause": "origin_large", "text": "", "opens": 9000}],
            "run.config": {"cold_open": {"mode": "wait"}},
        },
        ("fallbacks.origin_large.opens", "cold_open: {mode: auto}"),
    ),
    "mapped": (
        {"counters.origin_whole": 9000},
        ("counters.origin_whole", "wait_max_whole: 64GiB"),
    ),
    "waited": ({"waits.total_s": 95.0}, ("waits.total_s", "retain: 7d")),
    "waited without fill": (
        {"waits.total_s": 95.0, "run.config": {"fill": {"enabled": False}}},
        ("waits.total_s", "fill: {enabled: true}"),
    ),
    "waited with a limit": (
        {"waits.total_s": 95.0, "run.config": {"fill": {"bandwidth": "10MB/s"}}},
        ("waits.total_s", "fill: {bandwidth: unlimited}"),
    ),
    "waited with few copies": (
        {"waits.total_s": 95.0, "run.config": {"fill": {"concurrency": 2}}},
        ("waits.total_s", "fill: {concurrency: auto}"),
    ),
    "one pass": (
        {
            "passes": [{"number": 1, "began_s": 0.0, "ended_s": 9.0}],
            "headline.ready_share": 0.3,
        },
        ("headline.ready_share", "retain: 7d"),
    ),
    "slow peers": (
        {"agent.breakers_opened": 2},
        ("agent.breakers_opened", "peers: {interface: ib0, timeout: 5s}"),
    ),
    "small files": (
        {"run.bytes": MIB, "run.room_bytes": 4 * MIB},
        ("run.room_bytes", "tar -cf"),
    ),
}


def test_a_run_without_trouble_prints_no_advice():
    assert advise(calm()) == []
    assert advise(calm(16)) == []


@pytest.mark.parametrize("case", CASES)
def test_each_trigger_prints_its_advice_with_the_figure_and_a_line(case):
    values, (path, words) = CASES[case]
    report = changed(calm(), values)

    (advice,) = advise(report)

    assert words in advice.line
    assert advice.figure.path == path
    assert advice.text.endswith(".")
    if path:
        assert advice.figure.value == find(report, path)


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_several_reads_of_the_origin_by_several_nodes_print_advice(mode):
    values = {"headline.origin_multiple": 3.7, "run.config": {"peers": {"mode": mode}}}

    (advice,) = advise(changed(calm(4), values))

    assert advice.figure.text == "3.70 x"
    assert ("mode: auto" in advice.line) == (mode == "off")


def test_one_copy_in_the_job_is_advised_where_every_node_keeps_one():
    values = {
        "share.unplaced_bytes": GIB,
        "run.config": {"peers": {"mode": "replicate"}},
    }

    (advice,) = advise(changed(calm(4), values))

    assert advice.line == "peers: {mode: partition}"


def test_at_most_three_pieces_are_printed_the_most_important_first():
    every: dict[str, Any] = {}
    for values, _ in CASES.values():
        every |= values

    found = advise(changed(calm(), every))

    assert len(found) == ADVICE_MAX
    assert "not active" in found[0].text


def test_a_report_of_schema_1_or_of_nothing_is_no_problem():
    assert advise(reports.plain()) == []
    assert [one.figure.path for one in advise(reports.base(4))] == []


@pytest.mark.parametrize("case", CASES)
def test_a_line_of_the_configuration_is_one_that_monarch_reads(case):
    values, _ = CASES[case]
    report = with_headline(changed(calm(), values))
    line = advise(report)[0].line
    if not line.startswith(
        ("- {", "peers:", "fill:", "cold_open:", "catalog:", "retain")
    ):
        return  # for a job script

    found = yaml.safe_load(line)

    if isinstance(found, dict):
        (section,) = found
        known = schema.Config.model_fields[section].annotation
        names = found[section] if isinstance(found[section], dict) else {}
    else:
        known = schema.Dataset if "aliases" in found[0] else schema.Tier
        (names,) = found
    assert set(names) <= set(getattr(known, "model_fields", {})), line


def test_keeping_is_not_advised_if_nothing_was_staged():
    once = changed(calm(), {"headline.ready_share": 0.0, "waits.total_s": 0})
    once["passes"] = once["passes"][:1]
    kept = [one.line for one in advise(once)]
    once["staging"]["files"] = 0

    assert kept == ["retain: 7d"]
    assert advise(once) == []
