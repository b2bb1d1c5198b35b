"""Reads of large files during fill return the same as reads of plain files."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import compiler, large_files, processes
from support.large_files import BATCH, WAYS, Campaign, batches, compared, name_of
from support.programs import Runner
from support.tier_codecs import PLAIN

SHOWN_MAX = 5
SEEDS = range(40)
BLOCK = 256 << 10
# The latest fault in a batch, which takes more than a second at a slow origin.
HURT_WITHIN_S = 0.6
AGAIN = "again: PYTHONPATH=tests .venv/bin/python -m support.large_files SEED WAY"
OPERATIONS = {
    *("open", "odd-open", "dup", "close", "reuse", "read", "seek", "move", "map"),
    *(
        "reopen",
        "exec",
        "ask",
        "may-differ",
        "bad-buffer",
        "bad-call",
        "torn-buffer",
        "change",
    ),
    *("change-during", "fork", "join"),
}


@pytest.fixture
def played(runner: Runner, countfs_program: Path) -> Iterator[Campaign]:
    with large_files.campaign(runner, countfs_program) as campaign:
        yield campaign


@pytest.fixture(scope="session")
def naive() -> Path:
    """A library that reads carelessly, to be preloaded."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC", *compiler.WARNINGS]
    source = large_files.SOURCES / "naive.c"
    return compiler.build("naive.so", "cc", *flags, source)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_random_operations_return_the_same_as_on_plain_files(
    played: Campaign, soak_count: Callable[[int, int], int], tier_codec: str
) -> None:
    count = soak_count(500, 10_000)

    found = [one for seeds, way in batches(count) for one in played.play(seeds, way)]

    told = [str(one) for one in found[:SHOWN_MAX]]
    summary = f"{len(found)} of {count} sequences differ; {AGAIN}"
    assert not found, "\n".join([summary, *told])
    assert set(played.operations) >= OPERATIONS
    # Tiers have served opens, and files have been filled while they were read.
    assert tier_codec != PLAIN or played.redirected > count
    assert played.agent_bytes > sum(large_files.SIZES)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_each_byte_at_an_offset_of_many_is_read_once(
    played: Campaign, way: str, soak_count: Callable[[int, int], int]
) -> None:
    for _ in range(soak_count(1, 20)):
        outcome = played.share(way).succeed()

        assert outcome.stderr == b""
        assert len(outcome.stdout.splitlines()) == len(large_files.SIZES)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["default", "demand"])
def test_a_descriptor_number_used_by_two_files_in_turn_reads_one_of_them(
    played: Campaign, way: str, soak_count: Callable[[int, int], int]
) -> None:
    outcome = played.swap(way, soak_count(1, 60)).succeed()

    assert outcome.stderr == b""


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("way", ["slow-fill", "demand"])
def test_random_operations_return_the_same_when_the_agent_is_killed_or_frozen(
    played: Campaign,
    run_root: Path,
    soak_count: Callable[[int, int], int],
    blow: signal.Signals,
    way: str,
) -> None:
    rng = random.Random(f"{blow} {way}")

    def hurt() -> None:
        time.sleep(rng.uniform(0, HURT_WITHIN_S))
        [agent] = processes.agents(run_root)
        os.kill(agent, blow)

    for number in range(soak_count(1, 40)):
        seeds = range(number * BATCH, (number + 1) * BATCH)

        found = played.play_hurt(seeds, way, hurt)

        assert not found, "\n".join(map(str, found[:SHOWN_MAX]))
        processes.kill_agents(run_root)


# -- the campaigns find faults -------------------------------------------------------


def test_one_wrong_block_of_a_file_is_found(played: Campaign) -> None:
    right = played.plain(SEEDS, "default")
    played.make()
    with open(played.origin.source / name_of(0), "r+b") as file:
        block = file.read(BLOCK)
        file.seek(0)
        file.write(block[8:] + block[:8])

    outcome = played.runner.plain(played.words(SEEDS, "default"))

    found = list(compared(right, outcome.stdout.decode().splitlines(), "default"))
    assert any("read" in one.plain for one in found)


def test_a_read_of_a_file_that_a_number_had_before_is_found(
    played: Campaign, naive: Path
) -> None:
    right = played.plain(SEEDS, "default")
    played.make()
    words = ["env", f"LD_PRELOAD={naive}", *played.words(SEEDS, "default")]

    outcome = played.runner.plain(words)

    found = list(compared(right, outcome.stdout.decode().splitlines(), "naive"))
    assert any("way 9" in one.plain for one in found)


def test_bytes_of_two_files_in_one_read_are_found(
    played: Campaign,
) -> None:
    played.make()
    paths = [str(played.origin.source / name_of(number)) for number in (0, 6)]
    with open(paths[0], "r+b") as file, open(paths[1], "rb") as other:
        file.write(other.read(BLOCK // 2) + bytes(BLOCK // 2))

    outcome = played.runner.plain([str(large_files.build("swap")), "1", *paths])

    assert outcome.status == 1
    assert b"bytes at" in outcome.stderr


def test_a_byte_that_is_read_twice_is_found(played: Campaign, naive: Path) -> None:
    played.make()
    file = played.origin.source / name_of(6)
    words = ["env", f"LD_PRELOAD={naive}", str(large_files.build("share")), str(file)]

    outcome = played.runner.plain(words)

    assert outcome.status == 1
    assert b"read twice" in outcome.stderr
