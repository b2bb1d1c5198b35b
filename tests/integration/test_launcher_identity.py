"""A program under `monarch run` inherits the same state and two variables."""

import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.launcher import Launch

pytest_plugins = ["support.launcher_fixtures"]

PRIVATE = ("LD_PRELOAD=", "MONARCH_STAGING_RUN=")


def unusual() -> None:
    """Changes everything that a process can hand on."""
    os.umask(0o137)
    os.nice(3)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGRTMIN}
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 22, 1 << 23))


def closed(*fds: int) -> Callable[[], None]:
    """A way to start that lacks some descriptors."""

    def close() -> None:
        for fd in fds:
            os.close(fd)

    return close


def seen(words: list[str], environ: dict[str, str], **options: object) -> list[str]:
    """The output of the program, into a file that is its only open output."""
    done = subprocess.run(words, capture_output=True, env=environ, **options)  # type: ignore[call-overload]
    output: bytes = done.stdout
    return output.decode(errors="surrogateescape").splitlines()


@pytest.fixture(params=["starts the agent", "joins", "disabled"])
def ways(request: pytest.FixtureRequest, launch: Launch, tmp_path: Path) -> object:
    """The words before the program, for each way in which it is run."""
    words = [str(launch.command), "run", "-q", "--job", "j"]
    if request.param == "disabled":
        launch.environ["MONARCH_STAGING_DISABLE"] = "1"
    if request.param != "joins":
        yield words
        return
    with launch.popen("-q", "--job", "j", "cat", stdin=subprocess.PIPE) as first:
        assert first.stdin
        assert first.stdout
        first.stdin.write(b"x\n")
        first.stdin.flush()
        assert first.stdout.readline() == b"x\n"
        yield words
        first.stdin.close()


def only_program(line: str) -> bool:
    """Whether a line must be the same in both runs."""
    changes = ("env <LD_PRELOAD=", "env <MONARCH_STAGING_RUN=", "fd 1 ", "fd 2 ")
    return not line.startswith(changes)


@pytest.mark.parametrize("start", [None, unusual], ids=["usual", "unusual"])
def test_program_inherits_the_state_of_its_caller(
    ways: list[str], launch: Launch, show: Path, start: Callable[[], None] | None
) -> None:
    fds = [os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_RDWR)]
    options = {"pass_fds": fds, "preexec_fn": start, "cwd": "/usr/lib"}

    plain = seen([str(show), "a"], launch.environ, **options)
    ours = seen([*ways, str(show), "a"], launch.environ, **options)
    for fd in fds:
        os.close(fd)

    assert len(plain) > 100
    assert list(filter(only_program, ours)) == list(filter(only_program, plain))


@pytest.mark.parametrize("fds", [(0,), (2,), (0, 2)])
def test_program_started_without_standard_descriptors_gets_none(
    ways: list[str], launch: Launch, show: Path, fds: tuple[int, ...]
) -> None:
    options = {"preexec_fn": closed(*fds)}

    plain = seen([str(show)], launch.environ, **options)
    ours = seen([*ways, str(show)], launch.environ, **options)

    assert [x for x in ours if x.startswith("fd")]
    assert not [x for x in ours for fd in fds if x.startswith(f"fd {fd} ")]
    assert list(filter(only_program, ours)) == list(filter(only_program, plain))


def test_messages_never_reach_a_file_that_replaced_stderr(
    launch: Launch,
) -> None:
    done = launch.run("--job", "j", "sh", "-c", "exit 3", preexec_fn=closed(2))

    assert done.returncode == 3
    assert done.stdout == b""


@pytest.mark.parametrize(
    "preload", [None, "", "{other}", "{other}:{other}", "{other}  {other}:"]
)
def test_environment_differs_in_two_variables(
    launch: Launch, show: Path, preload: str | None
) -> None:
    environ = {"Z": "1", "A": "", **launch.environ, "LAST": "ä\n"}
    if preload is not None:
        environ = {"LD_PRELOAD": preload.format(other=launch.layout["shim"]), **environ}

    plain = seen([str(show)], environ)
    ours = seen([*map(str, launch.argv("-q")), str(show)], environ)

    def variables(lines: list[str]) -> list[str]:
        lines = [line for line in lines if line.startswith("env <")]
        return [
            x for x in lines if not x.startswith(tuple(f"env <{p}" for p in PRIVATE))
        ]

    assert variables(ours) == variables(plain)
    (run,) = [x[25:-1] for x in ours if x.startswith("env <MONARCH_STAGING_RUN=")]
    (list_of_ours,) = [x for x in ours if x.startswith("env <LD_PRELOAD=")]
    old = environ.get("LD_PRELOAD", "")
    between = "" if not old or old[-1] in ": " else ":"
    assert list_of_ours == f"env <LD_PRELOAD={old}{between}{run}/shim.so>"
    if preload is not None:
        assert ours.index(list_of_ours) == next(
            i for i, x in enumerate(plain) if x.startswith("env <LD_PRELOAD=")
        )


def test_environment_without_any_variable(launch: Launch, show: Path) -> None:
    needed = {
        name: launch.environ[name]
        for name in ("MONARCH_STAGING_RUN_DIR", "MONARCH_STAGING_PYTHON")
    } | {"FAKE_AGENT_SCRIPT": launch.environ["FAKE_AGENT_SCRIPT"]}

    ours = seen([*map(str, launch.argv("-q")), str(show)], needed)

    names = [x[5:].partition("=")[0] for x in ours if x.startswith("env <")]
    assert names == [*needed, "LD_PRELOAD", "MONARCH_STAGING_RUN"]


def test_parent_death_signal_is_inherited(launch: Launch, show: Path) -> None:
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(1, signal.SIGUSR1)

    ours = seen(
        [*map(str, launch.argv("-q")), str(show)], launch.environ, preexec_fn=ask
    )

    assert any(f"death {int(signal.SIGUSR1)} " in line for line in ours)


def test_alarm_set_before_the_launcher_reaches_the_program(launch: Launch) -> None:
    def set_alarm() -> None:
        signal.setitimer(signal.ITIMER_REAL, 2)

    done = launch.run("-q", "sleep", "60", preexec_fn=set_alarm)

    assert done.returncode == -signal.SIGALRM


def test_launcher_leaves_the_working_directory_of_the_program(
    launch: Launch, tmp_path: Path
) -> None:
    # The launcher leaves it after starting the program.
    wait = "for n in 1 2 3 4 5 6 7 8 9; do test -e /proc/$PPID/cwd/proc && break;"
    words = ["sh", "-c", f"{wait} sleep 0.$n; done; readlink /proc/$PPID/cwd; pwd"]

    done = launch.run("-q", *words, cwd=tmp_path)

    assert done.stdout.decode() == f"/\n{tmp_path}\n"
