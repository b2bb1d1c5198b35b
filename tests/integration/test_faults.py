"""After any fault in a job, its bytes are right and the next job is clean."""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.certified import make_certified
from support.jobs import Jobs
from support.processes import WAIT_S, wait_until

FILES = 150
MEAN_BYTES = 40_000
# Slow enough that faults happen in the middle of staging.
SLOW_FILL = ["--set", "fill.bandwidth=4MB/s"]

SoakCount = Callable[[int, int], int]


@pytest.fixture
def jobs(tmp_path: Path, run_root: Path, monarch_command: Path) -> Iterator[Jobs]:
    make_certified(tmp_path / "data", FILES, MEAN_BYTES)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as ram:
        made = Jobs(monarch_command, tmp_path / "data", run_root, Path(ram))
        yield made
        made.kill()


def next_job_is_clean(jobs: Jobs) -> None:
    """A job after the fault reads right bytes from its tier and leaves nothing."""
    report = jobs.report(["-q"], jobs.reader(2, 1))
    assert report["schema"] == 2
    wait_until(lambda: not jobs.leftovers(), "removal of what dead jobs left")


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.timeout(900)
def test_bytes_are_right_when_the_agent_is_killed_or_frozen_at_any_moment(
    jobs: Jobs, blow: signal.Signals, soak_count: SoakCount, tmp_path: Path
) -> None:
    rng = random.Random(blow)
    for trial in range(soak_count(3, 60)):
        stop = tmp_path / f"stop{trial}"
        job = jobs.start(SLOW_FILL, jobs.reader(0, 3, stop))
        agent = jobs.wait_for_agent()

        time.sleep(rng.uniform(0, 0.6))
        os.kill(agent, blow)
        time.sleep(0.3)
        stop.touch()

        job.end(WAIT_S).well()
        jobs.kill()
        next_job_is_clean(jobs)


def test_a_resumed_agent_serves_again(jobs: Jobs, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    job = jobs.start(SLOW_FILL, jobs.reader(0, 2, stop))
    agent = jobs.wait_for_agent()

    os.kill(agent, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(agent, signal.SIGCONT)
    time.sleep(0.5)
    stop.touch()

    job.end(WAIT_S).well()
    assert jobs.leftovers() == []


def test_a_removed_tier_directory_leaves_the_bytes_right(
    jobs: Jobs, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    job = jobs.start(SLOW_FILL, jobs.reader(0, 2, stop))
    jobs.wait_for_agent()

    wait_until(lambda: staged(jobs), "a staged file")
    for tier in tier_directories(jobs):
        shutil.rmtree(tier, ignore_errors=True)
    time.sleep(0.5)
    stop.touch()

    job.end(WAIT_S).well()
    next_job_is_clean(jobs)


def test_a_removed_replica_is_read_from_the_origin_and_staged_again(
    jobs: Jobs, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    job = jobs.start([], jobs.reader(0, 2, stop))
    jobs.wait_for_agent()
    wait_until(lambda: len(staged(jobs)) == FILES, "staging of all files")

    lost = staged(jobs)[:20]
    for replica in lost:
        replica.unlink()
    wait_until(lambda: all(r.exists() for r in lost), "staging of lost Replicas")
    stop.touch()

    job.end(WAIT_S).well()


@pytest.mark.root
def test_a_tier_that_runs_full_leaves_the_bytes_right(
    jobs: Jobs, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "t", disk], check=True)
    try:
        ballast = disk / "ballast"
        stop = tmp_path / "stop"
        tiers = ["--tier", f"ssd:5MiB:{disk}", "--set", "fill.bandwidth=2MB/s"]
        job = jobs.start(tiers, jobs.reader(0, 2, stop))
        jobs.wait_for_agent()
        fill_up(ballast)
        time.sleep(0.5)
        stop.touch()
        job.end(WAIT_S).well()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    next_job_is_clean(jobs)


def test_a_replica_damaged_between_jobs_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-q", "--tier", f"ssd:64MiB:{disk}", "--set", "retain=node"]
    jobs.run(options, jobs.reader(2, 1))
    kept = [p for p in disk.rglob("*") if is_replica(p)]
    assert len(kept) == FILES
    for number, replica in enumerate(kept[:30]):
        damage(replica, number % 3)

    report = jobs.report(options, jobs.reader(2, 1))

    assert report["schema"] == 2
    assert len([p for p in disk.rglob("*") if is_replica(p)]) == FILES


@pytest.mark.timeout(3600)
def test_a_killed_job_leaves_nothing_that_the_next_one_trusts(
    jobs: Jobs, soak_count: SoakCount, tmp_path: Path
) -> None:
    rng = random.Random(7)
    for _ in range(soak_count(5, 100)):
        job = jobs.start(SLOW_FILL, jobs.reader(1000, 2))
        time.sleep(rng.uniform(0, 1.5))
        jobs.kill()
        job.process.wait()

        next_job_is_clean(jobs)


def is_replica(path: Path) -> bool:
    """Whether a path has the name of a Replica: 32 hex digits."""
    return len(path.name) == 32 and set(path.name) <= set("0123456789abcdef")


def tier_directories(jobs: Jobs) -> set[Path]:
    """The directories of the RAM tiers of this test's jobs."""
    return {replica.parent for replica in staged(jobs)}


def staged(jobs: Jobs) -> list[Path]:
    """The Replicas in the RAM tier of this test's jobs."""
    return sorted(p for p in jobs.ram.rglob("*") if is_replica(p))


def damage(replica: Path, how: int) -> None:
    """Flip a byte, cut the end off, or put another file in its place."""
    content = bytearray(replica.read_bytes())
    times = replica.stat()
    if how == 0:
        content[len(content) // 2] ^= 1
    elif how == 1:
        del content[-1:]
    else:
        content = bytearray(os.urandom(len(content)))
    replica.unlink()
    replica.write_bytes(content)
    replica.chmod(0o400)
    os.utime(replica, ns=(times.st_atime_ns, times.st_mtime_ns))


def fill_up(ballast: Path) -> None:
    """Write until the file system is full."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return
