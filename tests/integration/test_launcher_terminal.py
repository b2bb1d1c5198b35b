"""Job control under `monarch run`: keys and shells act as on the program itself."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launcher import HEALTHY, START, Launch, Step
from support.processes import wait_for_end
from support.terminal import Terminal

pytest_plugins = ["support.launcher_fixtures"]


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


def test_an_editor_that_stops_itself_can_be_resumed(terminal: Terminal) -> None:
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


WAITING: list[Step] = [
    *HEALTHY[:-2],
    ["write", "progress waiting for 3 nodes\n"],
    ["write", "progress waiting for 2 nodes\n"],
]


def test_ctrl_c_ends_the_wait_for_other_nodes_and_keeps_the_status(
    terminal: Terminal, launch: Launch, tmp_path: Path
) -> None:
    launch.script([*WAITING, ["until", str(tmp_path / "never")]])
    terminal.send("$RUN run true; echo code=$?\n")
    terminal.expect("monarch: waiting for 2 nodes")

    terminal.send("\x03")

    assert terminal.expect("code=[0-9]+") == "\r\x1b[Kcode=0"
    (agent,) = launch.events("start")
    wait_for_end(agent["pid"])


def test_ctrl_z_stops_the_wait_for_other_nodes(
    terminal: Terminal, launch: Launch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    launch.script([*WAITING, ["until", str(gate)], *HEALTHY[-2:]])
    terminal.send("$RUN run sh -c 'exit 7'; echo code=$?\n")
    terminal.expect("waiting for 2 nodes")

    terminal.send("\x1a")
    terminal.expect("Stopped.*prompt> ")
    gate.touch()
    terminal.send("fg; echo code=$?\n")

    assert "the report" in terminal.expect("code=7")


def test_no_waiting_is_reported_while_the_program_has_the_terminal(
    terminal: Terminal, launch: Launch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    early: Step = ["write", "progress waiting for 3 nodes\nwarn listen\n"]
    launch.script([*HEALTHY[:-3], early, *HEALTHY[-3:]])

    program = f"until [ -e {gate} ]; do sleep 0.1; done; echo off"
    terminal.send(f"$RUN run sh -c '{program}'\n")
    terminal.expect("monarch: listen\r\n")
    gate.touch()

    assert "waiting" not in terminal.expect("off\r\n")
    assert "waiting for 3 nodes" in terminal.expect("the report")


def test_hang_up_ends_the_program(terminal: Terminal, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    terminal.send(f"exec $RUN run -q sh -c 'echo $$ > {pids}; echo on; sleep 60'\n")
    terminal.expect("on\r\n")
    program = int(pids.read_text())

    os.close(terminal.fd)
    terminal.fd = os.open("/dev/null", os.O_RDONLY)

    wait_for_end(program)


def test_progress_is_cut_at_the_width_of_the_terminal(
    terminal: Terminal, launch: Launch
) -> None:
    progress: list[Step] = [["write", f"progress {'x' * 300}\n"]]
    launch.script([*START[:-1], *progress, *START[-1:], *HEALTHY[4:]])

    terminal.send("stty cols 100; $RUN run true\n")

    assert f"monarch: {'x' * 90}\r\x1b[K" in terminal.expect("the report")
