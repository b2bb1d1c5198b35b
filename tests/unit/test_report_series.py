"""Samples of a job: thinned, added up over nodes, and divided into passes."""

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.report import Moment, Snapshot, encode_node_report, merge, summarize
from monarch.report.series import columns, pass_s, passes, summed, thinned
from support import reports
from support.figures import FOUR, node, snapshot

SCHEMA = json.loads(files("monarch.report").joinpath("report.schema.json").read_text())


def rising(seconds: int, per_s: int, at_s: float = 0.0) -> tuple[Moment, ...]:
    """Samples of opens that rise evenly, of which all but the first 10 are ready."""
    return tuple(
        Moment(at_s + second, ready=max(0, second * per_s - 10), waited=min(10, second))
        for second in range(1, seconds + 1)
    )


@given(st.integers(0, 2000), st.integers(1, 600))
def test_thinned_samples_are_few_and_end_with_the_last(count, most):
    moments = rising(count, 5)
    kept = thinned(moments, most)

    assert len(kept) <= most
    assert kept[-1:] == moments[-1:]
    assert list(kept) == sorted(kept, key=lambda moment: moment.at_s)
    assert 2 * len(kept) > min(count, most) or not count


def test_samples_of_nodes_add_up_also_where_they_begin_and_end_apart():
    first, second = rising(10, 7), rising(4, 3)
    total = summed([(0.0, first), (2.5, second)])

    assert [moment.at_s for moment in total] == [float(n) for n in range(1, 11)]
    assert total[1].ready == first[1].ready
    assert total[-1].ready == first[-1].ready + second[-1].ready
    assert total[3].waited == first[3].waited + second[0].waited


def test_the_last_sample_has_the_totals_of_all_nodes():
    total = summed([(0.0, rising(5, 1)), (20.0, rising(3, 9))])

    assert total[-1].at_s == 23.0
    assert total[-1].waited == 5 + 3


def test_passes_are_as_many_opens_as_there_are_files():
    # 100 opens a second of 200 files: 2 seconds each; the last one is not complete.
    moments = tuple(Moment(float(n), ready=100 * n) for n in range(1, 6))
    found = passes(moments, 200)

    assert [one["opens"] for one in found] == [200, 200, 100]
    assert [one["began_s"] for one in found] == [0, 2, 4]
    assert [one["ended_s"] for one in found] == [2, 4, 5]
    assert all(one["ready_share"] == 1 for one in found)


def test_a_pause_between_passes_belongs_to_none():
    opens = [0, 100, 100, 100, 200]
    moments = tuple(Moment(float(n), waited=count) for n, count in enumerate(opens))
    first, second = passes(moments, 100)

    assert (first["began_s"], first["ended_s"]) == (0, 1)
    assert (second["began_s"], second["ended_s"]) == (3, 4)
    assert first["ready_share"] == second["ready_share"] == 0


def test_opens_that_read_large_files_by_block_have_no_part_in_the_share_of_a_pass():
    moments = tuple(Moment(float(n), ready=30 * n, blocks=10 * n) for n in range(6))

    assert [one["ready_share"] for one in passes(moments, 40)] == [1] * 5
    only = tuple(Moment(float(n), blocks=40 * n) for n in range(3))
    assert [one["ready_share"] for one in passes(only, 40)] == [None] * 2


def test_time_of_a_pass_between_two_samples_is_unknown():
    moments = (Moment(1.0, waited=100), Moment(2.0, waited=100, ready=300))

    found = passes(moments, 100)

    assert [one["began_s"] for one in found] == [0.0, None, None, None]
    assert [pass_s(one) for one in found] == [1.0, None, None, None]


def test_one_file_has_no_passes():
    assert passes(rising(5, 3), 1) == []
    assert passes((), 100) == []


def test_without_samples_no_series_is_made():
    assert columns((), ()) is None
    assert summarize(snapshot())["series"] is None


# -- the schema -----------------------------------------------------------------------


def sampled(part: Snapshot, count: int) -> Snapshot:
    return replace(part, moments=rising(count, 40))


def job(count: int) -> dict[str, Any]:
    parts = [sampled(node(number, FOUR), count) for number in range(4)]
    sent = {part.number: encode_node_report(part) for part in parts[1:]}
    return dict(merge(parts[0], sent))


@pytest.mark.parametrize(
    "report",
    [
        summarize(snapshot()),
        summarize(sampled(snapshot(), 30)),
        job(5),
        job(900),
        reports.good(),
        reports.good(nodes=16),
        reports.failed(),
    ],
    ids=["nothing", "sampled", "nodes", "long", "good", "many", "failed"],
)
def test_reports_are_valid_by_the_schema_that_is_shipped(report):
    jsonschema.validate(json.loads(json.dumps(report)), SCHEMA)


def test_a_long_job_of_several_nodes_keeps_its_totals_in_few_samples():
    report = job(900)

    assert len(report["series"]["at_s"]) <= 512
    assert report["series"]["opens"]["ready"][-1] == 4 * (900 * 40 - 10)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("headline", "ready_share"), 1.2),
        (("headline", "origin_bytes"), None),
        (("run", "exit_status"), "0"),
        (("schema",), 1),
        (("waits", "by_source"), [{"source": "origin"}]),
        (("passes",), [{"number": 1}]),
    ],
)
def test_the_schema_refuses_values_that_no_report_has(path, value):
    report = json.loads(json.dumps(summarize(sampled(snapshot(), 30))))
    place = report
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SCHEMA)
