"""Signals to a waiting launcher: the program receives each of them once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.launcher import HEALTHY, Launch, Step
from support.processes import wait_for_end, wait_for_state, wait_until

pytest_plugins = ["support.launcher_fixtures"]

READY = HEALTHY[:-3]
ENDING = 3

SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGRTMIN"]


def start(launch: Launch, counter: Path, *names: str) -> subprocess.Popen[bytes]:
    """Starts the counting program in a process group of its own."""
    run = launch.popen(
        *("-q", sys.executable, str(counter), *names), stderr=None, process_group=0
    )
    assert run.stdout
    assert run.stdout.readline() == b"ready\n"
    return run


@pytest.mark.parametrize("name", SIGNALS)
def test_signal_to_the_launcher_alone_is_forwarded_once(
    launch: Launch, counter: Path, name: str
) -> None:
    with start(launch, counter, name) as run:
        run.send_signal(getattr(signal, name))
        out, _ = run.communicate(timeout=30)

    assert out == f"got {name}\n".encode()
    assert run.returncode == 17


@pytest.mark.parametrize("name", SIGNALS)
def test_signal_to_the_group_reaches_the_program_once(
    launch: Launch, counter: Path, name: str
) -> None:
    with start(launch, counter, name) as run:
        os.killpg(run.pid, getattr(signal, name))
        out, _ = run.communicate(timeout=30)

    assert out == f"got {name}\n".encode()
    assert run.returncode == 17


def test_signal_after_one_to_the_group_is_forwarded(
    launch: Launch, counter: Path
) -> None:
    with start(launch, counter, "SIGUSR2") as run:
        os.killpg(run.pid, signal.SIGWINCH)
        time.sleep(0.2)  # nothing shows that a signal was not forwarded
        run.send_signal(signal.SIGUSR2)
        out, _ = run.communicate(timeout=30)

    assert out == b"got SIGUSR2\n"


def test_signal_to_the_group_and_then_to_the_launcher_arrives_twice(
    launch: Launch, counter: Path
) -> None:
    with start(launch, counter, "SIGUSR2") as run:
        os.killpg(run.pid, signal.SIGUSR2)
        time.sleep(0.1)  # else the two are one pending signal
        run.send_signal(signal.SIGUSR2)
        out, _ = run.communicate(timeout=30)

    assert out == b"got SIGUSR2 SIGUSR2\n"


def test_batch_system_that_signals_each_process_reaches_the_program_once(
    launch: Launch, counter: Path
) -> None:
    with start(launch, counter, "SIGUSR1") as run:
        tree = [run.pid, *(one.pid for one in psutil.Process(run.pid).children())]
        assert len(tree) == 3
        for pid in tree:
            os.kill(pid, signal.SIGUSR1)
        out, _ = run.communicate(timeout=30)

    assert out == b"got SIGUSR1\n"


def test_value_of_a_queued_signal_is_forwarded(launch: Launch, tmp_path: Path) -> None:
    program = (
        "import signal; signal.pthread_sigmask(0, {34}); print('ready', flush=True);"
        "x = signal.sigwaitinfo({34}); print(x.si_code, flush=True)"
    )
    with launch.popen("-q", sys.executable, "-c", program, stderr=None) as run:
        assert run.stdout
        run.stdout.readline()
        subprocess.run(["/bin/kill", "-q", "5", "-34", str(run.pid)], check=True)
        assert run.stdout.readline() == b"-1\n"


def test_a_program_that_signals_its_parent_is_not_signalled_back(
    launch: Launch,
) -> None:
    program = "kill -USR1 $PPID; sleep 0.3; exit 4"

    assert launch.run("-q", "sh", "-c", program).returncode == 4


def test_a_stopped_program_without_a_terminal_can_be_continued_by_its_own_pid(
    launch: Launch,
) -> None:
    program = "echo $$; kill -STOP $$; exit 6"
    with launch.popen(
        *("-q", "sh", "-c", program), stderr=None, start_new_session=True
    ) as run:
        assert run.stdout
        pid = int(run.stdout.readline())
        wait_for_state(pid, psutil.STATUS_STOPPED)
        os.kill(pid, signal.SIGCONT)

    assert run.returncode == 6


def test_impatient_user_ends_the_agent_too(launch: Launch, tmp_path: Path) -> None:
    launch.script([*HEALTHY[:-2], ["until", str(tmp_path / "never")]])
    with launch.popen("sh", "-c", "exit 0") as run:
        wait_until(lambda: launch.events("finish"))
        run.send_signal(signal.SIGINT)

    assert run.returncode == 0
    (agent,) = launch.events("start")
    wait_for_end(agent["pid"])


def waiting(launch: Launch, *words: str) -> subprocess.Popen[bytes]:
    """A launcher whose program has ended with 3, although its agent has not."""
    run = launch.popen(*words, "sh", "-c", "echo $$; exit 3")
    assert run.stdout
    wait_for_end(int(run.stdout.readline()))
    return run


def test_impatient_user_leaves_the_agent_to_other_programs(
    launch: Launch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    launch.script([*READY, ["until", str(gate)], ["note", "left"]])
    first = waiting(launch, "--job", "j")
    with launch.popen("--job", "j", "sh", "-c", "echo on; read x") as second:
        assert second.stdout
        assert second.stdout.readline() == b"on\n"

        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=30)
        gate.touch()

        assert first.returncode == 3
        wait_until(lambda: launch.events("left"))
        second.kill()


def test_impatient_user_does_not_kill_an_agent_that_ends(
    launch: Launch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    launch.script(
        [*READY, ["follow"], ["state", ENDING], ["until", str(gate)], ["note", "left"]]
    )
    run = waiting(launch)
    wait_until(lambda: launch.events("finish"))
    time.sleep(0.2)

    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=30)
    gate.touch()

    assert run.returncode == 3
    wait_until(lambda: launch.events("left"))


def test_impatient_user_does_not_wait_for_the_report(
    launch: Launch, tmp_path: Path
) -> None:
    steps: list[Step] = [*HEALTHY[:-2], ["until", str(tmp_path / "never")]]
    launch.script(steps)
    with launch.popen("sh", "-c", "exit 9") as run:
        while not launch.events("finish"):
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)

    assert run.returncode == 9
