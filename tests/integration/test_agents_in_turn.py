"""Programs that outlive their agent: what they write, those of the next one see."""

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monarch.tiers.directory_lock import is_locked
from monarch.tiers.leftovers import collect
from support.agents import AgentProcess, start_agent
from support.dataset import Dataset
from support.obedient import Program

Begin = Callable[[], AgentProcess]
Run = Callable[[AgentProcess], Program]


@pytest.fixture
def begin(run_root: Path, dataset: Dataset, tmp_path: Path) -> Iterator[Begin]:
    """Starts an agent of the same job, one after the other."""
    started: list[AgentProcess] = []
    tier = tmp_path / "tier"
    tier.mkdir()
    options = ["--data", str(dataset.root), "--tier", f"ram:64MiB:{tier}"]
    options += ["--set", "cold_open.mode=wait"]

    def start() -> AgentProcess:
        agent = start_agent(run_root / "j.n", options)
        started.append(agent)
        agent.listen("ready")
        return agent

    yield start
    for agent in started:
        if agent.process.poll() is None:
            agent.kill()
    shutil.rmtree(run_root / "j.n", ignore_errors=True)


@pytest.fixture
def program() -> Iterator[Run]:
    """Runs a program beside an agent."""
    running: list[Program] = []

    def run(agent: AgentProcess) -> Program:
        one = Program.run(agent.environ())
        running.append(one)
        return one

    yield run
    for one in running:
        if one.process.stdin is not None and not one.process.stdin.closed:
            one.end()


@pytest.fixture
def survivor(begin: Begin, program: Run) -> Callable[[Path], Program]:
    """Gives a program that has read a file and whose agent has ended since."""

    def outlive(path: Path) -> Program:
        agent = begin()
        one = program(agent)
        one.read(path)
        agent.stop()
        return one

    return outlive


@pytest.fixture(params=["stop", "kill"])
def go(request: pytest.FixtureRequest) -> Callable[[AgentProcess], object]:
    """Each way in which an agent goes."""
    ways = {"stop": AgentProcess.stop, "kill": AgentProcess.kill}
    return ways[request.param]


def test_what_is_written_is_seen_beside_the_next_agent(
    begin: Begin,
    program: Run,
    go: Callable[[AgentProcess], object],
    dataset: Dataset,
) -> None:
    first, (path, other, *_) = begin(), dataset.paths
    before = program(first)
    before.read(path)
    go(first)
    second = begin()
    beside = program(second)
    assert not beside.read(path).startswith("(b'NEW'")

    before.write(path)

    assert beside.read(path) == before.read(path) == "(b'NEW', 3)"
    go(second)
    late = program(begin())
    late.read(other)
    before.write(other)
    assert late.read(other) == before.read(other) == "(b'NEW', 3)"


def test_what_a_child_writes_that_never_spoke_is_seen_beside_the_next_agent(
    begin: Begin, program: Run, dataset: Dataset
) -> None:
    first, path = begin(), dataset.paths[0]
    before = program(first)
    before.read(path)
    assert before.do("os.fork() and os._exit(0)") == "0"
    first.stop()
    beside = program(begin())
    beside.read(path)

    before.write(path)

    assert beside.read(path) == "(b'NEW', 3)"


def test_what_a_program_writes_that_was_started_between_two_agents_is_seen(
    survivor: Callable[[Path], Program],
    begin: Begin,
    program: Run,
    dataset: Dataset,
) -> None:
    path = dataset.paths[0]
    before = survivor(path)
    before.start(f"read line; printf NEW > {path}")
    beside = program(begin())
    beside.read(path)

    before.tell_child()

    assert beside.read(path) == "(b'NEW', 3)"
    for one in (before, beside):
        one.end()


@pytest.mark.root
@pytest.mark.parametrize("beside_next", [False, True])
def test_program_that_is_started_after_its_agent_knows_no_replicas(
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


def test_child_without_its_environment_is_not_seen_between_two_agents(
    survivor: Callable[[Path], Program],
    begin: Begin,
    program: Run,
    dataset: Dataset,
) -> None:
    other = dataset.paths[1]
    before = survivor(other)
    before.start(f"env -i sh -c 'read line; printf NEW > {other}'")
    beside = program(begin())
    beside.read(other)

    before.tell_child()

    assert other.read_bytes() == b"NEW"
    assert not beside.read(other).startswith("(b'NEW'")
    for one in (before, beside):
        one.end()


def test_what_such_a_program_has_open_for_writing_is_seen_by_the_next_call(
    survivor: Callable[[Path], Program],
    begin: Begin,
    program: Run,
    dataset: Dataset,
) -> None:
    path, other, *_ = dataset.paths
    before = survivor(other)
    before.start(f"exec >> {path}; read line; : >> {other}; printf NEW; read line")
    beside = program(begin())
    size = path.stat().st_size
    beside.read(path)

    before.do("child.stdin.write(b'go\\n') and child.stdin.flush()")
    while path.stat().st_size == size:
        time.sleep(0.01)

    assert beside.read(path).endswith(f", {size + 3})")
    before.tell_child()
    for one in (before, beside):
        one.end()


def test_run_directory_goes_with_the_last_program_after_its_agent(
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


def test_file_that_is_open_for_writing_is_seen_by_the_next_call(
    survivor: Callable[[Path], Program],
    begin: Begin,
    program: Run,
    dataset: Dataset,
) -> None:
    path = dataset.paths[0]
    before = survivor(path)
    fd = before.do(f"os.open({str(path)!r}, os.O_WRONLY)")
    beside = program(begin())
    beside.read(path)

    before.do(f"open({str(dataset.paths[1])!r}, 'a').close()")
    before.do(f"os.write({fd}, b'NEW')")

    assert beside.read(path).startswith("(b'NEW'")


def test_redirected_descriptor_is_the_origins_file_after_its_agent_has_ended(
    begin: Begin, program: Run, dataset: Dataset
) -> None:
    first, path = begin(), dataset.paths[0]
    before = program(first)
    fd = before.do(f"os.open({str(path)!r}, os.O_RDONLY)")
    first.stop()
    shown = f"os.fstat({fd}).st_ino, os.fstat({fd}).st_mode"

    def changes(mode: int) -> None:
        before.do(f"os.fchmod({fd}, {mode})")
        found = path.stat()
        assert stat.S_IMODE(found.st_mode) == mode
        assert before.do(shown) == f"({found.st_ino}, {found.st_mode})"

    changes(0o640)
    beside = program(begin())
    beside.read(path)
    changes(0o600)
    before.do(f"open('/proc/self/fd/{fd}', 'w').write('NEW')")
    assert beside.read(path) == "(b'NEW', 3)"


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


def test_leftover_whose_pid_is_somebody_elses_by_now_is_removed(
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


def test_nested_run_beside_programs_of_a_dead_agent_sees_what_they_write(
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


def test_command_that_a_program_gives_does_not_run_under_its_shim(
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
    run_root: Path, monarch_command: Path, dataset: Dataset, tmp_path: Path
) -> None:
    command = [str(monarch_command), "run", "--job", "j", "--data", str(dataset.root)]
    options = ["--set", "agent.linger=20s"]
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


def test_redirected_descriptor_of_a_lost_replica_is_the_origins_file(
    begin: Begin, program: Run, dataset: Dataset, tmp_path: Path
) -> None:
    agent, path = begin(), dataset.paths[0]
    beside = program(agent)
    fd = beside.do(f"os.open({str(path)!r}, os.O_RDONLY)")
    for replica in (tmp_path / "tier").rglob("ram/*"):
        replica.unlink()
    program(agent).read(path)
    agent.await_figure("replicas_lost", 1)

    beside.do(f"os.fchmod({fd}, 0o640)")
    assert beside.do(f"os.fstat({fd}).st_ino") == str(path.stat().st_ino)
    beside.do(f"open('/proc/self/fd/{fd}', 'w').write('NEW')")

    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_bytes() == b"NEW"


@pytest.mark.parametrize("rights", [3, 1], ids=["at once", "by mprotect"])
def test_file_that_is_mapped_for_writing_is_seen_by_the_next_call(
    survivor: Callable[[Path], Program],
    begin: Begin,
    program: Run,
    dataset: Dataset,
    rights: int,
) -> None:
    path = dataset.paths[0]
    before = survivor(path)
    before.do("globals().update(c=__import__('ctypes').CDLL(None))")
    before.do("globals().update(c_void_p=__import__('ctypes').c_void_p)")
    before.do("setattr(c.mmap, 'restype', c_void_p)")
    fd = before.do(f"os.open({str(path)!r}, os.O_RDWR)")
    address = before.do(f"c.mmap(None, 3, {rights}, 1, {fd}, 0)")
    before.do(f"os.close({fd})")
    beside = program(begin())
    beside.read(path)

    before.do(f"open({str(dataset.paths[1])!r}, 'a').close()")
    assert before.do(f"c.mprotect(c_void_p({address}), 3, 3)") == "0"
    before.do(f"__import__('ctypes').memmove({address}, b'NEW', 3)")

    assert beside.read(path).startswith("(b'NEW'")


def test_file_removed_beside_the_next_agent_gives_up_its_inode(
    begin: Begin, program: Run, dataset: Dataset
) -> None:
    first, path = begin(), dataset.paths[0]
    before = program(first)
    fd = before.do(f"os.open({str(path)!r}, os.O_RDONLY)")
    ino = before.do(f"os.fstat({fd}).st_ino")
    first.stop()
    beside = program(begin())
    beside.read(path)

    beside.do(f"os.unlink({str(path)!r})")

    assert before.do(f"os.fstat({fd}).st_nlink") == "0"
    assert before.do(f"os.fstat({fd}).st_ino == {ino}") == "False"
    assert before.do(f"os.pread({fd}, 3, 0)") != "b''"


def test_what_a_program_without_a_free_descriptor_changes_is_not_seen(
    survivor: Callable[[Path], Program],
    begin: Begin,
    program: Run,
    dataset: Dataset,
) -> None:
    path, other, *_ = dataset.paths
    before = survivor(path)
    limit = before.do("len(os.listdir('/proc/self/fd')) - 1")
    before.do(f"__import__('resource').setrlimit(7, [{limit}] * 2)")
    beside = program(begin())
    beside.read(path)
    beside.read(other)

    before.do(f"os.truncate({str(path)!r}, 3)")

    assert not beside.read(path).endswith(", 3)")
