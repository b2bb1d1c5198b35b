"""Tests of `monarch run` as Python sees it: options, their table, and the hand-over."""

import os
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.cli import main, options_table
from monarch.cli.run import find_launcher, run
from monarch.config import RunOptions, parse_run_argv
from monarch.errors import MonarchError, UsageError

OPTIONS_H = Path(__file__).parents[2] / "monarch/native/launcher/options.h"


def test_checked_in_table_matches_the_options():
    assert OPTIONS_H.read_text() == options_table.header()


def test_table_is_sorted_and_knows_which_options_take_a_value():
    rows = options_table.rows()

    assert rows == sorted(rows)
    assert ("config", "c", True) in rows
    assert ("quiet", "q", False) in rows
    assert ("help", "h", False) in rows
    assert ("wait", "", False) in rows
    assert ("set", "", True) in rows


def test_every_option_reaches_the_agent():
    argv = "-c a.yaml --set a=1 --set b=2 --data /d --data /e --tier ram:1GiB --job j"
    argv += " --report r.json --index i --hosts n[0-3] --secret-file s --strict -q"
    argv += " --wait -- prog -c x"

    options, command = parse_run_argv(argv.split())

    assert options == RunOptions(
        config="a.yaml",
        settings=("a=1", "b=2"),
        data=("/d", "/e"),
        tiers=("ram:1GiB",),
        job="j",
        report="r.json",
        index="i",
        hosts="n[0-3]",
        secret_file="s",
        strict=True,
        quiet=True,
        wait=True,
    )
    assert command == ["prog", "-c", "x"]


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["prog"], ["prog"]),
        (["--", "prog", "--", "x"], ["prog", "--", "x"]),
        (["prog", "--", "x"], ["prog", "--", "x"]),
        (["-q", "prog", "-q", "--job", "x"], ["prog", "-q", "--job", "x"]),
        (["--", "-q"], ["-q"]),
        (["--job", "--", "prog"], ["prog"]),
        (["-", "x"], ["-", "x"]),
        (["prog", ""], ["prog", ""]),
        (["--", "\udcff"], ["\udcff"]),
    ],
)
def test_options_end_at_the_first_word_that_is_not_an_option(argv, command):
    assert parse_run_argv(argv)[1] == command


def test_short_options_are_bundled_and_values_joined():
    assert parse_run_argv(["-qca.yaml", "p"])[0] == RunOptions(
        config="a.yaml", quiet=True
    )
    assert parse_run_argv(["--config=a.yaml", "p"])[0].config == "a.yaml"
    assert parse_run_argv(["--set=a=b", "p"])[0].settings == ("a=b",)
    assert parse_run_argv(["--wait", "p"])[0].wait
    assert parse_run_argv(["p"])[0] == RunOptions()


WORDS = st.sampled_from(
    [f"--{name}{rest}" for name, _, _ in options_table.rows() for rest in ("", "=v")]
    + ["-q", "-c", "-cq", "-qc", "-qq", "-qcq", "-", "--", "v", "", "-v", "--no-such"]
)


@given(st.lists(WORDS, max_size=8))
def test_the_agent_reads_options_as_click_does(argv):
    if "--help" in argv:  # never reaches an agent
        return
    try:
        with run.make_context("monarch run", list(argv)) as context:
            expected = dict(context.params)
            command = list(expected.pop("command"))
    except click.ClickException:
        command = []
    if not command:
        with pytest.raises(UsageError):
            parse_run_argv(argv)
        return
    assert parse_run_argv(argv) == (RunOptions(**expected), command)


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "no program given"),
        (["--"], "no program given"),
        (["-q"], "no program given"),
        (["--help", "p"], "--help"),
        (["--bogus", "p"], "--bogus"),
        (["--dat", "x", "p"], "--dat"),
        (["--settings", "x", "p"], "--settings"),
        (["-cq"], "no program given"),
        (["-x", "p"], "-x"),
        (["--data"], "--data"),
        (["--quiet=1", "p"], "--quiet"),
    ],
)
def test_wrong_option_is_a_usage_error(argv, part, capsys):
    with pytest.raises(UsageError) as refused:
        parse_run_argv(argv)

    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_run_under_python_becomes_the_native_launcher(tmp_path, monkeypatch):
    launcher = tmp_path / "monarch"
    launcher.touch(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python3"))
    monkeypatch.setattr("sys.argv", ["monarch", "run", "-q", "--", "prog", "run"])
    seen = []
    monkeypatch.setattr(os, "execv", lambda path, argv: seen.append((path, argv)))

    assert main(["run", "-q", "--", "prog", "run"]) == 0

    assert seen == [(launcher, [str(launcher), "run", "-q", "--", "prog", "run"])]


def test_missing_launcher_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.executable", str(tmp_path / "python3"))
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path))

    with pytest.raises(MonarchError, match="not installed"):
        find_launcher()


def test_help_of_run_shows_examples_and_exit_codes(capsys):
    assert main(["run", "--help"]) == 0

    out = capsys.readouterr().out
    assert "monarch run [OPTIONS] -- PROGRAM [ARG]..." in out
    assert "monarch run --data /pfs/imagenet --tier ram:8GiB -- python train.py" in out
    assert "127" in out
    for name, _, _ in options_table.rows():
        assert f"--{name}" in out
