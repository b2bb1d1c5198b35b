"""The figures of a report agree with the counts of programs and the origin."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.report import render
from monarch.units import format_count, format_size
from support.countfs import CountFs
from support.nodes import Plan
from support.programs import Runner

EPOCHS, NODES, WORKERS, FILES = 3, 2, 2, 300
NEAR = 0.01
LARGE_BYTES = 50_000_000
OPENS, READ_BYTES = 200, 100
# The pause lets the agent take a sample while the program lives.
SIPS = f"""
import sys, time
for n in range({OPENS}):
    with open(sys.argv[1], "rb", buffering=0) as file:
        file.read({READ_BYTES})
time.sleep(1.6)
"""


def test_a_job_of_four_processes_on_two_nodes_reports_independently_counted_reads(
    make_cluster,
) -> None:
    cluster = make_cluster(NODES, sizes=[20_000 + number for number in range(FILES)])
    plan = Plan(EPOCHS, WORKERS, sharding="dealt", pause_s=0.002)

    outcome = cluster.run(plan)

    report, counts = outcome.report, cluster.origin.counts()
    found, run = report["headline"], report["run"]
    assert len(outcome.opens) == EPOCHS * FILES
    assert found["opens"] == pytest.approx(EPOCHS * FILES, NEAR)
    assert found["origin_bytes"] == pytest.approx(counts.read_bytes, NEAR)
    assert found["origin_multiple"] == pytest.approx(1.0, NEAR)
    at_origin = sum(one.at_origin for one in outcome.opens)
    origin = next(row for row in report["sources"] if row["kind"] == "origin")
    assert origin["opens"] == at_origin
    assert run["read_calls_bytes"] is None or run["read_calls_bytes"] > 0
    assert report["coverage"]["active"] == report["coverage"]["processes"]
    passes = report["passes"]
    assert [one["opens"] for one in passes] == [FILES] * EPOCHS
    latest_s = run["seconds"] + 0.001  # these are rounded
    assert all(one["began_s"] <= one["ended_s"] <= latest_s for one in passes)
    series = report["series"]
    total = sum(figures[-1] for name, figures in series["opens"].items())
    total -= series["opens"]["outside"][-1]
    assert total == found["opens"]
    assert series["origin_bytes"][-1] == found["origin_bytes"]


def test_every_figure_of_the_text_is_one_of_the_json(make_cluster) -> None:
    cluster = make_cluster(NODES, sizes=[30_000 + number for number in range(40)])

    report = cluster.run(Plan(EPOCHS, WORKERS)).report

    text = " ".join(render(report).split())
    found, cover = report["headline"], report["coverage"]
    assert text.startswith(
        f"monarch: active in {cover['active']} of {cover['processes']} processes on "
        f"{NODES} nodes; {100 * found['ready_share']:.1f}% of "
        f"{format_count(found['opens'])} opens were ready without waiting; "
        f"{format_size(found['origin_bytes'])} read from the origin "
        f"({found['origin_multiple']:.2f} x the dataset)"
    )
    for row in report["sources"]:
        if row["kind"] != "outside" and row["opens"]:
            shown = f"{row['opens']:,} {format_size(row['opened_bytes'])}"
            assert f"{row['source']} {shown}" in text
    for tier in report["tiers"]:
        assert f"tier {tier['name']}: {format_size(tier['used_bytes'])} of" in text
    assert re.search(r"Programs may read less, or more, than the size", text)


@pytest.mark.parametrize("mode", ["rb", "mapped"])
def test_opens_of_a_large_file_are_not_taken_for_its_bytes(
    runner: Runner,
    mount_counted: Callable[..., CountFs],
    tmp_path: Path,
    mode: str,
) -> None:
    """Finding 1: 200 opens of 50 MB, 100 bytes read of each, were 9.3 GiB avoided."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "large.bin").write_bytes(bytes(LARGE_BYTES))
    view = mount_counted(source, cached=int(mode == "mapped"))
    program = SIPS
    if mode == "mapped":
        program = program.replace(
            f"file.read({READ_BYTES})",
            f"__import__('mmap').mmap(file.fileno(), 0, prot=1)[:{READ_BYTES}]",
        )
    words = [sys.executable, "-c", program, str(view.root / "large.bin")]

    outcome = runner.under_monarch(words, roots=[view.root]).succeed()

    report, read_bytes = outcome.report, view.counts().read_bytes
    found, run = report["headline"], report["run"]
    if found["origin_opened_bytes"]:  # mapped reads are not seen
        assert mode == "mapped"
        assert found["origin_multiple"] is None
        assert found["origin_bytes"] < read_bytes
    else:
        assert found["origin_bytes"] == pytest.approx(read_bytes, NEAR)
    assert run["read_calls_bytes"] < LARGE_BYTES
    assert found["time_saved"]["avoided_bytes"] < LARGE_BYTES
    assert (found["time_saved"]["seconds"] or 0) < run["seconds"]
    first = render(report).partition("\n  source")[0]
    assert "GiB" not in first
    assert run["ended_s"] == pytest.approx(run["started_s"] + run["seconds"])
    assert run["config"]["datasets"][0]["path"] == str(view.root)
    assert run["agent_cpu_s"] > 0


@pytest.mark.parametrize(
    ("end", "status"),
    [("sys.exit(0)", 0), ("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)],
)
def test_the_report_states_how_the_program_ended(
    runner: Runner, tmp_path: Path, end: str, status: int
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_bytes(b"x")
    program = f"import os, sys; open({str(data / 'x')!r}).read(); {end}"

    outcome = runner.under_monarch([sys.executable, "-c", program], roots=[data])

    assert outcome.report["run"]["exit_status"] == status
    told = "  the program ended with exit status" in render(outcome.report)
    assert told == bool(status)
