"""How `monarch run` starts a program before the agent has a Catalog."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from monarch.native import CONSTANTS, DTYPES, AgentState, SegmentKind
from support.launcher import HEALTHY, Launch, Step
from support.processes import wait_until

pytest_plugins = ["support.launcher_fixtures"]

BEGIN: list[Step] = [["take_lock"], ["make_segments"], ["beat"]]
SCANNING: Step = ["state", int(AgentState.SCANNING)]
LATE: Step = ["write", "late not indexed: the program starts now\n"]
READY: list[Step] = [["state", int(AgentState.READY)], ["write", "ready staging\n"]]
REST = HEALTHY[-3:]


def test_program_starts_with_one_line_before_the_catalog_is_ready(
    launch: Launch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    ready: list[Step] = [["until", str(gate)], *READY]
    launch.script([*BEGIN, SCANNING, LATE, *ready, *REST])

    done = launch.run("sh", "-c", f"echo $LD_PRELOAD; touch {gate}; exit 7")

    assert done.stdout.decode().endswith("/shim.so\n")
    assert done.stderr.decode() == (
        "monarch: not indexed: the program starts now\nthe report\n"
    )
    assert done.returncode == 7


def test_quiet_start_before_the_catalog_is_ready_prints_nothing(launch: Launch) -> None:
    launch.script([*BEGIN, SCANNING, LATE, *REST])

    done = launch.run("-q", "echo", "hello")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")


def test_strict_start_waits_for_the_catalog(launch: Launch, tmp_path: Path) -> None:
    gate, program = tmp_path / "gate", tmp_path / "program"
    steps: list[Step] = [["write", "progress scanning\n"], ["until", str(gate)]]
    launch.script([*BEGIN, SCANNING, LATE, *steps, *READY, *REST])

    with launch.popen("--strict", "touch", str(program)) as started:
        assert started.stderr is not None
        assert started.stderr.readline() == b"monarch: scanning\n"
        before = program.exists()
        gate.touch()
        said = started.stderr.read()

    assert (before, program.exists(), started.returncode) == (False, True, 0)
    assert said == b"monarch: staging\nthe report\n"


def test_strict_start_is_exit_125_if_the_catalog_fails(launch: Launch) -> None:
    plain: Step = ["write", "plain the scan failed\n"]
    launch.script([*BEGIN, SCANNING, LATE, plain, *REST])

    done = launch.run("--strict", "echo", "hello")

    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr == b"monarch: the scan failed\n"


def test_failed_catalog_is_one_warning(launch: Launch, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    plain: list[Step] = [["write", "plain the scan failed\n"], ["until", str(gate)]]
    launch.script([*BEGIN, SCANNING, LATE, *plain, *REST])

    done = launch.run("sh", "-c", f"sleep 0.2; touch {gate}")

    assert done.returncode == 0
    warning = "monarch: the scan failed; the program reads the origin"
    assert done.stderr.decode().splitlines()[1:] == [warning, "the report"]


@pytest.mark.parametrize("strict", [False, True])
def test_another_program_starts_beside_the_first_one(
    launch: Launch, tmp_path: Path, strict: bool
) -> None:
    """Unless it must not run without staging: then it waits."""
    gate, first = tmp_path / "gate", tmp_path / "first"
    ready: list[Step] = [["until", str(gate)], *READY]
    launch.script([*BEGIN, SCANNING, LATE, *ready, *REST])
    program = f"touch {first}; while ! [ -e {gate} ]; do sleep 0.02; done"
    with launch.popen("--job", "j", "sh", "-c", program):
        wait_until(first.exists)
        words = ["--strict"] * strict
        second = launch.popen("--job", "j", *words, "echo", "hello")
        if strict:
            with pytest.raises(subprocess.TimeoutExpired):
                second.communicate(timeout=0.5)
            gate.touch()
        out, _ = second.communicate(timeout=30)
        gate.touch()

    assert out == b"hello\n"


def test_programs_of_an_agent_that_died_before_its_catalog_are_joined(
    launch: Launch, tmp_path: Path
) -> None:
    """A new agent would not learn what they have open for writing."""
    gate, first = tmp_path / "gate", tmp_path / "first"
    launch.script([*BEGIN, SCANNING, LATE, ["until", str(first)], ["kill", "SIGKILL"]])
    program = f"touch {first}; while ! [ -e {gate} ]; do sleep 0.02; done"
    with launch.popen("--job", "j", "sh", "-c", program) as one:
        wait_until(lambda: len(launch.events("signal")) == 1)
        agent = Path("/proc") / str(launch.events("signal")[0]["pid"])
        wait_until(lambda: not agent.exists())
        second = launch.run("--job", "j", "echo", "hello")
        gate.touch()
        one.communicate(timeout=30)

    assert second.stdout == b"hello\n"
    assert b"nothing more is staged until they end" in second.stderr
    assert len(launch.events("start")) == 1


def test_inherited_output_is_kept_for_the_marks_of_the_catalog(
    launch: Launch, tmp_path: Path
) -> None:
    """The program need not have the Shim: a static one writes to it all the same."""
    flags, table = DTYPES["flags"], DTYPES["changes"]
    made = np.zeros(flags.itemsize + table.itemsize, np.uint8)
    head = made[: flags.itemsize].view(flags)[0]
    head["seg"]["magic"] = b"MONARCH"
    head["seg"]["version"] = CONSTANTS["LAYOUT_VERSION"]
    head["seg"]["kind"], head["seg"]["length"] = SegmentKind.FLAGS, len(made)
    head["changes"] = flags.itemsize
    made.tofile(tmp_path / "made")
    place: Step = ["place", str(tmp_path / "made"), "changes"]
    launch.script([*BEGIN, place, SCANNING, LATE, *REST[:-1]])

    with (tmp_path / "output").open("wb") as file:
        command = [*launch.argv("true")]
        done = subprocess.run(command, env=launch.environ, stdout=file, check=False)

    (run_dir,) = launch.run_root.iterdir()
    slots = np.fromfile(run_dir / "changes", table, 1, offset=flags.itemsize)["slots"]
    assert done.returncode == 0
    assert (tmp_path / "output").stat().st_ino in slots["ino"]
