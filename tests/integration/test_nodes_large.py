"""The nodes of a job read large files once, whatever part of them each node reads."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from monarch import native
from support.changing_files import disk_bytes
from support.clusters import Cluster
from support.nodes import JOB_LIMIT_S, Job, Outcome, Plan
from support.processes import wait_until
from support.programs import tried_bytes
from support.spaces import Between

MIB, BLOCK = 1 << 20, 256 << 10
NODES, EPOCHS = 4, 3
# Longer than an Extent of 8 MiB, and no multiple of a Block of 256 KiB.
SIZES = (33 * MIB + 12_345, 9 * MIB + 1, 17 * MIB - 5, 24 * MIB + 256 * 1024 + 7)
# So many that each node owns some.
MANY = tuple(8 * MIB + 300_001 * number for number in range(1, 13))
OVERREAD_MAX = 1.02
WAIT_MAX = ("--set", "cold_open.wait_max=1MiB")
FILL: dict[str, tuple[str, ...]] = {
    "with fill": (),
    "without fill": ("--set", "fill.enabled=false"),
}
MODES: dict[str, tuple[str, ...]] = {
    "auto": (),
    "replicate": ("--set", "peers.mode=replicate"),
}
BYTES_PER_S, SLOW_BYTES_PER_S = 200_000_000, 60_000_000
TIMEOUT = ("--set", "peers.timeout=1s")
# A read waits for one peer only; the rest allows for the origin and a busy machine.
DELAY_MAX_S = 4.0


@pytest.fixture
def cluster(make_cluster) -> Cluster:
    """Four nodes, and large files at an origin that takes its time."""
    made: Cluster = make_cluster(NODES, sizes=SIZES)
    made.origin.set(bw=BYTES_PER_S)
    return made


def read_once(cluster: Cluster) -> None:
    """The origin has been read once in the whole job."""
    report = cluster.jobs[-1].notes().report
    read_bytes = cluster.origin.counts().read_bytes - tried_bytes(report)
    most_bytes = OVERREAD_MAX * cluster.size_bytes
    assert cluster.size_bytes <= read_bytes <= most_bytes, str(report)


def opens_of(plan: Plan) -> int:
    """How many files the programs of a plan open, in all epochs."""
    shares = {"dealt": 1, "everything": NODES, "parts": NODES * plan.workers}
    return shares[plan.sharding] * EPOCHS * len(SIZES)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reading", ["order", "random"])
@pytest.mark.parametrize("sharding", ["dealt", "everything", "parts"])
def test_nodes_read_large_files_once_whatever_part_each_reads(
    cluster: Cluster, sharding: str, reading: str, mode: str
) -> None:
    plan = Plan(EPOCHS, sharding=sharding, reading=reading)

    outcome = cluster.run(plan, *WAIT_MAX, *MODES[mode])

    outcome.right(opens=opens_of(plan))
    read_once(cluster)


@pytest.mark.parametrize("reading", ["order", "random"])
@pytest.mark.parametrize("sharding", ["everything", "parts"])
def test_requested_blocks_are_read_once_without_fill(
    cluster: Cluster, sharding: str, reading: str
) -> None:
    plan = Plan(EPOCHS, sharding=sharding, reading=reading)

    outcome = cluster.run(plan, *WAIT_MAX, *FILL["without fill"])

    outcome.right(opens=opens_of(plan))
    read_once(cluster)
    exchange = outcome.report["exchange"]
    assert exchange["served_ranges"] > 0 == exchange["served_files"]


# -- faults meanwhile -----------------------------------------------------------------


def start_slowly(
    cluster: Cluster, plan: Plan, *options: str, rng: Random, hold: Sequence[int] = ()
) -> Job:
    """Start a job at a slow origin, and wait until some bytes have been read."""
    cluster.origin.reset()
    cluster.origin.set(bw=SLOW_BYTES_PER_S)
    job = cluster.start(plan, *WAIT_MAX, *TIMEOUT, *options, hold=hold)
    least = rng.randrange(cluster.size_bytes // 4, cluster.size_bytes * 3 // 4)
    wait_until(lambda: cluster.origin.counts().read_bytes >= least, f"{least} bytes")
    return job


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fill", ["with fill", "without fill"])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("reading", ["order", "random"])
def test_bytes_are_right_when_a_peer_is_killed_or_frozen_in_large_files(
    make_cluster, soak_count, blow: signal.Signals, reading: str, fill: str
) -> None:
    cluster = make_cluster(NODES, sizes=SIZES)
    plan = Plan(EPOCHS, reading=reading)
    for trial in range(soak_count(1, 20)):
        rng = Random(f"{blow} {reading} {fill} {trial}")
        job = start_slowly(cluster, plan, *FILL[fill], rng=rng)

        cluster.nodes[rng.randrange(NODES)].hurt(blow)

        outcome = job.finish().right(opens=opens_of(plan))
        assert max(outcome.longest_s) <= DELAY_MAX_S
        # The Blocks that it held, and those that its own programs read without it.
        again = cluster.origin.counts().read_bytes / cluster.size_bytes - 1
        assert again <= EPOCHS + 0.75
        cluster.kill()


def flip_blocks(folder: Path) -> int:
    """Change a byte of each Block below a folder that has been filled; return of how
    many."""
    flipped = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may disappear meanwhile
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                flipped += flip_in(fd)
            finally:
                os.close(fd)
    return flipped


def flip_in(fd: int) -> int:
    """Change a byte of each Block of a file that has been filled."""
    flipped, at, size = 0, 0, os.fstat(fd).st_size
    with suppress(OSError):  # no more data
        while at < size:
            at = os.lseek(fd, at, os.SEEK_DATA) // BLOCK * BLOCK
            place = min(at + BLOCK // 2, size - 1)
            byte = os.pread(fd, 1, place)[0]
            flipped += os.pwrite(fd, bytes([byte ^ 1]), place)
            at += BLOCK
    return flipped


def corrupt(outcome: Outcome) -> int:
    """How often bytes of a peer were not right, by the report."""
    peers = [peer for node in outcome.report["nodes"] for peer in node["peers"]]
    return sum(peer["corrupt"] for peer in peers)


@pytest.mark.root
def test_blocks_that_change_on_the_disk_of_their_owner_reach_no_other_node(
    make_cluster,
) -> None:
    """The programs of a node trust its disk; here those of the owner read nothing."""
    cluster = make_cluster(3, sizes=MANY)
    plan = Plan((0, 1, 1), reading="random")
    job = start_slowly(cluster, plan, *FILL["without fill"], rng=Random(4))
    [tier] = cluster.ram.glob(f"*/*.{cluster.nodes[0].name}/ram")
    wait_until(lambda: disk_bytes(tier) >= 2 * MIB, "Blocks of which it is the owner")

    flipped = flip_blocks(tier)

    job.finish().right(opens=2 * len(MANY))
    assert flipped > 0


@pytest.mark.root
def test_blocks_that_change_after_their_file_was_whole_reach_no_other_node(
    make_cluster,
) -> None:
    cluster = make_cluster(3, sizes=MANY)
    # Two nodes read half of each file each, and then one of them all of them.
    plan = Plan((0, 1, 2), sharding="parts", reading="order")
    job = cluster.start(plan, *WAIT_MAX, *FILL["without fill"], hold=[1])
    job.await_epoch(1, parties=plan.workers)
    [tier] = cluster.ram.glob(f"*/*.{cluster.nodes[0].name}/ram")

    flipped = flip_blocks(tier)

    job.release(1)
    outcome = job.finish().right(opens=3 * plan.workers * len(MANY))
    assert flipped > 0
    peers = [peer for node in outcome.report["nodes"] for peer in node["peers"]]
    # The owner notices it before sending them.
    assert sum(peer["fetch_refused"] for peer in peers) >= 1


@pytest.mark.root
@pytest.mark.skipif(native.seal_library() is None, reason="no libcrypto")
@pytest.mark.parametrize("reading", ["order", "random"])
def test_blocks_that_are_forged_on_the_wire_reach_no_program(
    make_cluster, between: Between, tmp_path: Path, reading: str
) -> None:
    cluster = make_cluster(2, sizes=MANY, links=between.nodes)
    meet = ("--set", f"peers.rendezvous={tmp_path / 'meet'}")
    plan = Plan(2, reading=reading)
    words = [*WAIT_MAX, *FILL["without fill"], *meet]
    job = cluster.start(plan, *words, hold=[0, 1])
    job.await_epoch(0)
    between.tell("change 3")
    job.release(0)
    job.await_epoch(1)
    between.tell("change 0")
    job.release(1)

    outcome = job.finish().right(opens=2 * 2 * len(MANY))
    # Data in flight when the breaker opens is no longer received.
    assert 1 <= corrupt(outcome) <= between.count()[0]


@pytest.mark.parametrize("reading", ["order", "random"])
def test_a_temporary_origin_error_reaches_programs_and_no_wrong_byte_does(
    make_cluster, reading: str
) -> None:
    cluster = make_cluster(NODES, sizes=SIZES)
    plan = Plan(2, reading=reading)
    job = start_slowly(cluster, plan, *FILL["without fill"], rng=Random(5), hold=[1])

    cluster.origin.set(read_eio="part")
    wait_until(lambda: cluster.origin.counts().failures > 0, "a read that fails")
    time.sleep(0.5)
    cluster.origin.set(read_eio="", bw=0)
    job.await_epoch(1)
    job.release(1)
    for command in job.running.values():
        command.process.wait(JOB_LIMIT_S)

    wrong = job.notes().wrong
    assert all("epoch 0" in words and "[Errno 5]" in words for words in wrong)
