"""The page of a report: true figures, hostile names, missing parts, one small file."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from monarch.agent.shutdown import publish_report
from monarch.cli.report import report as report_verb
from monarch.errors import UsageError
from monarch.report import check_report_file, write_report
from monarch.report.figures import find, kind_of, with_headline, written
from monarch.report.html import charts, page
from monarch.report.html.charts import HEIGHT, WIDTH, Series
from monarch.report.model import NO_ROOM
from monarch.units import parse_size
from support import pages, reports
from support.figures import MIB, snapshot
from support.reports import HOSTILE

PAGE_BYTES_MAX = 300 << 10

CASES = {
    "one node": reports.good,
    "16 nodes": lambda: reports.good(16),
    "500 nodes": lambda: reports.good(500),
    "300 passes": lambda: reports.good(passes=300, points=512),
    "no files": reports.empty,
    "nothing staged": reports.plain,
    "failed": reports.failed,
    "failed on 16 nodes": lambda: reports.failed(16),
    "hostile": reports.hostile,
    "hostile on 16 nodes": lambda: reports.hostile(16),
    "schema 1": reports.base,
    "schema 1 of 16 nodes": lambda: reports.base(16),
}


def read(report):
    """The page of a report as it comes from a file."""
    return pages.read(page(json.loads(json.dumps(report))))


@pytest.mark.parametrize("case", CASES)
def test_a_page_is_one_small_file_without_scripts_and_network(case):
    text = page(CASES[case]())

    pages.read(text)  # knows the elements and attributes that load and run nothing
    assert len(text.encode()) < PAGE_BYTES_MAX
    assert "<script" not in text
    assert "http" not in text
    assert not re.search(r"url\(|@import|javascript:", text)


@pytest.mark.parametrize("case", CASES)
def test_each_figure_of_a_page_is_that_of_the_report(case):
    report = with_headline(CASES[case]())
    shown = [one for one in pages.figures(read(report)) if one.path]

    assert len(shown) > 8
    for one in shown:
        value = find(report, one.path)
        assert one.value == ("" if value is None else str(value)), one
        if value is None:
            assert one.text in ("unknown", "-")
        else:
            assert one.text == written(value, kind_of(one.path))
            assert_rounded(one.text, value, kind_of(one.path))


def assert_rounded(text, value, kind):
    """Compare a text with a value, not by the code that has made the text."""
    if kind == "size":
        assert parse_size(text) == pytest.approx(value, rel=0.05, abs=1)
    elif kind == "share":
        assert float(text.removesuffix("%")) == pytest.approx(100 * value, abs=0.06)
    elif kind == "count" and isinstance(value, int):
        assert int(text.replace(",", "")) == value


def test_figures_that_are_computed_are_computed_right():
    report = reports.good()
    found = read(report)

    tiers = pages.rows(found.one("tiers"))
    assert [row[5] for row in tiers] == ["full", "98.9%", "0.2%"]
    sources = pages.rows(found.one("sources"))[1:6]
    assert [row[2] for row in sources] == ["59.9%", "29.9%", "10.0%", "0.2%", ""]
    passes = pages.rows(found.one("passes"))[1:]
    assert [row[2] for row in passes] == ["1 min 42 s", "1 min 11 s", "1 min 11 s"]


def test_bars_are_as_long_as_their_shares():
    found = read(reports.good())

    bars = [rect.attributes for rect in found.one("sources").all("rect")]
    widths = [bar["width"] for bar in bars if bar["class"] != "ground"]
    assert widths == ["100.00", "50.00", "16.67", "0.33", "2.40"]


@pytest.mark.parametrize("nodes", [1, 16])
def test_every_section_is_there_when_the_report_has_its_figures(nodes):
    found = read(reports.failed(nodes))
    names = {e.attributes["id"] for e in found.walk() if "id" in e.attributes}

    assert names >= {
        *("verdict", "advice", "time", "passes", "sources", "waits", "tiers"),
        *("programs", "unstaged", "files", "slowest", "problems"),
        *("definitions", "versions", "config"),
    }
    assert ("nodes" in names) == (nodes > 1)


def test_the_verdict_names_the_trouble():
    found = read(reports.failed()).one("verdict")

    assert found.attributes["class"] == "verdict bad"
    assert found.words().startswith(
        "Active in 4 of 7 processes. 41.2% of 300,600 opens"
    )
    for part in (
        *("ended by signal 9", "not active in 3 processes", "room for 41,000 files"),
        *("Out of service: tier ssd", "42 errors", "/pfs/imagenet became pass-through"),
    ):
        assert part in found.words()


@pytest.mark.parametrize(
    ("report", "level", "words"),
    [
        (reports.good(), "good", "It saved about 1 min 14 s (estimate)."),
        (reports.empty(), "fair", "The datasets hold no file"),
        (reports.plain(), "bad", "Nothing was staged: scanning /pfs/imagenet failed"),
    ],
)
def test_the_verdict_has_a_level(report, level, words):
    found = read(report).one("verdict")

    assert found.attributes["class"] == f"verdict {level}"
    assert words in found.words()


def test_the_verdict_on_a_node_alone_reports_that_no_tier_had_room():
    report = reports.good()
    report["unstaged"] = [{"reason": NO_ROOM, "files": 400, "bytes": 1, "examples": []}]

    found = read(report).one("verdict")

    assert found.attributes["class"] == "verdict fair"
    assert "No tier had room for 400 files." in found.words()


def test_a_command_can_be_copied_to_a_shell():
    report = reports.good()
    report["run"]["command"] = ["sh", "-c", "for i in 1 2; do :; done"]

    shown = [one.words() for one in read(report).all("dd")]

    assert "sh -c 'for i in 1 2; do :; done'" in shown


def test_a_single_range_of_a_histogram_is_called_one():
    report = reports.good()
    report["file_sizes"] = [{"from_bytes": 256, "to_bytes": 1024, "files": 1}]

    assert "1 file in 1 range of size." in read(report).one("files").words()


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_staging_without_programs_is_no_failure(nodes):
    report = reports.good(nodes)
    report["run"]["command"] = []
    report["coverage"] |= {"active": 0, "processes": 0, "inactive": []}
    report["headline"] |= {"opens": 0, "ready_share": None}
    report["share"]["ready_files"] = 4_321

    found = read(report).one("verdict")

    assert found.attributes["class"] == "verdict good"
    assert found.words().startswith("Staged 4,321 copies of ")


def test_nodes_without_a_report_are_named():
    report = reports.good(4)
    row = report["nodes"][2]
    report["nodes"][2] = {
        "number": 2,
        "name": row["name"],
        "reported": False,
        "why": "never joined",
        "fetched_from_it_bytes": 3 * MIB,
    }

    found = read(report)

    assert "No report from gpu02" in found.one("verdict").words()
    assert pages.rows(found.one("nodes"))[3][:2] == ["gpu02", "no report"]


def test_the_peer_matrix_has_what_each_node_fetched_from_each_other_one():
    report = reports.good(4)

    rows = pages.rows(read(report).one("nodes"))[-4:]

    for node, row in zip(report["nodes"], rows, strict=True):
        for peer in node["peers"]:
            size = written(peer["fetched_bytes"], "size")
            assert row[1 + peer["number"]] == size
        assert row[1 + node["number"]] == ""


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_hostile_texts_stay_texts(nodes):
    text = page(json.loads(json.dumps(reports.hostile(nodes))))

    # The reader refuses elements and attributes that the page itself does not use.
    found = pages.read(text)
    assert "<script>alert(1)</script>" in found.words()
    assert "{{ 7*7 }}" in found.words()
    for raw in ("\x1b", "\u202e", "\udc80", HOSTILE.strip()):
        assert raw not in text


def test_long_texts_do_not_make_a_large_page():
    report = reports.failed(16)

    def longer(value):
        if isinstance(value, dict):
            return {key: longer(one) for key, one in value.items()}
        if isinstance(value, list):
            return [longer(one) for one in value]
        return value + "/<" * 2000 if isinstance(value, str) and value else value

    report = longer(report)
    report["changed"] = report["failures"] = ["&" * 4096] * 5000
    report["unstaged"] *= 200
    report["coverage"]["inactive"] *= 500
    report["survived"] *= 100
    report["run"]["config"] = {f"key{n}": "<" * 4000 for n in range(3000)}

    assert len(page(report).encode()) < PAGE_BYTES_MAX


def test_a_section_without_its_figures_is_left_out():
    for name in [*reports.good()]:
        if name in ("run", "coverage", "hits", "waits", "staging", "schema", "origin"):
            continue
        report = reports.failed()
        del report[name]
        if name == "headline":
            assert "41.2%" not in read(report).words()
        else:
            read(report)


def test_a_run_too_short_for_samples_is_reported_as_such():
    assert "too short for samples" in read(reports.empty()).one("time").words()


# -- charts ---------------------------------------------------------------------------


def test_areas_are_stacked():
    low, high = Series("ready", "ready", [1.0, 3.0]), Series("origin", "o", [1.0, 1.0])

    over, under = charts.stacked([1.0, 2.0], [high, low], end=4.0)

    assert (over.style, under.style) == ("origin", "ready")
    assert under.path == f"M0 {HEIGHT}V150H500V50H{WIDTH}V{HEIGHT}Z"
    assert over.path == f"M0 {HEIGHT}V100H500V0H{WIDTH}V{HEIGHT}Z"


def test_rates_are_differences_of_sums():
    assert charts.rates([2.0, 3.0, 5.0], [10, 10, 30]) == [5.0, 0.0, 10.0]
    assert charts.rates([1.0, 1.0], [1, 5]) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("scale", "unit", "texts"),
    [
        (charts.size_scale(0), "B", ["0", "0.5", "1"]),
        (charts.size_scale(700 << 20), "MiB", ["0", "200", "400", "600", "800"]),
        (charts.count_scale(1), "", ["0", "1"]),
        (charts.count_scale(3), "", ["0", "1", "2", "3"]),
        (charts.count_scale(1_900), "thousands", ["0", "0.5", "1", "1.5", "2"]),
        (charts.rate_scale(1), "", ["0", "0.5", "1"]),
        (charts.count_scale(7), "", ["0", "2", "4", "6", "8"]),
        (charts.count_scale(12_345), "thousands", ["0", "5", "10", "15"]),
        (charts.time_scale(59), "s", ["0", "10", "20", "30", "40", "50"]),
        (charts.time_scale(3600), "min", ["0", "10", "20", "30", "40", "50", "60"]),
        (charts.time_scale(7 * 86400), "d", ["0", "2", "4", "6"]),
    ],
)
def test_axes_have_round_numbers_and_units(scale, unit, texts):
    assert scale.unit == unit
    assert [tick.text for tick in scale.ticks] == texts


@pytest.mark.parametrize("seconds", [0.003, 1.0, 59.0, 61.0, 5000.0, 1e6, 3e7])
def test_marks_of_an_axis_lie_on_it(seconds):
    ticks = charts.time_scale(seconds).ticks

    assert 2 <= len(ticks) <= 8
    assert all(0 <= tick.at <= 100.0001 for tick in ticks)


@pytest.mark.parametrize("section", ["waits", "files"])
def test_an_axis_of_ranges_that_grow_by_a_factor_says_so(section):
    axes = [
        e.words()
        for e in read(reports.good()).one(section).all("p")
        if "runs" in e.attributes.get("class", "")
    ]

    assert axes
    assert all(axis.endswith(" (log scale)") for axis in axes)


def test_a_tier_that_is_hardly_used_is_not_0_percent_full():
    report = reports.good()
    report["series"]["tiers"][1]["used_bytes"][-1] = round(0.004 * (1 << 40))

    assert "ssd, 1.0 TiB: 0.4% full" in read(report).one("time").words()


def test_gaps_between_waits_stay_gaps():
    report = reports.good()
    rows = report["waits"]["by_source"][0]["buckets"]
    report["waits"]["by_source"][0]["buckets"] = [rows[0], rows[3]]

    columns = read(report).one("waits").all("path")[1:]

    titles = [column.all("title")[0].words() for column in columns]
    assert titles == [
        "262 µs to 524 µs: 3 from the origin",
        "2.1 ms to 4.19 ms: 4,000 from the origin",
    ]


# -- files ----------------------------------------------------------------------------


def test_the_verb_makes_the_page_of_a_report(tmp_path):
    source, target = tmp_path / "r.json", tmp_path / "r.html"
    source.write_text(json.dumps(reports.good()))

    first = CliRunner().invoke(report_verb, [str(source), "--html", str(target)])
    shown = CliRunner().invoke(report_verb, [str(source), "--html", "-"])

    assert (first.exit_code, first.output) == (0, "")
    assert target.read_text() == page(reports.good()) == shown.output


def test_a_report_that_is_not_whole_makes_no_page(tmp_path):
    source, target = tmp_path / "r.json", tmp_path / "r.html"
    source.write_text('{"schema": 2, "run": 5}')

    result = CliRunner().invoke(report_verb, [str(source), "--html", str(target)])

    assert isinstance(result.exception, UsageError)
    assert "incomplete report" in str(result.exception)
    assert not target.exists()


def test_a_report_named_html_is_a_page_with_its_data_beside_it(tmp_path):
    path, report = tmp_path / "new" / "run.html", reports.good()

    assert write_report(path, report) == path

    assert json.loads((tmp_path / "new" / "run.json").read_text()) == report
    assert path.read_text() == page(report)
    check_report_file(path)  # a later run may replace both


def test_a_node_that_was_cut_off_does_not_replace_the_page_of_the_others(tmp_path):
    path, whole, alone = tmp_path / "run.html", reports.good(4), reports.good()
    alone["run"] |= {"node": "gpu02", "started_s": whole["run"]["started_s"]}
    write_report(path, whole)

    assert write_report(path, alone) == tmp_path / "run.gpu02.html"

    assert path.read_text() == page(whole)
    assert json.loads((tmp_path / "run.gpu02.json").read_text()) == alone


@pytest.mark.parametrize("content", ['{"loss": 0.1}', "not JSON"])
def test_the_data_of_a_page_replaces_no_file_of_the_user(tmp_path: Path, content):
    (tmp_path / "run.json").write_text(content)

    with pytest.raises(UsageError, match=r"run\.json, which is no report of Monarch"):
        check_report_file(tmp_path / "run.html")


def test_a_page_that_cannot_be_made_costs_neither_data_nor_summary(
    tmp_path, monkeypatch
):
    said: list[str] = []
    warned: list[str] = []
    report = SimpleNamespace(file=str(tmp_path / "run.html"))
    setup = SimpleNamespace(
        config=SimpleNamespace(report=report), umask=0o022, quiet=False
    )
    label = SimpleNamespace(job="7.0", node="n1")
    stats = SimpleNamespace(label=label, snapshot=lambda: snapshot())
    notifier = SimpleNamespace(warn=warned.append, say=said.append)

    def fail(report):
        raise KeyError("a figure")

    monkeypatch.setattr("monarch.report.html.page", fail)
    publish_report(
        cast("Any", setup),
        cast("Any", stats),
        {},
        cast("Any", notifier),
        lambda report: "the summary",
    )

    assert said == ["the summary"]
    assert warned == [f"cannot make the page {tmp_path}/run.html: KeyError('a figure')"]
    assert json.loads((tmp_path / "run.json").read_text())["run"]["job"] == "7.0"
