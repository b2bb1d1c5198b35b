"""The parts of an agent: notices, run directory, segments, processes."""

import asyncio
import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from monarch.agent import bootstrap
from monarch.agent.control import Notifier
from monarch.agent.processes import Processes, start_time
from monarch.agent.segments import RunDirectory, Segments
from monarch.cluster import RankRegistry, UnnamedNodes
from monarch.config import Config, Peers
from monarch.errors import MonarchError
from monarch.native import COUNTERS, DTYPES, ProcessState


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)


def test_each_notice_is_one_line(pipe):
    reading, writing = pipe
    notifier = Notifier(writing)

    notifier.fail(2, "a.yaml:1: first\na.yaml:2: second")
    notifier.say("one\n\n  two\n")
    notifier.close()

    assert os.read(reading, 1000).decode().splitlines() == [
        "fail 2 a.yaml:1: first",
        "fail 2 a.yaml:2: second",
        "say one",
        "say",
        "say   two",
    ]


def test_a_stopped_launcher_does_not_stop_the_agent(pipe):
    _, writing = pipe
    notifier = Notifier(writing)

    for _ in range(2000):
        notifier.progress("x" * 100)

    assert notifier.has_reader()
    notifier.close()


def test_an_ended_launcher_is_noticed():
    reading, writing = os.pipe()
    notifier = Notifier(writing)
    assert notifier.has_reader()

    os.close(reading)

    assert not notifier.has_reader()
    notifier.warn("nobody hears this")
    notifier.close()


def test_leftovers_of_a_dead_agent_are_not_trusted(tmp_path):
    path = tmp_path / "j.n"
    path.mkdir(mode=0o700)
    for name in ("catalog", "requests", "control", "start", "agent.log"):
        (path / name).touch()
    (path / "ram").mkdir()
    (path / "ram" / "replica").touch()

    run = RunDirectory(path)

    assert sorted(e.name for e in path.iterdir()) == ["agent.log", "lock", "start"]
    with pytest.raises(MonarchError, match="another agent is already running"):
        RunDirectory(path)
    run.remove()
    assert not path.exists()


def test_a_segment_is_complete_under_its_name_or_absent(tmp_path):
    segments = Segments(tmp_path)

    def fail(name, memory):
        assert not (tmp_path / name).exists()
        raise ValueError

    with pytest.raises(ValueError):
        segments.create("flags", 100, fail)

    assert not (tmp_path / "flags").exists()


def test_segments_carry_one_generation_and_are_private(tmp_path):
    segments = Segments(tmp_path)
    segments.create_first()

    heads = [segments.record(name)["seg"] for name in ("requests", "counters")]

    assert {int(head["generation"]) for head in heads} == {segments.generation}
    assert segments.record("requests")["agent_pid"] == os.getpid()
    modes = {(tmp_path / n).stat().st_mode & 0o777 for n in ("requests", "counters")}
    assert modes == {0o600}


@pytest.fixture
def counters():
    return np.zeros(DTYPES["counters"].itemsize, np.uint8)


def occupy(counters, number, pid, **fields):
    head = counters.view(DTYPES["counters"])
    head["slots_used_max"] = max(int(head["slots_used_max"][0]), number + 1)
    slot = head[0]["process"][number]
    slot["pid"] = pid
    slot["name"] = fields.get("name", b"/bin/program")
    slot["starttime"] = fields.get("starttime", 0)
    slot["counters"][0] = fields.get("opens", 0)
    head[0]["process"]["state"][number] = fields.get("state", ProcessState.ACTIVE)


def child():
    """A process that lives until its stdin is closed."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def let_die_unreaped(process):
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def let_die(process):
    assert process.stdin is not None
    process.stdin.close()


async def death_of_a_program(counters):
    processes = Processes(counters, lambda: None)
    with child() as program, child() as other:
        start = start_time(program.pid)
        occupy(counters, 1, program.pid, opens=5, starttime=start)
        occupy(counters, 2, other.pid, opens=2, state=ProcessState.LAUNCHED)
        processes.scan()
        living = (processes.living, processes.programs)
        totals = processes.totals()[COUNTERS[0].name]

        let_die(program)
        let_die(other)
        while processes.living:
            processes.scan()
            await asyncio.sleep(0)
    return processes, living, totals


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_a_dead_process_leaves_its_counters_and_frees_its_slot(
    counters, kernel, monkeypatch
):
    if kernel == "old":
        monkeypatch.setattr(os, "pidfd_open", not_implemented)
    processes, living, before = asyncio.run(death_of_a_program(counters))

    assert living == (2, 1)
    assert before == processes.totals()[COUNTERS[0].name] == 7
    assert processes.seen() == {("/bin/program", True): 1, ("/bin/program", False): 1}
    states = counters.view(DTYPES["counters"])[0]["process"]["state"]
    assert states[:3].tolist() == [ProcessState.FREE] * 3
    assert processes.programs_seen == 1


def not_implemented(pid):
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_a_pid_that_has_been_given_to_another_process_counts_as_dead(counters):
    with child() as stranger:
        start = start_time(stranger.pid)
        assert start is not None
        occupy(counters, 1, stranger.pid, starttime=start - 1)

        processes = Processes(counters, lambda: None)
        processes.scan()
        let_die(stranger)

    assert processes.living == 0
    assert processes.programs_seen == 1


def test_a_process_that_died_before_it_was_seen_counts_too(counters):
    with child() as program:
        let_die(program)
    occupy(counters, 1, program.pid, opens=3, starttime=9)
    ends = []

    processes = Processes(counters, lambda: ends.append(1))
    processes.scan()

    assert ends == [1]
    assert processes.programs_seen == 1
    assert processes.totals()[COUNTERS[0].name] == 3


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_processes_that_died_together_count_once_though_their_deaths_ask_for_a_scan(
    counters, kernel, monkeypatch
):
    if kernel == "old":
        monkeypatch.setattr(os, "pidfd_open", not_implemented)
    with child() as program, child() as other:
        occupy(counters, 1, program.pid, starttime=start_time(program.pid))
        occupy(counters, 2, other.pid, opens=2)
        processes = Processes(counters, lambda: processes.scan())
        if kernel == "old":
            processes.scan()
        let_die(program)
        let_die(other)

    processes.scan()

    assert processes.seen() == {("/bin/program", True): 2}
    assert processes.totals()[COUNTERS[0].name] == 2


def test_a_launcher_that_arrives_as_the_agent_ends_is_not_counted(counters):
    with child() as waiting:
        processes = Processes(counters, lambda: None)
        processes.note_end_of_job()
        start = start_time(waiting.pid)
        occupy(counters, 1, waiting.pid, state=ProcessState.LAUNCHER, starttime=start)
        processes.scan()
        let_die(waiting)

    assert processes.seen() == {}


@pytest.mark.parametrize("reaped", [False, True])
def test_a_slot_seen_after_the_end_of_its_process_counts_no_second_one(
    counters, reaped
):
    processes = Processes(counters, lambda: None)
    with child() as program:
        occupy(counters, 1, program.pid)
        let_die_unreaped(program)
        processes.scan()
        if reaped:
            program.wait()
        occupy(counters, 1, program.pid, state=ProcessState.LAUNCHED)
        processes.scan()

    assert processes.seen() == {("/bin/program", True): 1}


@pytest.mark.parametrize("late", [ProcessState.LAUNCHED, ProcessState.ACTIVE])
@pytest.mark.parametrize("first", [1, 2])
def test_two_slots_of_one_process_count_once(counters, late, first):
    processes = Processes(counters, lambda: None)
    with child() as program:
        occupy(counters, first, program.pid, opens=1)
        occupy(counters, 3 - first, program.pid, opens=2, state=late)
        let_die_unreaped(program)
        processes.scan()

    assert processes.seen() == {("/bin/program", True): 1}
    assert processes.totals()[COUNTERS[0].name] == 3


def test_a_silent_program_counts_although_its_pid_was_used_before(counters):
    processes = Processes(counters, lambda: None)
    with child() as program:
        occupy(counters, 1, program.pid, starttime=1)
        processes.scan()
        occupy(counters, 1, program.pid, state=ProcessState.LAUNCHED, name=b"/static")
        let_die_unreaped(program)
        processes.scan()

    assert processes.seen() == {("/bin/program", True): 1, ("/static", False): 1}


def test_opens_of_processes_without_a_slot_are_counted(counters):
    counters.view(DTYPES["counters"])["slots_full"] = 2
    occupy(counters, 0, 0, opens=4, state=ProcessState.FREE)

    processes = Processes(counters, lambda: None)
    processes.scan()

    assert processes.unslotted() == 2
    assert processes.totals()[COUNTERS[0].name] == 4
    assert processes.living == 0


def test_ranks_are_counted_soon_at_first_and_then_more_rarely(tmp_path, monkeypatch):
    launch = UnnamedNodes("not named", expected=True, size=2, local=1)
    other = RankRegistry(tmp_path, "job", "b", launch)
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            other.poll()

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setenv("MONARCH_STAGING_NODE", "a")
    notifier = Notifier(os.open(os.devnull, os.O_WRONLY))
    config = Config(peers=Peers(rendezvous=str(tmp_path)))

    found = bootstrap._count_ranks(config, "job", os.environ, launch, notifier)

    notifier.close()
    assert found.nodes == ("a", "b")
    assert pauses[:2] == [bootstrap.FIRST_POLL_S, 2 * bootstrap.FIRST_POLL_S]
    assert pauses[-1] == bootstrap.POLL_S
    found.clean_up(job_ended=True)
