"""Large files of a packed Tier that a program maps or reads by a stream.

They are made whole from what the Tier and the Pool hold of them, without the origin.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.test_packed_large import words_of
from integration.test_whole_files import MAP_TWICE, STREAM
from monarch.codec import Codec
from monarch.native import codec_library
from support.agents import AgentProcess, start_agent
from support.countfs import CountFs
from support.processes import wait_until

MIB = 1 << 20
EXTENT = 8 * MIB
SIZES = (24 * MIB + 5, 16 * MIB, 40 * MIB)
TOTAL = sum(SIZES)
EXTENTS = sum(-(-size // EXTENT) for size in SIZES)
NO_FILL = ("--set", "fill.enabled=false")
# The space that the last file needs.
SMALL_POOL = ("--set", "peers.transit=40MiB")
# Compares a file with its source repeatedly, until another file exists.
READS_ON = """
import os, sys
origin, source, until = sys.argv[1:]
turns = 0
with open(origin, "rb") as found, open(source, "rb") as right:
    while turns < 3 or not os.path.exists(until):
        found.seek(0), right.seek(0)
        while piece := found.read(300_000):
            assert piece == right.read(300_000), (turns, found.tell())
        turns += 1
"""
READS_PART = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for at in map(int, sys.argv[2:]):
    print(os.pread(fd, 1000, at).hex())
"""

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)


@dataclass
class Job:
    """Large files at a counting origin, and agents whose first Tier packs them."""

    view: CountFs
    run_root: Path
    tier: Path
    agent: AgentProcess | None = None

    def begin(self, *options: str, size: str = "256MiB") -> None:
        """Starts an agent, after the end of an earlier one."""
        words = ["--data", str(self.view.root), "--tier", f"ssd:{size}:{self.tier}"]
        words += ["--set", "tiers[0].codec=zstd:1", *options]
        self.agent = start_agent(self.run_root / "j.n", words)
        self.agent.listen("ready")

    @property
    def running(self) -> AgentProcess:
        """The agent."""
        assert self.agent is not None
        return self.agent

    @property
    def report(self) -> dict[str, Any]:
        """The agent's report."""
        found: dict[str, Any] = self.running.status()["report"]
        return found

    def await_packed(self, extents: int = EXTENTS) -> None:
        """Waits until so much is packed, and resets the counts of the origin."""
        wait_until(lambda: self.report["agent"]["packed_extents"] == extents)
        self.view.reset()

    def empty_pool(self) -> None:
        """Lets the last file alone be in a Pool of its size."""
        last = f"{len(SIZES) - 1}.bin"
        names = (self.view.root / last, self.view.source / last, self.tier)
        assert self.start(READS_ON, *names).communicate(timeout=60)[0] == ""
        pool = self.run_root.glob("*/transit/*")
        assert {file.name[-8:] for file in pool} == {f"{n:08x}" for n in range(5)}

    def start(self, text: str, *words: object) -> "subprocess.Popen[str]":
        """Starts a program under the Shim."""
        command = [sys.executable, "-c", text, *map(str, words)]
        return subprocess.Popen(
            command, env=self.running.environ(), stdout=subprocess.PIPE, text=True
        )

    def read(self, text: str, *names: str) -> None:
        """A program reads files as it does without Monarch."""
        root = str(self.view.source)
        command = [sys.executable, "-c", text, root, *names]
        right = subprocess.check_output(command, text=True)
        found, _ = self.start(text, self.view.root, *names).communicate(timeout=60)
        assert found == right

    @property
    def waits(self) -> tuple[int, int]:
        """How many opens have waited for a whole file, and how many of them got it."""
        waits = self.report["waits"]
        return waits["whole"], waits["whole_served"]


@pytest.fixture
def job(
    mount_counted: Callable[..., CountFs], run_root: Path, tmp_path: Path
) -> Iterator[Job]:
    """The same, without an agent."""
    (tmp_path / "data").mkdir()
    (tmp_path / "ssd").mkdir()
    for number, size in enumerate(SIZES):
        path = tmp_path / "data" / f"{number}.bin"
        path.write_bytes(words_of(size, number))
    made = Job(mount_counted(tmp_path / "data"), run_root, tmp_path / "ssd")
    yield made
    if made.agent is not None and made.agent.process.poll() is None:
        made.agent.kill()


def test_packed_files_are_made_whole_without_the_origin(job: Job) -> None:
    job.begin(*SMALL_POOL)
    job.await_packed()
    job.empty_pool()

    job.read(STREAM, "0.bin", "1.bin")

    assert job.waits == (2, 2)
    assert job.view.counts().read_bytes == 0
    report = job.report
    assert report["counters"]["opens_hit_tier0"] == 2
    assert report["packed"]["dropped_files"] == 0
    assert report["packed"]["decoded_bytes"] >= SIZES[0] + SIZES[1]
    plain_bytes = SIZES[0] + SIZES[1]
    assert 0 <= report["tiers"][0]["used_bytes"] - plain_bytes <= SIZES[2] / 2


def test_blocks_in_the_pool_are_moved_and_the_others_read_once(job: Job) -> None:
    """Blocks of some Extents that are not complete, so that none is packed."""
    job.begin(*NO_FILL)
    job.view.reset()
    part = job.start(READS_PART, job.view.root / "0.bin", 5000, 9 * MIB, 20 * MIB)
    part.communicate(timeout=60)
    assert job.report["agent"]["packed_extents"] == 0

    job.read(STREAM, "0.bin")

    assert job.waits == (1, 1)
    assert SIZES[0] <= job.view.counts().read_bytes <= 1.01 * SIZES[0]
    assert not list((job.run_root / "j.n").glob("**/transit/*"))


def test_damaged_frames_cost_the_origin_their_extents_once(job: Job) -> None:
    job.begin(*SMALL_POOL)
    job.await_packed()
    job.empty_pool()
    (segment,) = job.tier.rglob("*.pack")
    with segment.open("r+b") as file:
        for at in range(50_000, segment.stat().st_size, 50_000):
            file.seek(at)
            file.write(b"damaged")

    job.read(STREAM, "0.bin", "1.bin")

    assert job.waits == (2, 2)
    assert job.report["packed"]["dropped_files"] >= 5  # the 5-byte Extent may survive
    assert job.view.counts().read_bytes <= 1.01 * (SIZES[0] + SIZES[1])


def test_concurrent_readers_get_the_right_blocks(job: Job) -> None:
    """From the Pool, from frames while they are decoded, from the Replica."""
    job.begin(*SMALL_POOL)
    job.await_packed()
    until = job.tier / "until"
    names = (job.view.root / "0.bin", job.view.source / "0.bin", until)
    readers = [job.start(READS_ON, *names) for _ in range(3)]
    time.sleep(0.2)

    job.read(STREAM, "0.bin")
    until.touch()

    assert [reader.communicate(timeout=60)[0] for reader in readers] == [""] * 3
    assert [reader.returncode for reader in readers] == [0, 0, 0]
    assert job.view.counts().read_bytes == 0
    assert job.waits == (1, 1)


def test_without_room_for_all_of_it_a_stream_reads_the_origin(job: Job) -> None:
    """At once, and what is packed stays."""
    job.begin(size="22MiB")
    job.await_packed()
    stored_bytes = job.report["tiers"][0]["used_bytes"]
    began = time.monotonic()

    job.read(STREAM, "0.bin")

    assert time.monotonic() - began < 5
    assert job.waits[1] == 0
    assert job.report["tiers"][0]["used_bytes"] == stored_bytes
    assert job.view.counts().read_bytes >= SIZES[0]


def test_files_packed_by_an_earlier_job_are_made_whole(job: Job) -> None:
    retain = ("--set", "retain=7d")
    job.begin(*retain)
    job.await_packed()
    job.running.stop()
    job.begin(*retain, "--set", "cold_open.whole=['**']")

    job.read(MAP_TWICE, "0.bin", "1.bin")

    assert job.waits == (2, 2)
    assert job.view.counts().read_bytes == 0
    assert job.running.stop() == 0
    assert os.listdir(job.run_root) == []


def test_space_that_other_files_need_is_not_taken(job: Job) -> None:
    """Of 80 MiB that fit in 26 MiB, 24 MiB plain would fit before the rest."""
    job.begin(*NO_FILL, size="26MiB")
    part = job.start(READS_PART, job.view.root / "0.bin", 5000)
    part.communicate(timeout=60)
    job.read(STREAM, "0.bin")

    assert job.waits[1] == 0
    for name in ("0.bin", "1.bin", "2.bin"):
        names = (job.view.root / name, job.view.source / name, job.tier)
        assert job.start(READS_ON, *names).communicate(timeout=60)[0] == ""
    job.await_packed()
