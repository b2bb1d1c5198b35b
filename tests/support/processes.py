"""Processes started by a test, found by a mark that they carry; and waiting."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

WAIT_S = 60.0
STEP_S = 0.005
STEP_MAX_S = 0.05
KILL_ROUNDS = 20


def wait_until(
    true: Callable[[], object],
    what: str = "the event",
    limit_s: float = WAIT_S,
) -> None:
    """Waits until a condition is true, or fails with its description."""
    began = time.monotonic()
    end = began + limit_s
    while not true():
        now = time.monotonic()
        assert now < end, f"did not happen within {limit_s} s: {what}"
        # An expensive check must not take the processor from the work it waits for.
        time.sleep(min(max(STEP_S, 3 * (now - began)), STEP_MAX_S))
        began = time.monotonic()


def marked(mark: str | Path, environ: bool = False) -> dict[int, list[str]]:
    """The arguments of each other process that has a text in them, by its pid.

    Args:
        environ: look into the environments too.
    """
    found = {}
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            text = "\0".join(words)
            if environ:
                text += "\0".join(process.environ().values())
        except (psutil.Error, OSError):
            continue
        if str(mark) in text and process.pid != os.getpid():
            found[process.pid] = words
    return found


def agents(mark: str | Path, environ: bool = False) -> list[int]:
    """The pids of the marked processes that are agents."""
    found = marked(mark, environ)
    return [pid for pid, words in found.items() if "--notify-fd" in words]


def kill_agents(mark: str | Path) -> None:
    """Kills the marked agents."""
    for pid in agents(mark):
        kill(pid)


def kill_marked(mark: str | Path, environ: bool = False) -> None:
    """Kills each marked process, and those that these start meanwhile."""
    for _ in range(KILL_ROUNDS):
        pids = list(marked(mark, environ))
        if not pids:
            return
        for pid in pids:
            kill(pid)
        time.sleep(2 * STEP_S)


def kill(pid: int) -> None:
    """Kills a process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def mapped() -> set[str]:
    """The paths of all files that some process has mapped."""
    found: set[str] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            found.update(one.path for one in process.memory_maps())
    return found


def exists(pid: int) -> bool:
    """Whether such a process exists, a zombie included."""
    return psutil.pid_exists(pid)


def wait_for_state(pid: int, *states: str) -> None:
    """Waits until a process is in one of the states of psutil."""
    process = psutil.Process(pid)
    wait_until(lambda: process.status() in states, f"{pid} is {' or '.join(states)}")


def wait_for_end(pid: int) -> None:
    """Waits until a process no longer exists."""
    wait_until(lambda: not exists(pid), f"end of process {pid}")
