"""The page of a report after a real run: made, true, and refused before it hurts."""

import json
import subprocess

import pytest

from monarch.report.html import page
from support import pages


@pytest.fixture
def monarch(monarch_command, run_root, dataset):
    """A function that returns the result of a verb, in the directory of the dataset."""

    def call(*words):
        return subprocess.run(
            [monarch_command, *words],
            cwd=dataset.root,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call


def run(monarch, dataset, path, script="cat */* */* >/dev/null"):
    """Run a script over the dataset with a report."""
    words = ("run", "--data", dataset.root, "--report", path, "--", "sh", "-c", script)
    return monarch(*words)


def test_a_run_makes_a_page_with_its_data_beside_it(monarch, dataset, tmp_path):
    done = run(monarch, dataset, tmp_path / "%n.html")

    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.html")
    report = json.loads(path.with_suffix(".json").read_text())
    assert path.read_text() == page(report)
    shown = pages.read(path.read_text()).one("verdict").words()
    assert shown.startswith("Active in 2 of 2 processes. ")
    assert f" of {report['headline']['opens']:,} opens were ready" in shown


def test_the_page_of_a_run_can_be_made_later(monarch, dataset, tmp_path):
    run(monarch, dataset, tmp_path / "r.json")

    made = monarch("report", tmp_path / "r.json", "--html", tmp_path / "later.html")

    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    report = json.loads((tmp_path / "r.json").read_text())
    assert (tmp_path / "later.html").read_text() == page(report)


def test_conditions_on_a_run_decide_the_exit_status(monarch, dataset, tmp_path):
    run(monarch, dataset, tmp_path / "r.json")

    def status(condition):
        return monarch("report", tmp_path / "r.json", "--assert", condition).returncode

    assert status("opens>0") == 0
    assert status("opens>1e9") == 1
    assert status("no_figure>1") == 2


def test_a_file_of_the_user_stays_when_a_page_has_its_name(monarch, dataset, tmp_path):
    (tmp_path / "run.json").write_text('{"loss": 0.1}')

    done = run(monarch, dataset, tmp_path / "run.html", "exit 3")

    assert done.returncode == 2
    assert "run.json, which is no report" in done.stderr
    assert (tmp_path / "run.json").read_text() == '{"loss": 0.1}'
