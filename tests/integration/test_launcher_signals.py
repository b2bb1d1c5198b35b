"""Signals and job control: the program gets each one once, the shell its fate."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launcher import HEALTHY, START, Launch, Step

pytest_plugins = ["support.launcher_fixtures"]

# Counts what it gets; a second signal within the grace period would be counted too.
COUNTER = """
import signal, sys, time
got = []
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), lambda number, frame: got.append(number))
print("ready", flush=True)
while not got:
    signal.pause()
end = time.monotonic() + 0.3
while time.monotonic() < end:
    time.sleep(0.02)
print("got", *[signal.Signals(x).name for x in got], flush=True)
sys.exit(17)
"""
SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGRTMIN"]


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A program that prints the signals it gets."""
    path = tmp_path / "counter.py"
    path.write_text(COUNTER)
    return path


def start(launch: Launch, counter: Path, *names: str) -> subprocess.Popen[bytes]:
    """Starts the counting program in a process group of its own."""
    run = launch.popen(
        *("-q", sys.executable, str(counter), *names), stderr=None, process_group=0
    )
    assert run.stdout
    assert run.stdout.readline() == b"ready\n"
    return run


@pytest.mark.parametrize("name", SIGNALS)
def test_signal_to_us_alone_is_forwarded_once(
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


def test_same_signal_first_to_the_group_then_to_us_comes_twice(
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
        tree = [run.pid, *children(run.pid)]
        assert len(tree) == 3
        for pid in tree:
            os.kill(pid, signal.SIGUSR1)
        out, _ = run.communicate(timeout=30)

    assert out == b"got SIGUSR1\n"


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [
        int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


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
        wait_for_state(pid, "T")
        os.kill(pid, signal.SIGCONT)

    assert run.returncode == 6


def wait_for_state(pid: int, state: str) -> None:
    """Waits until a process is in a state, as /proc has it."""
    end = time.monotonic() + 20
    while True:
        now = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if now == state:
            return
        assert time.monotonic() < end, f"{pid} is {now}"
        time.sleep(0.01)


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


class Terminal:
    """An interactive bash on a pseudo terminal."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            words = ["bash", "--norc", "--noprofile", "-i"]
            os.execvpe("bash", words, environ | {"PS1": "prompt> ", "TERM": "dumb"})
        self.expect("prompt> ")
        self.send("stty -echo; set +o history; bind 'set enable-bracketed-paste off'\n")
        self.expect("prompt> ")

    def send(self, text: str) -> None:
        """Types."""
        os.write(self.fd, text.encode())

    def expect(self, pattern: str, limit_s: float = 20) -> str:
        """Waits until the pattern has been printed; returns everything up to it."""
        end = time.monotonic() + limit_s
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            left = end - time.monotonic()
            ready, _, _ = select.select([self.fd], [], [], max(left, 0))
            assert ready, f"no {pattern!r} in {self.seen!r}"
            self.seen += os.read(self.fd, 65536).decode()
        text = self.seen[: found.end()]
        self.seen = self.seen[found.end() :]
        return text

    def close(self) -> None:
        """Hangs up."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(launch: Launch) -> Iterator[Terminal]:
    """A shell at whose prompt $RUN is the launcher."""
    terminal = Terminal(launch.environ | {"RUN": str(launch.command)})
    yield terminal
    terminal.close()


def test_ctrl_c_ends_the_program_and_the_report_is_printed(terminal: Terminal) -> None:
    terminal.send("$RUN run sh -c 'echo on; exec sleep 60'\n")
    terminal.expect("on\r\n")

    terminal.send("\x03")

    terminal.expect("the report\r\n")
    terminal.expect("prompt> ")
    terminal.send("echo code=$?\n")
    terminal.expect("code=130")


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_key_reaches_a_program_with_a_handler_once(
    terminal: Terminal, counter: Path, key: str, name: str
) -> None:
    terminal.send(f"$RUN run -q {sys.executable} {counter} {name}; echo code=$?\n")
    terminal.expect("ready\r\n")

    terminal.send(key)

    assert terminal.expect("code=[0-9]+").endswith(f"got {name}\r\ncode=17")


def test_ctrl_z_stops_and_fg_continues(terminal: Terminal, counter: Path) -> None:
    terminal.send(f"$RUN run -q {sys.executable} {counter} SIGCONT\n")
    terminal.expect("ready\r\n")

    terminal.send("\x1a")
    terminal.expect("Stopped.*prompt> ")
    terminal.send("fg; echo code=$?\n")

    assert terminal.expect("code=[0-9]+").endswith("got SIGCONT\r\ncode=17")


def test_ctrl_z_and_bg_and_kill(terminal: Terminal, counter: Path) -> None:
    terminal.send(f"$RUN run -q {sys.executable} {counter} SIGTERM\n")
    terminal.expect("ready\r\n")
    terminal.send("\x1a")
    terminal.expect("Stopped.*prompt> ")

    terminal.send("bg\n")
    terminal.expect("&")
    terminal.send("kill %1; wait %1; echo code=$?\n")

    assert "got SIGTERM\r\n" in terminal.expect("code=17")


def test_background_program_that_reads_the_terminal_is_stopped(
    terminal: Terminal,
) -> None:
    terminal.send("$RUN run -q sh -c 'read x; echo read=$x' &\n")
    time.sleep(0.5)
    terminal.send("\n")
    terminal.expect(r"Stopped \(tty input\)|Stopped")

    terminal.send("fg\n")
    time.sleep(0.3)
    terminal.send("hello\n")

    terminal.expect("read=hello")


def test_an_editor_that_stops_itself_comes_back(terminal: Terminal) -> None:
    terminal.send("$RUN run -q sh -c 'kill -TSTP $$; echo back; exit 5'\n")
    terminal.expect("Stopped.*prompt> ")

    terminal.send("fg; echo code=$?\n")

    terminal.expect("back\r\ncode=5")


def test_interactive_shell_has_its_job_control(terminal: Terminal) -> None:
    terminal.send("$RUN run -q bash --norc --noprofile -i; echo code=$?\n")
    terminal.expect("prompt> ")
    terminal.send("sleep 60\n")
    time.sleep(0.5)
    terminal.send("\x1a")
    terminal.expect("Stopped.*prompt> ")
    terminal.send("kill %1; exit 3\n")
    terminal.send("exit 3\n")

    terminal.expect("code=3")


def test_ctrl_c_while_the_agent_starts_ends_the_launcher(
    terminal: Terminal, launch: Launch
) -> None:
    launch.script([*START[:-1], ["write", "progress 1 of 9\n"], ["follow"]])
    terminal.send("$RUN run echo hello\n")
    terminal.expect("monarch: 1 of 9")

    terminal.send("\x03")
    terminal.expect("prompt> ")
    terminal.send("echo code=$?\n")

    assert "hello" not in terminal.expect("code=130")


def test_progress_on_a_terminal_is_one_line(terminal: Terminal, launch: Launch) -> None:
    progress: list[Step] = [
        ["write", "progress 1 of 2\n"],
        ["write", "progress 2 of 2\n"],
    ]
    launch.script([*START[:-1], *progress, *START[-1:], *HEALTHY[4:]])

    terminal.send("$RUN run true\n")

    text = terminal.expect("the report")
    assert text.startswith("monarch: 1 of 2\r\x1b[Kmonarch: 2 of 2\r\x1b[Kmonarch: sta")


def test_hang_up_ends_the_program(terminal: Terminal, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    terminal.send(f"exec $RUN run -q sh -c 'echo $$ > {pids}; echo on; sleep 60'\n")
    terminal.expect("on\r\n")
    program = int(pids.read_text())

    os.close(terminal.fd)
    terminal.fd = os.open("/dev/null", os.O_RDONLY)

    end = time.monotonic() + 20
    while Path(f"/proc/{program}").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_progress_is_cut_at_the_width_of_the_terminal(
    terminal: Terminal, launch: Launch
) -> None:
    progress: list[Step] = [["write", f"progress {'x' * 300}\n"]]
    launch.script([*START[:-1], *progress, *START[-1:], *HEALTHY[4:]])

    terminal.send("stty cols 100; $RUN run true\n")

    assert f"monarch: {'x' * 90}\r\x1b[K" in terminal.expect("the report")
