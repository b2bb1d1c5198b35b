"""The agent's samples: few, cheap, with children of programs without the Shim."""

import asyncio
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import pytest

from monarch.agent import recorder
from monarch.agent.recorder import POINTS_MAX, Levels, ReadCalls, Recorder, Strangers
from monarch.native import COUNTERS


class FakeProcesses:
    """Programs that open one more file at each look."""

    def __init__(self) -> None:
        self.opens = 0

    def totals(self) -> dict[str, int]:
        """Return the counters."""
        counts = dict.fromkeys((spec.name for spec in COUNTERS), 0)
        return counts | {"opens_hit_tier0": self.opens, "opens_miss": 2}

    def active_pids(self) -> list[int]:
        """Return no process; this is asked at each look."""
        self.opens += 1
        return []

    def inactive_pids(self) -> list[int]:
        """Return no process."""
        return []


def make() -> Recorder:
    tally = {"origin_read_bytes": 5, "staged_bytes": 7, "peer_bytes": 1}
    processes: Any = FakeProcesses()
    levels = Levels(tally, (4096,), ((3, 10, 20),))
    return Recorder(processes, lambda: levels, time.monotonic())


def test_samples_stay_few_and_the_first_and_last_hours_are_both_there() -> None:
    found = make()

    for _ in range(20 * POINTS_MAX):
        found.look()

    moments = found.moments()
    assert POINTS_MAX // 2 <= len(moments) <= POINTS_MAX
    opens = [moment.ready for moment in moments[:-1]]
    assert opens == sorted(opens)
    assert opens[0] < opens[-1] / 100
    gaps = {later - one for one, later in pairwise(opens)}
    assert len(gaps) == 1


def test_a_sample_has_the_counted_values() -> None:
    found = make()

    found.look_last()
    first, now = found.moments()

    assert (first.ready, first.waited, now.ready) == (1, 2, 1)
    assert (first.staged_bytes, first.origin_bytes, first.tiers) == (8, 5, (4096,))
    assert found.slowest == ((3, 10, 20),)


def test_counters_of_a_closed_data_plane_are_kept() -> None:
    levels = [Levels({"origin_read_bytes": 0, "staged_bytes": 0, "peer_bytes": 0}, ())]
    processes: Any = FakeProcesses()
    found = Recorder(processes, lambda: levels[0], time.monotonic())
    found.slowest = ((1, 2, 3),)
    levels[0] = Levels(levels[0].tally, (), None)

    found.look_last()

    assert found.slowest == ((1, 2, 3),)


def test_first_second_of_programs_has_ten_samples() -> None:
    found = make()

    async def run() -> None:
        running = asyncio.create_task(found.run(lambda step: step()))
        await asyncio.sleep(1.5)
        found.note_start()
        await asyncio.sleep(2.5)
        running.cancel()

    asyncio.run(run())

    times = [moment.at_s - found.startup_s for moment in found.moments()[:-1]]
    assert sum(at_s < 0 for at_s in times) == 2
    assert 8 <= sum(0 <= at_s < 1.05 for at_s in times) <= 11
    assert 1 <= sum(at_s >= 1.05 for at_s in times) <= 2


@pytest.mark.parametrize("samples", [200])
def test_samples_cost_less_than_half_a_percent_of_a_processor(samples: int) -> None:
    found = make()

    began = time.process_time()
    for _ in range(samples):
        found.look()

    assert (time.process_time() - began) / samples < 0.005 * recorder.PERIOD_S


def test_read_calls_are_counted_of_children_that_have_ended_too(tmp_path) -> None:
    (tmp_path / "x").write_bytes(bytes(3 << 20))
    child = f"open({str(tmp_path / 'x')!r}, 'rb').read()"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]);"
        "print('done', flush=True); sys.stdin.read()"
    )
    line = [sys.executable, "-c", parent]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        program.stdout.readline()
        reads = ReadCalls()
        reads.look([program.pid])
        before = reads.most_bytes
        program.stdin.close()
    reads.look([program.pid])

    assert before >= 3 << 20
    assert reads.most_bytes == before


def test_children_of_a_program_without_the_shim_are_seen() -> None:
    """Finding 8: `sudo python` was reported as active in all processes."""
    line = ["sh", "-c", "sleep 30 & echo $!; read x; kill $!"]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        found, known = Strangers(), Strangers()
        deadline = time.monotonic() + 10
        while "sleep" not in "".join(found.seen.values()):
            found.look([shell.pid], [shell.pid])
            assert time.monotonic() < deadline
        for _ in range(2):
            known.look([shell.pid], [shell.pid, child])
        shell.communicate("\n")

    assert [pid for pid, _ in found.seen] == [child]
    assert not known.seen


def test_a_process_that_takes_its_slot_a_moment_later_is_no_stranger() -> None:
    line = ["sh", "-c", "sleep 30 & echo $!; read x; kill $!"]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        found = Strangers()
        for tracked in ([], [child], [child]):
            found.look([shell.pid], [shell.pid, *tracked])
        shell.communicate("\n")

    assert not found.seen
