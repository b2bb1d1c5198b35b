"""Programs that outlive their agent: the next one sees their writes."""

import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.agents import AgentProcess
from support.dataset import Dataset
from support.obedient import Begin, Program, Run

pytest_plugins = ["support.turn_fixtures"]


@pytest.fixture(params=["stop", "kill"])
def go(request: pytest.FixtureRequest) -> Callable[[AgentProcess], object]:
    """Each way in which an agent ends."""
    ways = {"stop": AgentProcess.stop, "kill": AgentProcess.kill}
    return ways[request.param]


def test_writes_are_seen_beside_the_next_agent(
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


def test_writes_of_a_silent_child_are_seen_beside_the_next_agent(
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


def test_writes_of_a_program_started_between_two_agents_are_seen(
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


def test_file_removed_beside_the_next_agent_frees_its_inode(
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


def test_changes_of_a_program_without_a_free_descriptor_are_not_seen(
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
