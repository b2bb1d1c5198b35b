"""`monarch report --compare` and `--assert`: figures side by side, and conditions."""

import json

import pytest
from click.testing import CliRunner

from monarch.cli.report import report as report_verb
from monarch.errors import UsageError
from monarch.report.assertion import check
from monarch.report.compare import compared, comparison
from monarch.report.figures import with_headline
from monarch.report.format import WIDTH, plain_text
from support import reports


def invoke(*words):
    return CliRunner().invoke(report_verb, [str(word) for word in words])


def slower():
    """The report of a run of twice the time, which the tiers served half as well."""
    report = reports.good()
    report["headline"]["ready_share"] /= 2
    report["run"]["seconds"] *= 2
    report["run"]["command"] = ["python", "other.py"]
    return report


@pytest.fixture
def files(tmp_path):
    """The files of two reports of schema 2, and one of schema 1."""
    paths = [tmp_path / name for name in ("before.json", "after.json", "old.json")]
    for path, report in zip(
        paths, (reports.good(), slower(), reports.base()), strict=True
    ):
        path.write_text(json.dumps(report))
    return paths


# -- comparison ------------------------------------------------------------------------


def test_two_reports_are_shown_side_by_side_with_ratios(files):
    result = invoke("--compare", *files[:2])

    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[0] == ["before.json", "after.json", "ratio"]
    assert [
        "run",
        "time",
        "5",
        "min",
        "05",
        "s",
        "10",
        "min",
        "10",
        "s",
        "2",
        "x",
    ] in lines
    ready = next(line for line in lines if line[:2] == ["opens", "ready"])
    assert "origin" not in result.output
    assert ready[-4:] == ["89.8%", "44.9%", "0.5", "x"]
    assert "  the command differs" in result.output.splitlines()
    assert max(map(len, result.output.splitlines())) <= WIDTH


def test_a_figure_missing_in_one_report_is_a_dash():
    rows = compared(reports.base(), reports.good())

    saved = next(row for row in rows if row.label.startswith("time saved"))
    assert saved.second is not None
    assert saved.first is not None
    assert (saved.first.value, saved.second.text) == (None, "1 min 14 s")
    assert saved.ratio is None
    text = plain_text(comparison(("a", "b"), reports.base(), reports.good()))
    saved_line = next(line for line in text.splitlines() if "time saved" in line)
    assert saved_line.split()[3:] == ["-", "1", "min", "14", "s", "-"]


def test_the_figures_are_those_of_the_reports():
    first, second = with_headline(reports.good(16)), with_headline(slower())
    rows = compared(first, second)

    assert len(rows) > 20
    for row in rows:
        assert row.first is not None
        assert row.second is not None
        if row.ratio is not None:
            assert row.first.value is not None
            assert row.ratio * row.first.value == pytest.approx(row.second.value)
    passes = [row.second for row in rows if row.label == "pass 1: time"]
    assert passes[0] is not None
    assert passes[0].value == pytest.approx(305 / 3)


def test_figures_that_are_equal_are_counted_instead_of_shown():
    first, second = reports.good(), reports.good()
    second["waits"]["p95_s"] *= 2

    text = plain_text(comparison(("a", "b"), first, second))

    rows = len(compared(first, second))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines == [
        "a b ratio",
        "waits for copies 30,000 30,000 1 x",
        "p95 12.3 ms 24.6 ms 2 x",
        f"equal in both, not shown: {rows - 2} figures",
    ]


def test_reports_without_a_difference_make_no_table():
    parts = comparison(("a", "b"), reports.good(), reports.good())

    rows = len(compared(reports.good(), reports.good()))
    assert parts == [f"  equal in both, not shown: {rows} figures"]


def test_a_figure_that_was_0_has_no_ratio():
    first, second = reports.good(), reports.good()
    first["waits"]["count"] = 0

    row = next(r for r in compared(first, second) if r.name == "waits.count")

    assert row.ratio is None


# -- conditions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "ready_share>=0.89",
        "ready_share >= 89%",
        "headline.ready_share<0.9",
        "opens==300600",
        "time_saved.seconds>1min",
        "run.seconds<=305",
        "run.seconds < 2h",
        "staging.bytes_per_s>200MB/s",
        "tiers.ram.used_bytes>7GiB",
        "tiers.1.used_bytes < 1e10",
        "sources.origin.opens!=0",
        "waits.p99_s<0.1",
        "run.complete==true",
        "run.exit_status==0",
    ],
)
def test_a_condition_that_holds(condition):
    outcome = check(with_headline(reports.good()), condition)

    assert outcome.holds
    assert outcome.text.startswith(f"true:  {condition}  (")


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("ready_share>=0.9", "(0.898204, 89.8%)"),
        ("opens>300600", "(300,600)"),
        ("origin_multiple<2", "(unknown)"),
        ("run.complete==false", "(true)"),
        ("run.exit_status>0", "(0)"),
    ],
)
def test_a_condition_that_does_not_hold(condition, shown):
    outcome = check(with_headline(reports.good()), condition)

    assert not outcome.holds
    assert outcome.text == f"false: {condition}  {shown}"


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("ready_share", "not a condition"),
        ("ready_share=0.9", "not a condition"),
        (">=0.9", "not a condition"),
        ("", "not a condition"),
        ("redy_share>=0.9", "no figure 'redy_share'; did you mean 'ready_share'?"),
        ("tiers.disk.files>1", "no figure 'tiers.disk.files'"),
        ("tiers>1", "tiers is not a figure"),
        ("run.plain==1", "run.plain is not a figure"),
        ("ready_share>=lots", "'lots' is not a number"),
        ("run.seconds<2hours", "did you mean '2h'"),
        ("opens>10GiB", "'10GiB' is not a number"),
        ("run.complete==1", "run.complete is true"),
        ("opens==true", "opens is"),
    ],
)
def test_an_invalid_condition_is_refused_with_a_hint(condition, words):
    with pytest.raises(UsageError) as error:
        check(with_headline(reports.good()), condition)

    assert words in str(error.value)
    assert repr(condition) in str(error.value)


def test_the_exit_status_is_1_if_one_of_the_conditions_is_false(files):
    good, bad = "ready_share>=0.5", "ready_share>=0.95"

    assert invoke(files[0], "--assert", good, "--assert", "opens>1").exit_code == 0
    result = invoke(files[0], "--assert", bad, "--assert", good)

    assert result.exit_code == 1
    assert [line[:6] for line in result.output.splitlines()] == ["false:", "true: "]


def test_a_bad_condition_is_exit_status_2(files):
    result = invoke(files[0], "--assert", "ready_share>=0.5", "--assert", "nonsense")

    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2


def test_conditions_work_on_reports_of_schema_1(files):
    assert invoke(files[2], "--assert", "ready_share>=0.5").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name one report file"),
        (["a.json", "--compare", "b.json", "c.json"], "name one report file"),
        (
            ["a.json", "--html", "x", "--assert", "opens>1"],
            "--html and --assert do not",
        ),
        (["a.json", "--node", "n1", "--html", "x"], "--node and --html do not"),
    ],
)
def test_contradictory_options_are_refused(words, said):
    result = invoke(*words)

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)
