"""Concurrent jobs of one user on a node link each other's staged files."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.countfs import CountFs
from support.processes import agents, wait_until
from support.programs import Runner, origin_causes, stalled_opens, tried_bytes
from support.sharing import Job, make_files, read_when_staged, shared

Mount = Callable[..., CountFs]

FILES = 60
BYTES = 200_000
TOTAL = FILES * BYTES
MIB = 1 << 20
RATE = TOTAL // 2  # the origin's rate per second
MORE_MAX = 1.1

SHARDS = 3
SHARD_BYTES = 20 * 2**20 + 4321
"""Above `cold_open.wait_max`."""


@pytest.fixture
def view(mount_counted: Mount, tmp_path: Path) -> CountFs:
    """A slow origin."""
    return mount_counted(make_files(tmp_path / "data", FILES, BYTES), bw=RATE)


def test_three_jobs_at_once_read_the_origin_once(runner: Runner, view: CountFs) -> None:
    jobs = [Job(runner, view.root, f"job{number}") for number in range(3)]

    digests = [{job.wait_for_pass() for _ in range(2)} for job in jobs]
    outcomes = [job.end() for job in jobs]

    assert len(set.union(*digests)) == 1
    tried = sum(tried_bytes(one.report) for one in outcomes)
    stalled = BYTES * sum(stalled_opens(one.report) for one in outcomes)
    causes = [origin_causes(one.report) for one in outcomes]
    assert view.counts().read_bytes <= MORE_MAX * TOTAL + tried + stalled, causes
    assert sum(shared(one.report) for one in outcomes) >= FILES


def test_a_job_links_files_staged_by_another_one(runner: Runner, view: CountFs) -> None:
    first = Job(runner, view.root, "first")
    digest = first.wait_for_pass()
    view.reset()

    second = Job(runner, view.root, "second")

    assert second.wait_for_pass() == digest
    first.end()
    assert second.wait_for_pass() == digest  # its names are its own
    report = second.end().report
    assert view.counts().read_bytes == tried_bytes(report)
    assert shared(report) == FILES
    assert report["staging"]["shared_bytes"] == TOTAL


def test_a_file_of_another_identity_is_not_linked(
    runner: Runner, view: CountFs
) -> None:
    first = Job(runner, view.root, "first")
    digest = first.wait_for_pass()
    assert first.wait_for_pass() == digest
    changed = view.source / "0007"
    changed.write_bytes(bytes(BYTES))
    view.reset()

    second = Job(runner, view.root, "second")

    assert second.wait_for_pass() != digest
    report = second.end().report
    # It has changed since the scan of the first job: programs read it.
    assert view.counts().read_bytes == 2 * BYTES + tried_bytes(report)
    assert shared(report) == FILES - 1
    first.end()


def test_jobs_that_do_not_share_read_the_origin_each(
    runner: Runner, view: CountFs
) -> None:
    first = Job(runner, view.root, "first")
    digest = first.wait_for_pass()
    view.reset()

    second = Job(runner, view.root, "second", "--set", "share=off")

    assert second.wait_for_pass() == digest
    report = second.end().report
    assert view.counts().read_bytes >= TOTAL
    assert shared(report) == 0
    first.end()


def test_jobs_continue_when_one_of_them_is_killed(
    runner: Runner, view: CountFs
) -> None:
    jobs = [Job(runner, view.root, f"job{number}") for number in range(3)]
    time.sleep(1.2)  # in the middle of it

    victim, *others = jobs
    os.killpg(victim.process.pid, signal.SIGKILL)
    victim.process.communicate()

    digests = [{job.wait_for_pass() for _ in range(2)} for job in others]
    outcomes = [job.end() for job in others]
    assert len(set.union(*digests)) == 1
    tried = sum(tried_bytes(one.report) for one in outcomes)
    assert view.counts().read_bytes <= 2 * TOTAL + tried


@pytest.fixture
def shards(mount_counted: Mount, tmp_path: Path) -> CountFs:
    """An origin with large files."""
    folder = make_files(tmp_path / "shards", SHARDS, SHARD_BYTES)
    return mount_counted(folder, bw=SHARDS * SHARD_BYTES)


def test_a_job_links_large_files_of_another_one(
    runner: Runner, shards: CountFs
) -> None:
    first = Job(runner, shards.root, "first")
    digest = first.wait_for_pass()
    assert first.wait_for_pass() == digest
    shards.reset()

    second = Job(runner, shards.root, "second", waits=True)
    read_when_staged(runner, first, second)

    assert second.wait_for_pass() == digest
    first.end()
    assert second.wait_for_pass() == digest  # its names are its own
    report = second.end().report
    assert shards.counts().read_bytes == tried_bytes(report)
    assert shared(report) == SHARDS
    assert report["staging"]["shared_bytes"] == SHARDS * SHARD_BYTES


def test_jobs_that_fill_large_files_at_once_read_the_origin_once(
    runner: Runner, shards: CountFs
) -> None:
    jobs = [Job(runner, shards.root, f"job{number}", waits=True) for number in range(3)]
    read_when_staged(runner, *jobs)

    digests = [{job.wait_for_pass() for _ in range(2)} for job in jobs]
    outcomes = [job.end() for job in jobs]

    assert len(set.union(*digests)) == 1
    tried = sum(tried_bytes(one.report) for one in outcomes)
    assert shards.counts().read_bytes <= 1.2 * SHARDS * SHARD_BYTES + tried


def test_a_job_continues_when_another_one_is_stopped_in_a_large_file(
    runner: Runner, shards: CountFs
) -> None:
    shards.set(bw=SHARD_BYTES // 2)
    first = Job(runner, shards.root, "first")
    wait_until(lambda: shards.counts().read_bytes > MIB, "it reads a file")
    [agent] = agents(shards.root)
    os.kill(agent, signal.SIGSTOP)
    shards.set(bw=SHARDS * SHARD_BYTES)

    second = Job(runner, shards.root, "second")

    digest = second.wait_for_pass()
    os.kill(agent, signal.SIGCONT)
    assert shards.counts().read_bytes > SHARDS * SHARD_BYTES  # it did not wait
    assert first.wait_for_pass() == digest
    first.end()
    second.end()


def test_a_large_file_of_another_identity_is_not_linked(
    runner: Runner, shards: CountFs
) -> None:
    first = Job(runner, shards.root, "first")
    digest = first.wait_for_pass()
    changed = shards.source / "0001"
    changed.write_bytes(bytes(SHARD_BYTES))

    second = Job(runner, shards.root, "second")

    assert second.wait_for_pass() != digest
    assert shared(second.end().report) == SHARDS - 1
    first.end()
