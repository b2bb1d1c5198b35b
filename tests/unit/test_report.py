"""The report: right sums, one headline, the same text from the same file."""

import json
import os
import pkgutil
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import monarch.report
from monarch.cli.report import report as report_verb
from monarch.errors import UsageError
from monarch.metrics import TEXTS, UNITS, AgentCounters
from monarch.native import wait_bucket_ns
from monarch.report import (
    FillFigures,
    ProcessFigures,
    Unstaged,
    WaitBucket,
    WaitTotal,
    fill_template,
    read_report,
    render,
    summarize,
    write_report,
)
from monarch.report.summing import quantile
from support.figures import JOB, MIB, snapshot

EPOCHS = snapshot(
    {
        "opens_hit_tier0": 4000,
        "bytes_hit_tier0": 400 * MIB,
        "opens_miss": 1900,
        "bytes_miss": 190 * MIB,
        "opens_origin": 100,
        "bytes_origin": 10 * MIB,
        "opens_outside": 812,
    },
    {
        "origin_read_bytes": 190 * MIB,
        "staged_files": 1900,
        "staged_bytes": 190 * MIB,
        "busy_ns": 2_000_000_000,
        "origin_busy_ns": 2_000_000_000,
    },
)


def test_no_name_of_the_package_is_that_of_a_module_in_it():
    """Else the module would hide the name that is imported when it is used."""
    modules = {module.name for module in pkgutil.iter_modules(monarch.report.__path__)}

    assert not modules & set(monarch.report.__all__)
    assert all(hasattr(monarch.report, name) for name in monarch.report.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = monarch.report.nothing


def test_the_headline_states_coverage_share_and_bytes_read():
    text = render(summarize(EPOCHS))

    assert text.startswith(
        "monarch: active in 4 of 4 processes; 66.7% of 6,000 opens were ready without\n"
        "  waiting; 190.0 MiB read from the origin, and 100 opens read it directly.\n"
    )


def test_hit_ratios_count_what_was_ready_at_the_first_look_up():
    hits = summarize(EPOCHS)["hits"]

    assert hits["by_opens"] == pytest.approx(4000 / 6000)
    assert hits["by_bytes"] == pytest.approx(400 / 600)
    assert hits["local_by_bytes"] == pytest.approx(590 / 600)


def test_staging_throughput_is_over_the_time_in_which_anything_was_copied():
    assert summarize(EPOCHS)["staging"]["bytes_per_s"] == 95 * MIB


def test_a_found_concurrency_is_reported():
    found = summarize(replace(EPOCHS, fill=FillFigures(16, 16, found=True)))
    set_by_user = summarize(replace(EPOCHS, fill=FillFigures(4, 4, found=False)))

    line = "  fill: 16 files at once, found by measuring the origin"
    assert line in render(found).splitlines()
    assert found["staging"]["concurrency"] == {"least": 16, "most": 16, "found": True}
    assert "  fill:" not in render(set_by_user)
    assert set_by_user["staging"]["concurrency"]["most"] == 4
    assert summarize(EPOCHS)["staging"]["concurrency"] is None


def test_inactive_processes_are_named():
    processes = (
        ProcessFigures("/usr/bin/python3", True, 4),
        ProcessFigures("/opt/static", False, 2),
    )

    text = render(summarize(snapshot(processes=processes)))

    assert text.startswith("monarch: active in 4 of 6 processes; ")
    assert "not active in /opt/static (2)" in text


def test_files_that_were_not_staged_are_explained():
    unstaged = (
        Unstaged("no tier had room for them", 3, 3 * MIB),
        Unstaged("copying them failed too often", 0, 0),
    )

    text = render(summarize(snapshot(unstaged=unstaged)))

    assert "not staged: 3 files, 3.0 MiB: no tier had room for them" in text
    assert "failed too often" not in text


def test_small_files_are_reported_with_their_space():
    small = replace(snapshot().run, files=100_000, bytes=8 * MIB, room_bytes=391 * MIB)

    report = summarize(snapshot(run=small))
    usual = render(summarize(snapshot(run=replace(small, bytes=200 * MIB))))

    assert report["run"]["room_bytes"] == 391 * MIB
    line = (
        "  small files: 8.0 MiB use 391.0 MiB of the tiers, because files use whole\n"
    )
    assert line in render(report)
    assert "small files" not in usual


def test_survived_trouble_is_counted_with_its_meaning():
    troubled = snapshot({"origin_silent": 2}, {"tiers_lost": 1, "agent_errors": 3})

    report = summarize(troubled)
    text = render(report)

    assert [row["what"] for row in report["survived"]] == [
        "tiers_lost",
        "agent_errors",
        "origin_silent",
    ]
    assert "  1 tier taken out of service\n" in text
    assert "2 opens read the origin because the agent did not respond" in text


def test_a_root_that_passes_through_is_named():
    text = render(summarize(snapshot(passed_roots=("/pfs/a",))))

    assert "  /pfs/a is pass-through: a program changed one of its dir" in text


def test_a_run_that_opened_nothing_is_reported_as_such():
    text = render(summarize(snapshot()))

    assert "no file of /pfs/imagenet was opened." in text.splitlines()[0]


def test_a_run_without_a_catalog_reports_why():
    plain = snapshot(run=replace(JOB, plain="the catalog takes longer than 1.0 s"))

    assert "nothing was staged: the catalog takes" in render(summarize(plain))


def test_a_part_is_never_printed_as_all():
    nearly = snapshot(
        {
            "opens_hit_tier0": 10**5,
            "bytes_hit_tier0": 10**9,
            "opens_origin": 1,
            "bytes_origin": 1,
        }
    )

    assert "; 99.9% of 100,001 opens" in render(summarize(nearly))


def buckets(counts):
    edges = [wait_bucket_ns(number) for number in range(len(counts) + 1)]
    return [WaitBucket(edges[n], edges[n + 1], c) for n, c in enumerate(counts)]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_that_holds_it(counts, part):
    if not sum(counts):
        assert quantile(buckets(counts), part) == 0
        return
    found_ns = quantile(buckets(counts), part) * 1e9
    below = sum(b.count for b in buckets(counts) if b.to_ns < found_ns - 1)
    upto = sum(b.count for b in buckets(counts) if b.from_ns <= found_ns + 1)

    assert below <= part * sum(counts) + 1e-6
    assert upto >= part * sum(counts) - 1e-6


def waited(*waits_ns):
    counts = [0] * 40
    for wait_ns in waits_ns:
        counts[max(n for n in range(40) if wait_bucket_ns(n) <= wait_ns)] += 1
    waits = tuple(buckets(counts))
    totals = (WaitTotal("origin", sum(waits_ns)),)
    return summarize(snapshot(waits=waits, wait_totals=totals))


def test_a_single_wait_is_printed_once_and_exactly():
    report = waited(1_720_000)

    assert report["waits"]["p50_s"] == report["waits"]["p99_s"] == 0.00172
    assert "  1 wait for a copy took 1.72 ms\n" in render(report)


@given(st.lists(st.integers(2_000, 10**9), min_size=1, max_size=30))
def test_quantiles_of_waits_are_never_more_than_their_sum_allows(waits_ns):
    waits = waited(*waits_ns)["waits"]

    assert waits["p50_s"] <= waits["p95_s"] <= waits["p99_s"] <= waits["total_s"]
    half = len(waits_ns) - (len(waits_ns) + 1) // 2 + 1
    assert waits["p50_s"] * half <= waits["total_s"] * 1.000001


def test_opens_of_empty_files_have_no_share_of_bytes():
    text = render(summarize(snapshot({"opens_miss": 1})))

    assert "; 0.0% of 1 open was ready without waiting;" in text
    assert "  ready when opened: 0.0% of 1 open\n" in text


def test_one_file_is_not_called_files():
    tally = {"staged_files": 1, "adopted_files": 1, "staged_bytes": MIB}
    unstaged = (Unstaged("no tier had room for them", 1, MIB),)

    text = render(summarize(snapshot(tally=tally, unstaged=unstaged, unslotted=1)))

    assert "staged: 1 file, 1.0 MiB" in text
    assert "earlier job: 1 file, 0 B" in text
    assert "not staged: 1 file, 1.0 MiB" in text
    assert "1 more process could not be tracked" in text


def test_a_report_read_again_prints_the_identical_text(tmp_path):
    path = tmp_path / "deep" / "r.json"
    report = summarize(EPOCHS)

    write_report(path, report)
    again = read_report(path)
    printed = CliRunner().invoke(report_verb, [str(path)])
    as_json = CliRunner().invoke(report_verb, [str(path), "--json"])

    assert again == report
    assert printed.output == render(report)
    assert json.loads(as_json.output) == report
    assert [entry.name for entry in path.parent.iterdir()] == ["r.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"schema": 3}', "report of schema 3; .* Monarch reads schema 1 and 2"),
        ("[]", "not a report of `monarch run`"),
        ("nonsense", "not JSON"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path, content, words):
    path = tmp_path / "r.json"
    path.write_text(content)

    with pytest.raises(UsageError, match=words):
        read_report(path)


@pytest.mark.parametrize("rest", [{}, {"run": 5}, {"run": {}, "coverage": None}])
def test_an_incomplete_report_is_refused_in_one_line(tmp_path, rest):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"schema": 1} | rest))

    result = CliRunner().invoke(report_verb, [str(path)])

    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith(f"{path}: incomplete report (")


def test_a_report_whose_source_has_no_name_is_printed(tmp_path):
    path = tmp_path / "r.json"
    report = json.loads(json.dumps(summarize(EPOCHS)))
    report["sources"][0]["source"] = None
    path.write_text(json.dumps(report))

    result = CliRunner().invoke(report_verb, [str(path)])

    assert result.exit_code == 0
    assert "\n  None " in result.output


def test_a_failed_write_leaves_the_old_report(tmp_path):
    path = tmp_path / "r.json"
    write_report(path, {"schema": 1})

    with pytest.raises(TypeError):
        write_report(path, {"schema": object()})

    assert read_report(path) == {"schema": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_templates_name_job_node_and_process():
    path = fill_template("/r/%j-%n-%p-100%%.json", "7.0", "n1")

    assert str(path) == f"/r/7.0-n1-{os.getpid()}-100%.json"


def test_every_figure_of_the_agent_has_a_unit_and_a_meaning():
    assert set(UNITS) == set(TEXTS) == set(AgentCounters().as_dict())
    assert all(UNITS.values())
    assert all(TEXTS.values())
