"""Leftovers of an agent that ended or died while its programs live."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monarch.native import home
from monarch.tiers.directory_lock import is_locked, make_private
from monarch.tiers.leftovers import collect
from support.dataset import Dataset
from support.obedient import Begin, Run

pytest_plugins = ["support.turn_fixtures"]


@pytest.mark.root
@pytest.mark.parametrize("beside_next", [False, True])
def test_program_started_after_its_agent_ended_recognises_no_replicas(
    begin: Begin, program: Run, dataset: Dataset, beside_next: bool
) -> None:
    first, (path, other, *_) = begin(), dataset.paths
    before = program(first)
    fd = before.do(f"os.open({str(path)!r}, os.O_RDONLY)")
    before.read(other)
    first.stop()
    if beside_next:
        begin()
    before.write(path)
    run = "__import__('subprocess').run"
    show = f"{run}(['cat', '/dev/fd/{fd}'], pass_fds=[{fd}], capture_output=True)"
    lose = f"{run}(['sh', '-c', 'printf LOST >> /dev/fd/{fd}'], pass_fds=[{fd}])"

    assert not before.do(f"{show}.stdout[:3]").startswith("b'NEW'")
    assert before.do(f"{lose}.returncode") == "0"
    assert path.read_bytes() == b"NEW"


def test_run_directory_is_removed_with_the_last_program_after_its_agent(
    begin: Begin, program: Run, run_root: Path, dataset: Dataset
) -> None:
    agent = begin()
    before = program(agent)
    before.read(dataset.paths[0])
    (agent.run / "start").touch()  # as the launcher does
    agent.stop()

    kept = {part.name for part in (run_root / "j.n").iterdir()}
    assert {"shim.so", "start"} <= kept <= {"shim.so", "lock", "start", "agent.log"}
    assert collect(run_root, time.time()) == []
    before.end()
    assert collect(run_root, time.time()) == [run_root / "j.n"]


def test_marks_of_a_dead_agents_programs_stay_while_they_live(
    begin: Begin, program: Run, run_root: Path, dataset: Dataset
) -> None:
    agent = begin()
    before = program(agent)
    before.read(dataset.paths[0])
    agent.kill()
    (agent.run / "start").touch()  # as the launcher does

    assert collect(run_root, time.time()) == []
    before.end()
    assert collect(run_root, time.time()) == [run_root / "j.n"]


def test_leftover_whose_pid_was_reused_is_removed(
    begin: Begin, program: Run, run_root: Path, dataset: Dataset
) -> None:
    agent = begin()
    before = program(agent)
    before.read(dataset.paths[0])
    agent.kill()
    (agent.run / "start").touch()  # as the launcher does
    before.end()
    pid = before.process.pid
    counters = run_root / "j.n" / "counters"
    told = counters.read_bytes().replace(
        pid.to_bytes(4, "little"), os.getpid().to_bytes(4, "little")
    )
    counters.write_bytes(told)

    assert collect(run_root, time.time()) == [run_root / "j.n"]


def test_agent_that_ends_at_once_has_removed_the_leftovers_of_a_dead_job(
    begin: Begin, tmp_path: Path
) -> None:
    # The fixture's Tier; removing so many files takes longer than the end of an agent.
    dead = home(tmp_path / "tier") / "dead.n"
    make_private(dead.parent)
    make_private(dead)
    for number in range(30_000):
        (dead / f"{number:032x}").touch()
    (dead / "lock").touch()

    agent = begin()
    agent.stop()

    assert list(dead.parent.iterdir()) == []


def test_nested_run_beside_programs_of_a_dead_agent_sees_their_writes(
    begin: Begin, program: Run, monarch_command: Path, dataset: Dataset
) -> None:
    agent, path = begin(), dataset.paths[0]
    before = program(agent)
    before.read(path)
    agent.kill()
    command = [str(monarch_command), "run", "--data", str(dataset.root), "--"]
    script = "import sys\nfor path in sys.stdin: print(open(path[:-1], 'rb').read(3))"
    nested = subprocess.Popen(
        [*command, sys.executable, "-uc", script],
        env=agent.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert nested.stdin is not None
    assert nested.stdout is not None
    print(path, file=nested.stdin, flush=True)
    assert nested.stdout.readline() != "b'NEW'\n"

    before.write(path)

    shown, told = nested.communicate(f"{path}\n", timeout=30)
    assert shown == "b'NEW'\n"
    assert "the agent of this job has died" in told


def test_command_run_by_a_program_does_not_run_under_its_shim(
    begin: Begin, monarch_command: Path, tmp_path: Path
) -> None:
    agent = begin()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexec cat /proc/$$/environ /proc/$$/maps "$0"\n')
    python.chmod(0o755)

    done = subprocess.run(
        [str(monarch_command), "clean"],
        env=agent.environ() | {"MONARCH_STAGING_PYTHON": str(python)},
        capture_output=True,
        check=True,
    )

    assert b"exec cat" in done.stdout
    assert b"shim.so" not in done.stdout


def test_agent_waits_for_a_process_that_has_just_taken_its_slot(
    run_root: Path, monarch_command: Path, dataset: Dataset, memory: Path
) -> None:
    command = [str(monarch_command), "run", "--job", "j", "--data", str(dataset.root)]
    options = ["--tier", f"ram:64MiB:{memory}", "--set", "agent.linger=20s"]
    script = (
        "import os, sys, time\n"
        "reading, writing = os.pipe()\n"
        "if os.fork():\n"
        "    os.read(reading, 1)\n"
        "    os._exit(0)\n"
        f"open({str(dataset.paths[0])!r}).close()\n"
        "os.write(writing, b'x')\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [*command, *options, "--", sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as run:
        while not list(run_root.glob("j.*/catalog")):
            time.sleep(0.01)
        (place,) = run_root.glob("j.*")
        time.sleep(1.5)
        assert is_locked(place)
        assert run.stdin is not None
        run.stdin.close()
        run.wait(timeout=10)
    assert not place.exists()
