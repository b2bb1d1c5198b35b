"""The verbs that talk to agents or clean up after them."""

import json
import os
import subprocess
import sys

import pytest

from monarch.tiers.directory_lock import take_lock
from support.agents import AgentProcess, start_agent


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def verb(*arguments):
    command = [sys.executable, "-P", "-m", "monarch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def removed_below(folder, done):
    """The lines of `clean` about a folder.

    It also removes what agents of other jobs that were killed have left in memory.
    """
    return [line for line in done.stdout.splitlines() if str(folder) in line]


@pytest.fixture
def agent(run_root, tmp_path, dataset, monkeypatch):
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    (tmp_path / "ssd").mkdir()
    options = ["--data", str(dataset.root), "--tier", f"ssd:64MiB:{tmp_path / 'ssd'}"]
    started: AgentProcess = start_agent(run_root / "j.n", options)
    started.listen("ready")
    yield started
    started.kill()


@pytest.mark.parametrize("arguments", [(), ("--job", "j")])
def test_status_shows_the_activity_of_an_agent(agent, run_root, arguments):
    agent.await_staged(41)

    shown = verb("status", *arguments)

    assert shown.returncode == 0
    text = " ".join(shown.stdout.split())
    assert text.startswith(f"{run_root / 'j.n'}: ready, agent ")
    assert "used by 41 files" in shown.stdout


def test_status_prints_json_on_request(agent):
    shown = verb("status", "--json")

    assert json.loads(shown.stdout)["pid"] == agent.process.pid


@pytest.mark.parametrize("name", ["status", "stop"])
def test_without_an_agent_the_exit_status_is_1(run_root, name):
    shown = verb(name)

    assert shown.returncode == 1
    assert shown.stderr == "monarch: no agent of yours is running on this node\n"


@pytest.mark.parametrize("name", ["status", "stop"])
def test_a_job_without_an_agent_is_named(agent, name):
    shown = verb(name, "--job", "other")

    assert shown.returncode == 1
    assert shown.stderr == "monarch: no agent of job 'other' is running on this node\n"
    assert agent.process.poll() is None


def test_cleaning_a_path_that_is_no_directory_is_refused(run_root, tmp_path):
    (tmp_path / "file").touch()

    for place in (tmp_path / "file", tmp_path / "absent"):
        done = verb("clean", place)

        assert done.returncode == 2
        assert done.stderr == f"monarch: {place}: no such directory\n"


def test_stop_returns_when_the_agent_has_ended(agent, run_root):
    done = verb("stop", "--job", "j")

    assert (done.returncode, done.stdout) == (0, f"stopped {run_root / 'j.n'}\n")
    assert list(run_root.iterdir()) == []
    assert agent.ended() == 0


def test_clean_removes_leftovers_of_dead_jobs_and_nothing_of_living_ones(
    run_root, tmp_path
):
    home = tmp_path / "ssd" / f"monarch-{os.geteuid()}"
    home.mkdir(mode=0o700, parents=True)
    for place in (run_root / "dead.n", home / "dead.n", home / "living.n"):
        place.mkdir(mode=0o700)
        (place / "lock").touch()
    (run_root / "dead.n" / "start").touch()
    fd = take_lock(home / "living.n")
    assert fd is not None

    done = verb("clean", tmp_path / "ssd")

    os.close(fd)
    assert sorted(removed_below(tmp_path, done)) == sorted(
        [f"removed {run_root / 'dead.n'}", f"removed {home / 'dead.n'}"]
    )
    assert (home / "living.n").exists()


def test_clean_reports_the_freed_space(run_root, tmp_path):
    """A shared file is freed with its last name only."""
    home = tmp_path / "ssd" / f"monarch-{os.geteuid()}"
    home.mkdir(mode=0o700, parents=True)
    for name in ("dead.n", "living.n"):
        (home / name).mkdir(mode=0o700)
        (home / name / "lock").touch()
    (home / "dead.n" / "own").write_bytes(b"x" * 3 * 2**20)
    (home / "dead.n" / "shared").write_bytes(b"x" * 2 * 2**20)
    (home / "living.n" / "shared").hardlink_to(home / "dead.n" / "shared")
    fd = take_lock(home / "living.n")
    assert fd is not None

    lines = verb("clean", tmp_path / "ssd").stdout.splitlines()

    os.close(fd)
    freed = "freed 3.0 MiB; 2.0 MiB stay in use by jobs that share the files"
    assert f"removed {home / 'dead.n'}" in lines
    assert lines[-1] == freed


def test_clean_removes_retained_copies_only_on_request(run_root, tmp_path, dataset):
    home = tmp_path / "tier"
    home.mkdir()
    options = ["--data", str(dataset.root), "--tier", f"ssd:64MiB:{home}"]
    agent = start_agent(run_root / "j.n", [*options, "--set", "retain=node"])
    agent.listen("ready")
    agent.await_staged(41)
    agent.stop()

    assert removed_below(tmp_path, verb("clean", home)) == []
    (removed,) = removed_below(tmp_path, verb("clean", "--retained", home))
    assert removed.startswith(f"removed {home}/")
