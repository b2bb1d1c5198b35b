"""How `monarch run` works without an agent that cannot start, dies or hangs."""

import signal
import time
from pathlib import Path

import pytest

from monarch.tiers.leftovers import collect
from support.launcher import HEALTHY, START, Launch, Step
from support.processes import wait_until

pytest_plugins = ["support.launcher_fixtures"]

READY: list[Step] = [*START, ["write", "ready staging nothing to ram\n"]]
REST = HEALTHY[len(READY) :]
UNSTAGED = "; the program runs without staging"


def test_run_directory_of_a_dead_agent_is_used_again(launch: Launch) -> None:
    launch.script([*READY, ["kill", "SIGKILL"]])
    dead = launch.run("--job", "j", "true")
    (run_dir,) = launch.run_root.iterdir()
    stale = (run_dir / "requests").read_bytes()
    (run_dir / "shim.so").unlink()
    assert stale[32:36] == b"\1\0\0\0"

    launch.script(HEALTHY)
    done = launch.run("--job", "j", "echo", "hello")

    assert dead.stderr.decode().splitlines()[1:] == [
        "monarch: the agent ended without a report"
    ]
    assert done.stdout == b"hello\n"
    assert done.stderr.decode().endswith("the report\n")
    assert len(launch.events("start")) == 2


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "steps",
    [
        [["kill", "SIGKILL"]],
        [["take_lock"], ["kill", "SIGKILL"]],
        [["take_lock"], ["make_segments"], ["kill", "SIGKILL"]],
        [*START, ["write", "progress half"], ["kill", "SIGKILL"]],
        [["write", "progress 1\nwarn x"], ["kill", "SIGTERM"]],
        [["write", "rea"]],
    ],
)
def test_agent_that_dies_while_starting_is_one_warning(
    launch: Launch, steps: list[Step], strict: bool
) -> None:
    launch.script(steps)

    done = launch.run(*["--strict"] * strict, "echo", "hello")

    last = done.stderr.decode().splitlines()[-1]
    assert last == "monarch: the agent ended before it was ready" + UNSTAGED * (
        not strict
    )
    assert done.returncode == 125 * strict
    assert done.stdout == b"hello\n" * (not strict)
    # The next agent finds and removes the leftovers, once no process has the Shim.
    root = launch.run_root
    wait_until(lambda: collect(root, time.time()) or not list(root.iterdir()))
    assert not list(root.iterdir())


@pytest.mark.parametrize("steps", [[*READY], [*READY, ["write", "say ha"]]])
def test_agent_that_dies_while_the_program_runs_is_harmless(
    launch: Launch, tmp_path: Path, steps: list[Step]
) -> None:
    gate = tmp_path / "gate"
    launch.script([*steps, ["until", str(gate)], ["kill", "SIGKILL"]])
    program = f"touch {gate}; sleep 0.5; exit 13"

    done = launch.run("sh", "-c", program)

    assert done.returncode == 13


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("words", ["fail 125 no room", "plain no room"])
def test_agent_that_cannot_start_is_one_warning(
    launch: Launch, words: str, strict: bool
) -> None:
    launch.script([*START, ["clear"], ["write", f"{words}\n"]])

    done = launch.run(*["--strict"] * strict, "sh", "-c", "echo hello $LD_PRELOAD")

    assert done.stderr.decode() == f"monarch: no room{UNSTAGED * (not strict)}\n"
    assert done.stdout == b"hello\n" * (not strict)
    assert done.returncode == 125 * strict
    assert not list(launch.run_root.iterdir())


def test_quiet_does_not_hide_that_the_program_runs_without_staging(
    launch: Launch,
) -> None:
    launch.script([*START, ["write", "fail 125 no room\n"]])

    done = launch.run("-q", "echo", "hello")

    assert done.stderr.decode() == f"monarch: no room{UNSTAGED}\n"
    assert (done.returncode, done.stdout) == (0, b"hello\n")


@pytest.mark.parametrize(("program", "code"), [("exit 5", 5), ("kill -9 $$", -9)])
def test_failed_program_is_reported_while_the_agent_serves_others(
    launch: Launch, tmp_path: Path, program: str, code: int
) -> None:
    launch.script([*READY, ["until", str(tmp_path / "never")]])

    done = launch.run("--job", "j", "sh", "-c", program, timeout=20)

    assert done.returncode == code
    assert b"the program failed; not waiting for the rest of its job" in done.stderr


def test_failed_program_is_not_reported_before_the_report_of_an_ending_agent(
    launch: Launch,
) -> None:
    ending: list[Step] = [["follow"], ["state", 3], ["sleep", 3]]
    launch.script([*READY, *ending, *HEALTHY[-2:]])

    done = launch.run("sh", "-c", "exit 5")

    assert done.returncode == 5
    assert done.stderr.endswith(b"the report\n")


def test_report_printed_by_another_node_is_not_missed(launch: Launch) -> None:
    launch.script([*READY, ["follow"], ["write", "done\n"], ["remove"]])

    assert launch.run("-q", "true").stderr == b""


def test_wrong_configuration_is_exit_2_and_nothing_starts(launch: Launch) -> None:
    launch.script([["write", "fail 2 a.yaml:1:1: x\n"], ["write", "fail 2 y\n"]])

    done = launch.run("-q", "echo", "hello")

    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr == b"monarch: a.yaml:1:1: x\nmonarch: y\n"
    assert not list(launch.run_root.iterdir())


@pytest.mark.parametrize("end", [[], [["remove"]]], ids=["", "cleaned"])
@pytest.mark.parametrize(("code", "expected"), [(2, 2), (125, 0)])
def test_start_that_failed_for_one_rank_is_not_retried_by_the_others(
    launch: Launch, code: int, expected: int, end: list[Step]
) -> None:
    launch.script(
        [["sleep", 1], *START[:-1], ["sleep", 1], ["write", f"fail {code} no\n"], *end]
    )

    runs = [launch.popen("--job", "j", "echo", "hello") for _ in range(8)]
    ends = [run.communicate(timeout=60) for run in runs]

    assert [run.returncode for run in runs] == [expected] * 8
    assert {err.decode() for _, err in ends} == {
        "monarch: no" + UNSTAGED * (code == 125) + "\n"
    }
    # An agent that removes the run directory also removes the lock of the others.
    assert len(launch.events("start")) < (8 if end else 2)


def test_an_old_failure_does_not_count(launch: Launch) -> None:
    launch.script([["write", "fail 2 wrong\n"]])
    assert launch.run("--job", "j", "true").returncode == 2

    launch.script(HEALTHY)

    assert launch.run("--job", "j", "true").returncode == 0


@pytest.mark.parametrize("where", [2, 3, 4])
def test_stopped_agent_is_given_up_while_starting(launch: Launch, where: int) -> None:
    launch.script([*START[:where], ["kill", "SIGSTOP"]])

    done = launch.run("echo", "hello", timeout=30)

    assert done.stdout == b"hello\n"
    assert done.stderr.decode() == f"monarch: the agent is not responding{UNSTAGED}\n"


def test_stopped_agent_is_given_up_at_the_end(launch: Launch) -> None:
    launch.script([*READY, ["kill", "SIGSTOP"]])

    done = launch.run("true", timeout=30)

    assert done.returncode == 0
    assert b"the agent is not responding; no report was written" in done.stderr


def test_stopped_agent_is_given_up_by_the_others(
    launch: Launch, tmp_path: Path
) -> None:
    launch.script([*START[:-1], ["kill", "SIGSTOP"]])
    first = launch.popen("--job", "j", "echo", "hello")
    wait_until(lambda: launch.events("signal"))

    second = launch.run("--job", "j", "echo", "hello", timeout=30)

    assert second.stdout == b"hello\n"
    assert b"the agent is not responding" in second.stderr
    assert first.communicate(timeout=30)[0] == b"hello\n"


def test_a_stopped_start_delays_other_launchers_only_briefly(
    launch: Launch, tmp_path: Path
) -> None:
    launch.script([["until", str(tmp_path / "gate")], *HEALTHY])
    first = launch.popen("--job", "j", "true")
    wait_until(lambda: launch.events("start"))
    first.send_signal(signal.SIGSTOP)

    second = launch.run("--job", "j", "sh", "-c", "exit 7", timeout=20)

    (tmp_path / "gate").touch()
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=30)
    assert second.stderr.decode() == (
        "monarch: the process that starts the agent is stopped "
        f"(pid {first.pid}){UNSTAGED}\n"
    )
    assert second.returncode == 7
    assert first.returncode == 0


def test_the_agent_of_a_stopped_start_is_used(launch: Launch, tmp_path: Path) -> None:
    launch.script([["until", str(tmp_path / "gate")], *HEALTHY])
    first = launch.popen("--job", "j", "true")
    wait_until(lambda: launch.events("start"))
    first.send_signal(signal.SIGSTOP)
    (tmp_path / "gate").touch()
    wait_until(lambda: list(launch.run_root.glob("j.*/shim.so")))

    second = launch.run("-q", "--job", "j", "printenv", "LD_PRELOAD", timeout=20)

    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=30)
    assert second.stdout.endswith(b"/shim.so\n")
    assert second.stderr == b""


def test_agent_of_another_version_is_not_joined(launch: Launch) -> None:
    launch.script([["take_lock"], ["make_segments", 99], *READY[2:], *REST])

    done = launch.run("echo", "hello")

    assert done.stdout == b"hello\n"
    assert b"the agent has another version" in done.stderr


def test_interrupted_while_waiting_the_launcher_dies_and_nothing_starts(
    launch: Launch, tmp_path: Path
) -> None:
    launch.script([*START[:-1], ["follow"]])
    run = launch.popen("--job", "j", "touch", str(tmp_path / "ran"))
    wait_until(lambda: list(launch.run_root.glob("j.*/requests")))

    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)

    assert run.returncode == -signal.SIGINT
    wait_until(lambda: launch.events("abandoned"))
    assert not (tmp_path / "ran").exists()


def test_python_that_cannot_be_run_is_one_warning(launch: Launch) -> None:
    environ = launch.environ | {"MONARCH_STAGING_PYTHON": "/no/python"}

    done = launch.run("echo", "hello", env=environ)

    assert done.stdout == b"hello\n"
    assert done.stderr.decode() == (
        "monarch: cannot start the agent with /no/python: "
        f"No such file or directory{UNSTAGED}\n"
    )
    assert not list(launch.run_root.iterdir())
