"""Tests of `monarch config`."""

import json

import pytest

from monarch.cli import main
from monarch.config import Config, files, from_json
from monarch.config.template import default_text


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty directory to be in, on a machine without configuration."""
    monkeypatch.setattr(files, "SITE_FILE", tmp_path / "absent")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MONARCH_STAGING_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_of_a_good_file_prints_ok(here, capsys):
    (here / "a.yaml").write_text("fill: {concurrency: 2}")

    assert main(["config", "check", "a.yaml"]) == 0
    assert capsys.readouterr().out == f"ok: {here}/a.yaml\n"


@pytest.mark.parametrize("option", ["-c", "--config"])
def test_check_takes_its_file_as_the_other_verbs_do(here, capsys, option):
    (here / "a.yaml").write_text("fill: {concurrency: 2}")

    assert main(["config", "check", option, "a.yaml"]) == 0
    assert capsys.readouterr().out == f"ok: {here}/a.yaml\n"
    assert main(["config", "check", option, "a.yaml", "b.yaml"]) == 2


def test_check_without_any_file_reports_that_the_defaults_apply(capsys):
    assert main(["config", "check"]) == 0
    assert capsys.readouterr().out == "ok: no file, only defaults\n"


def test_check_prints_each_fault_on_a_line_and_exits_with_1(here, capsys):
    (here / "a.yaml").write_text("fil: 1\nretain: x\n")

    assert main(["config", "check", "a.yaml"]) == 1

    out = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in out] == ["a.yaml:1:1", "a.yaml:2:9"]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a: [", b"\tb", b"a: 1\n a: 2\n", b"\x00", b"- 1", b"x"]
)
def test_check_of_what_is_not_yaml_is_one_line(here, capsys, content):
    (here / "a.yaml").write_bytes(content)

    assert main(["config", "check", "a.yaml"]) == 1

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(("a.yaml:1:", "a.yaml:2:"))


def test_show_prints_the_effective_values(here, capsys):
    (here / "monarch.yaml").write_text("retain: node")

    assert main(["config", "show", "--set", "fill.concurrency=8"]) == 0

    out = capsys.readouterr().out
    assert "\nretain: node\n" in out
    assert "\n  concurrency: 8\n" in out


def test_show_origin_prints_the_source_of_each_value(here, capsys, monkeypatch):
    (here / "monarch.yaml").write_text("\nretain: node")
    monkeypatch.setenv("MONARCH_STAGING_LOG__LEVEL", "debug")

    argv = ["config", "show", "--origin", "--data", "/a", "--tier", "ram:1GiB"]
    assert main(argv) == 0

    lines = dict(line.split("  # ") for line in capsys.readouterr().out.splitlines())
    origins = {key.strip(): where for key, where in lines.items()}
    assert origins["retain: node"] == "monarch.yaml:2"
    assert origins["log.level: debug"] == "environment MONARCH_STAGING_LOG__LEVEL"
    assert origins["datasets[0].path: /a"] == "option --data"
    assert origins["tiers[0].capacity: 1GiB"] == "option --tier ram:1GiB"
    assert origins["fill.enabled: true"] == "default"


def test_show_json_can_be_read_again(capsys):
    assert main(["config", "show", "--json"]) == 0
    assert from_json(capsys.readouterr().out) == Config()


def test_show_json_with_origin_has_both(capsys):
    assert main(["config", "show", "--json", "--origin"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["origins"]["retain"] == "default"
    assert shown["config"]["retain"] == "job"
    assert len(shown["digest"]) == 16


def test_show_of_a_broken_configuration_is_a_usage_error(here, capsys):
    (here / "monarch.yaml").write_text("retain: x")

    assert main(["config", "show"]) == 2
    assert capsys.readouterr().err.startswith(
        "monarch: monarch.yaml:1:9: retain: 'x' is not valid; use job"
    )


def test_init_writes_a_file_that_checks(here, capsys):
    assert main(["config", "init"]) == 0
    assert capsys.readouterr().out == "wrote monarch.yaml\n"
    assert (here / "monarch.yaml").read_text() == default_text()
    assert main(["config", "check"]) == 0


def test_init_never_overwrites(here, capsys):
    (here / "a.yaml").write_text("mine")

    assert main(["config", "init", "a.yaml"]) == 2
    assert capsys.readouterr().err == ("monarch: a.yaml already exists\n")
    assert (here / "a.yaml").read_text() == "mine"


def test_init_reports_why_it_cannot_write(capsys):
    assert main(["config", "init", "no/such/a.yaml"]) == 2
    assert "no/such/a.yaml cannot be written: No such file" in capsys.readouterr().err


def test_init_prints_to_a_pipe(capsys):
    assert main(["config", "init", "-"]) == 0
    assert capsys.readouterr().out == default_text()


def test_schema_is_json(capsys):
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Config"
