"""Tiers stay below their limits, and files are placed in the first with room.

What a Tier takes is asked of the file system while the job runs, from outside.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from monarch.codec import Codec
from monarch.native import codec_library
from support.changing_files import data_bytes
from support.programs import (
    Outcome,
    Runner,
    finish,
    origin_causes,
    read_report,
    stage,
    stalled_opens,
    start,
)
from support.stages import memory_directory

MIB = 1 << 20
RAM_BYTES, SSD_BYTES = 24 * MIB, 16 * MIB
COPIERS = 8
PROCESSES, THREADS = 8, 4
SAMPLE_S = 0.005
PAGE = 4096

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)

READS = """
import hashlib, os, random, sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pool

root, sums, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
digests = dict(line.split()[::-1] for line in open(sums))
names = sorted(digests)


def read(seed):
    rng = random.Random(seed)
    for _ in range(count):
        name = names[int(len(names) * rng.random() ** 2)]
        with open(os.path.join(root, name), "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        assert found == digests[name], name
    return 0


def run(number):
    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(read, range(number * THREADS, (number + 1) * THREADS)))


THREADS = 4
with Pool(8) as processes:
    assert sum(processes.map(run, range(8), 1)) == 0
"""


# For large files, too; a Pool is at most an eighth of the free memory.
POOL_BYTES = 256 * MIB


@dataclass
class Usage:
    """The most that was seen of each Tier's directory, in bytes of pages."""

    most: dict[str, int] = field(default_factory=dict)
    samples: int = 0

    def look(self, tiers: dict[str, Path]) -> None:
        """Take one sample.

        It is no instant: what leaves behind the walk, and what comes before it, would
        count together. So it is done twice.
        """
        for name, place in tiers.items():
            seen = min(data_bytes(place), data_bytes(place))
            self.most[name] = max(self.most.get(name, 0), seen)
        self.samples += 1


@contextmanager
def watched(tiers: dict[str, Path]) -> Iterator[Usage]:
    """Samples all Tiers until the block ends."""
    usage, over = Usage(), threading.Event()

    def run() -> None:
        while not over.is_set():
            usage.look(tiers)
            time.sleep(SAMPLE_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield usage
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Site:
    """A node with two Tiers, RAM and SSD."""

    runner: Runner
    tiers: dict[str, Path]
    config: Path

    def configure(
        self,
        root: Path,
        *,
        placement: str = "push_down",
        eviction: str = "none",
        codec: str = "plain",
        sizes: tuple[int, int] = (RAM_BYTES, SSD_BYTES),
        pool: int = MIB // 2,
    ) -> None:
        """Write the configuration of the next job.

        Args:
            pool: the size of the Pool, which a packed RAM Tier gets on top.
        """
        ram = sizes[0] + (pool if codec != "plain" else 0)
        rows = [("ram", "ram", ram, codec), ("ssd", "ssd", sizes[1], "plain")]
        self.config.write_text(
            f"schema: 1\ndatasets: [{{path: {root}}}]\nplacement: {placement}\n"
            f"fill: {{concurrency: {COPIERS}}}\n"
            f"peers: {{mode: 'off', transit: {pool}B}}\ntiers:\n"
            + "".join(
                f"  - {{name: {name}, kind: {kind}, path: {self.tiers[name]}, "
                f"capacity: {size}B, codec: '{one}', eviction: {eviction}}}\n"
                for name, kind, size, one in rows
            )
        )

    def run(self, words: list[str], limit_s: int = 100) -> tuple[Outcome, Usage]:
        """Run a program with that configuration."""
        report = self.runner.folder / "report.json"
        report.unlink(missing_ok=True)
        command = [str(self.runner.command), "run", "-q", "--strict"]
        command += ["--report", str(report), "-c", str(self.config), "--", *words]
        with watched(self.tiers) as usage:
            outcome = finish(start(command), limit_s)
        outcome.succeed()
        read = read_report(report, outcome)
        return Outcome(*outcome.words, report=read), usage


@pytest.fixture
def site(runner: Runner, tmp_path: Path) -> Iterator[Site]:
    """A node whose RAM Tier is on tmpfs, and whose SSD Tier is below tmp_path."""
    ssd = tmp_path / "ssd"
    ssd.mkdir()
    with memory_directory() as ram:
        yield Site(runner, {"ram": ram, "ssd": ssd}, tmp_path / "tiers.yaml")


def noise(rng: random.Random, size: int) -> bytes:
    """Random bytes, more than one call makes."""
    part = 64 * MIB
    return b"".join(rng.randbytes(min(part, size - at)) for at in range(0, size, part))


def dataset(root: Path, largest: int) -> dict[str, int]:
    """Files from 1 B to the largest, with text that shrinks in some of them."""
    rng = random.Random(7)
    sizes = [1, 100, PAGE, PAGE + 1, largest]
    sizes += [int(largest ** rng.random()) for _ in range(150)]
    sizes += [rng.randrange(largest // 8) for _ in range(20)]
    root.mkdir()
    found = {}
    for number, size in enumerate(sizes):
        name = f"{number:04}.bin"
        text = rng.randbytes(1000) * (size // 1000 + 1)
        content = text[:size] if number % 2 else noise(rng, size)
        (root / name).write_bytes(content)
        found[name] = size
    return found


def sums(root: Path, place: Path) -> Path:
    """A list of SHA-256 sums and names."""
    import hashlib

    names = sorted(path.name for path in root.iterdir())
    place.write_text(
        "".join(
            f"{hashlib.sha256((root / name).read_bytes()).hexdigest()} {name}\n"
            for name in names
        )
    )
    return place


def reader(site: Site, root: Path, count: int) -> list[str]:
    """A program of 8 processes and 4 threads that compares what it reads."""
    program = site.config.with_name("reads.py")
    program.write_text(READS)
    listed = sums(root, site.config.with_name("sums"))
    return ["python3", str(program), str(root), str(listed), str(count)]


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["plain", "zstd:1"])
@pytest.mark.parametrize("eviction", ["none", "lru"])
@pytest.mark.parametrize("placement", ["push_down", "first_level_only"])
def test_no_tier_takes_more_than_its_limit(
    site: Site,
    tmp_path: Path,
    soak_count: Callable[[int, int], int],
    placement: str,
    eviction: str,
    codec: str,
) -> None:
    largest = soak_count(64, 1024) * MIB
    root = tmp_path / "data"
    sizes = dataset(root, largest)
    limits = {"ram": largest * 3 // 2, "ssd": largest * 5 // 4}
    site.configure(
        root,
        placement=placement,
        eviction=eviction,
        codec=codec,
        sizes=(limits["ram"], limits["ssd"]),
        pool=POOL_BYTES if codec != "plain" else MIB,
    )

    outcome, usage = site.run(reader(site, root, 10), soak_count(100, 1200))

    assert usage.samples > 20
    assert sum(sizes.values()) > limits["ram"], "the dataset is larger than the tier"
    used = {tier["name"]: tier["used_bytes"] for tier in outcome.report["tiers"]}
    for name in limits:
        assert usage.most[name] <= limits[name], (name, usage.samples)
        assert usage.most[name] >= used.get(name, 0) * 0.9, "it was watched"
    assert usage.most["ram"] > 0.5 * limits["ram"]
    if placement == "first_level_only":
        assert usage.most["ssd"] == 0


def place_of(outcome: Outcome) -> dict[str, Any]:
    return {tier["name"]: tier for tier in outcome.report["tiers"]}


@pytest.mark.parametrize("codec", ["plain", "zstd:1"])
@pytest.mark.parametrize("eviction", ["none", "lru"])
def test_smaller_files_are_placed_after_one_that_does_not_fit(
    site: Site, tmp_path: Path, eviction: str, codec: str
) -> None:
    root = tmp_path / "data"
    (root / "small").mkdir(parents=True)
    rng = random.Random(2)
    (root / "large.bin").write_bytes(rng.randbytes(9 * MIB))
    for number in range(8):
        (root / "small" / f"{number}.bin").write_bytes(rng.randbytes(PAGE))
    site.configure(root, eviction=eviction, codec=codec, sizes=(4 * MIB, 4 * MIB))

    small = root / "small"
    program = f"open('{root}/large.bin', 'rb').read(); import os, sys; sys.exit("
    program += f"os.system('{stage(small)}') != 0)"
    outcome, _ = site.run(["python3", "-c", program])

    # Files being packed may still be in the pool when the job ends.
    assert place_of(outcome)["ram"]["files"] in ((8,) if codec == "plain" else range(9))


@pytest.mark.parametrize("codec", ["plain", "zstd:1"])
@pytest.mark.parametrize("eviction", ["none", "lru"])
@pytest.mark.parametrize("placement", ["push_down", "first_level_only"])
def test_files_are_placed_in_the_first_tier_with_room_or_in_none(
    site: Site, tmp_path: Path, placement: str, eviction: str, codec: str
) -> None:
    size, count = 2 * MIB, 30
    root = tmp_path / "data"
    root.mkdir()
    for number in range(count):
        (root / f"{number:02}.bin").write_bytes(os.urandom(size))
    site.configure(
        root,
        placement=placement,
        eviction=eviction,
        codec=codec,
        pool=8 * MIB,  # so that packed files have to leave it
    )
    # An open does not wait long for space in a pool whose files are being packed.
    once = "import sys, time; [(open(p, 'rb').read(), time.sleep(0.05))"
    once += " for p in sys.argv[1:]]"

    outcome, usage = site.run(
        ["python3", "-c", once, *map(str, sorted(root.iterdir()))]
    )

    tiers, counters = place_of(outcome), outcome.report["counters"]
    packed = codec != "plain"  # files waiting in the pool are in no tier yet
    expected = RAM_BYTES // size - packed
    assert expected - 3 * packed <= tiers["ram"]["files"] <= expected
    if placement == "push_down":
        assert SSD_BYTES // size - 2 * packed <= tiers["ssd"]["files"]
    else:
        assert "ssd" not in tiers
        assert usage.most["ssd"] == 0
    if eviction == "none":
        assert counters["opens_origin"] > 0
        assert not any(tier["lru_files"] for tier in tiers.values())
    else:
        assert counters["opens_origin"] == 0
        assert tiers["ram"]["lru_files"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["plain", "zstd:1"])
def test_many_readers_of_three_times_a_tier_get_the_right_bytes(
    site: Site,
    tmp_path: Path,
    soak_count: Callable[[int, int], int],
    codec: str,
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    rng = random.Random(4)
    for number in range(600):
        (root / f"{number}.bin").write_bytes(rng.randbytes(rng.randrange(200_000)))
    total = sum(path.stat().st_size for path in root.iterdir())
    site.configure(
        root,
        placement="first_level_only",
        eviction="lru",
        codec=codec,
        sizes=(total // 3, MIB),
        pool=total // 6,  # so that packed files have to leave it
    )
    count = soak_count(60, 2000)

    outcome, usage = site.run(reader(site, root, count), soak_count(100, 1200))

    assert usage.most["ram"] <= total // 3
    counters, ram = outcome.report["counters"], place_of(outcome)["ram"]
    assert ram["lru_files"] > 50
    opens = PROCESSES * THREADS * count
    read_origin = counters["opens_origin"] - stalled_opens(outcome.report)
    assert read_origin <= 0.05 * opens, origin_causes(outcome.report)
    assert outcome.report["agent"]["evicted_files"] == 0, "memory was not short"
    assert ram["in_service"]
    assert outcome.report["errors"] == [], "what leaves is no error"


def test_job_warns_that_lru_gains_nothing_if_an_epoch_exceeds_the_tiers(
    site: Site, tmp_path: Path
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for number in range(3):
        (root / f"{number}.bin").write_bytes(os.urandom(MIB))

    def told(eviction: str, size: int) -> str:
        site.configure(root, eviction=eviction, sizes=(size, MIB))
        command = [str(site.runner.command), "run", "-c", str(site.config), "--"]
        outcome = finish(start([*command, "true"])).succeed()
        return " ".join(outcome.stderr.decode().split())

    says = "eviction: lru removes most copies before they are read again; use eviction"
    assert says in told("lru", MIB)
    assert "eviction" not in told("lru", 4 * MIB)
    assert "eviction" not in told("none", MIB)
