"""The Python of the agent: isolated from the job's, and its failure messages."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monarch.tiers.leftovers import KEPT_LOG_S, collect
from support.dataset import Dataset
from support.launcher import Launch

pytest_plugins = ["support.launcher_fixtures"]

UNSTAGED = "; the program runs without staging"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The packages of another Python, none of which can be imported here."""
    folder = tmp_path / "foreign"
    for package in ("numpy", "yaml", "pydantic", "xxhash", "psutil", "rich"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text(f"import {package}_of_3_6\n")
    (folder / "click.py").write_text("raise SystemExit('not this click')\n")
    return folder


def run(command: Path, cwd: Path, *words: str, **environ: str):
    return subprocess.run(
        [command, *words],
        cwd=cwd,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.usefixtures("run_root")
def test_pythonpath_of_another_python_does_not_break_the_agent(
    monarch_command: Path, dataset: Dataset, foreign: Path
) -> None:
    read = ["sha256sum", *map(str, dataset.paths)]
    options = ["--data", str(dataset.root), "--tier", "ram:64MiB"]
    # An empty part is the working directory, which contains a click.py, too.
    path = f"{foreign}:"

    done = run(monarch_command, foreign, "run", *options, "--", *read, PYTHONPATH=path)

    assert "active in 1 of 1 process" in done.stderr
    assert "without staging" not in done.stderr


@pytest.mark.usefixtures("run_root")
def test_pythonhome_of_another_python_does_not_break_the_agent(
    monarch_command: Path, dataset: Dataset, tmp_path: Path
) -> None:
    options = ["--data", str(dataset.root), "--tier", "ram:64MiB"]
    words = ["run", *options, "--", "sh", "-c", "echo $PYTHONHOME"]

    done = run(monarch_command, tmp_path, *words, PYTHONHOME=str(tmp_path))

    assert "active in 1 of 1 process" in done.stderr
    assert done.stdout == f"{tmp_path}\n"


def test_other_verbs_run_beside_a_pythonpath_of_another_python(
    monarch_command: Path, foreign: Path
) -> None:
    done = run(monarch_command, foreign, "config", "check", PYTHONPATH=f"{foreign}:")

    assert (done.returncode, done.stderr) == (0, "")


def test_command_in_the_users_own_base_directory_uses_the_packages_there(
    launch: Launch, tmp_path: Path
) -> None:
    """What `pip install --user` has put there is not found by an isolated Python."""
    home = tmp_path / "home"
    (home / ".local" / "bin").mkdir(parents=True)
    os.link(launch.command, home / ".local" / "bin" / "monarch")
    python = tmp_path / "argv"
    python.write_text('#!/bin/sh\necho "$1"\n')
    python.chmod(0o755)
    environ = {"MONARCH_STAGING_PYTHON": str(python), "HOME": str(home)}

    there = run(home / ".local" / "bin" / "monarch", tmp_path, "version", **environ)
    (home / ".local" / "bin" / "monarch").unlink()
    elsewhere = run(launch.command, tmp_path, "version", **environ)

    assert (there.stdout, elsewhere.stdout) == ("-EP\n", "-I\n")


def failing_python(tmp_path: Path, said: str) -> str:
    python = tmp_path / "broken"
    python.write_text(f"#!{sys.executable}\nimport sys\nsys.stderr.write({said!r})\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("said", "quoted"),
    [
        ("Traceback\n  File x\nImportError: no numpy\n", "ImportError: no numpy"),
        ("first\n  the reason \n \n\n", "the reason"),
        ("\x1b[31mred\n", "?[31mred"),
        ("x" * 5000 + "\n" + "é" * 300, "é" * 199),
        (f"{'a' * 399}é", "a" * 399),
    ],
)
def test_last_line_of_the_log_is_quoted_when_the_agent_ends_before_it_is_ready(
    launch: Launch, tmp_path: Path, said: str, quoted: str
) -> None:
    python = failing_python(tmp_path, said)

    done = launch.run("true", env=launch.environ | {"MONARCH_STAGING_PYTHON": python})

    (log,) = launch.run_root.glob("*/agent.log")
    assert log.read_text() == said
    assert done.stderr.decode() == (
        f"monarch: the agent ended before it was ready: {quoted} (see {log})"
        f"{UNSTAGED}\n"
    )


@pytest.mark.parametrize("job", [[], ["--job", "j"]])
def test_log_is_kept_after_a_failure_although_other_jobs_clean_up(
    launch: Launch, tmp_path: Path, job: list[str]
) -> None:
    python = failing_python(tmp_path, "no numpy\n")
    launch.run(*job, "true", env=launch.environ | {"MONARCH_STAGING_PYTHON": python})
    now = time.time()

    assert collect(launch.run_root, now) == []
    (log,) = launch.run_root.glob("*/agent.log")
    assert log.read_text() == "no numpy\n"
    assert collect(launch.run_root, now + KEPT_LOG_S) == [log.parent]


def test_clean_removes_the_log_of_a_failure(launch: Launch, tmp_path: Path) -> None:
    python = failing_python(tmp_path, "no numpy\n")
    launch.run("true", env=launch.environ | {"MONARCH_STAGING_PYTHON": python})

    (removed,) = collect(launch.run_root, time.time(), keep_logs=False)

    assert not removed.exists()
