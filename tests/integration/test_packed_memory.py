"""Memory of an agent whose packed Tier is read by many threads through a small Pool."""

# ruff: noqa: F811

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from integration.test_packed_jobs import (  # noqa: F401
    FILES,
    folder,
    pytestmark,
    read_by_32_threads,
)
from monarch.agent.staging import DEMAND_THREADS
from support import processes
from support.changing_files import disk_bytes
from support.programs import Runner, consumer

MIB = 1 << 20
POOL_BYTES = 2 * MIB
GIVEN = 100 * MIB
BESIDE_BYTES = 4 * MIB
"""Index, counters and log of a job with few files take about 3 MiB of memory."""
TURNS = 3
# Each thread that copies for programs holds at most a small file, plain and packed, and
# the memory of zstd:3 to pack and to unpack: less than 2 MiB together.
GROWTH_MAX = DEMAND_THREADS * 2 * MIB


def anonymous_bytes(pid: int) -> int:
    """The memory of a process that is no file's."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (found,) = (line.split() for line in lines if line.startswith("Anonymous:"))
    return int(found[1]) * 1024


@contextmanager
def watched(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Look again and again meanwhile."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s):
            look()

    looking = threading.Thread(target=run)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("pool", ["auto", "40MiB"])
def test_tier_and_pool_together_use_the_configured_memory(
    runner: Runner,
    memory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pool: str,
) -> None:
    """By what all files of the job take of memory, its index and counters included."""
    monkeypatch.setenv("MONARCH_STAGING_RUN_DIR", str(memory))
    root, part = tmp_path / "data", 80_000
    root.mkdir()
    for number in range(1500):  # twice what the tier holds
        content = random.Random(number).randbytes(part) + bytes(part)
        (root / f"{number:05}").write_bytes(content)
    node = replace(runner, tier=f"ram:{GIVEN // MIB}MiB:{memory}")
    words = consumer("python_epochs.py", root, "4", "3")
    codec = ("--set", "tiers[0].codec=zstd:1", "--set", f"peers.transit={pool}")
    seen: list[int] = []

    with watched(lambda: seen.append(disk_bytes(memory)), 0.005):
        outcome = node.under_monarch(words, roots=[root], options=codec).succeed()

    (tier,), transit = outcome.report["tiers"], outcome.report["transit"]
    assert tier["capacity_bytes"] + transit["capacity_bytes"] == GIVEN
    assert transit["capacity_bytes"] == GIVEN // 8 if pool == "auto" else 40 * MIB
    assert 0.95 * GIVEN <= max(seen) <= GIVEN + BESIDE_BYTES
    assert outcome.report["packed"]["decoded_bytes"] > 2 * GIVEN


@pytest.mark.parametrize(
    ("codec", "pool", "told"),
    [
        ("zstd:1", "auto", "the pool (5.0 MiB) is too small for"),
        ("zstd:1", "9MiB", "the pool (9.0 MiB) is too small for"),
        ("zstd:1", "12MiB", ""),
        ("plain", "auto", ""),
    ],
)
def test_pool_too_small_for_the_largest_file_is_reported(
    runner: Runner, tmp_path: Path, codec: str, pool: str, told: str
) -> None:
    """Once, with the file, what it needs and the key; files are read right anyway."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "small").write_bytes(bytes(1000))
    (root / "large").write_bytes(bytes(3 * MIB))
    options = ["--set", f"tiers[0].codec={codec}", "--set", f"peers.transit={pool}"]

    outcome = replace(runner, tier="ram:40MiB").under_monarch(
        ["wc", "-c", root / "large"], roots=[root], options=options
    )

    assert outcome.succeed().stdout.split()[0] == b"%d" % (3 * MIB)
    said = " ".join(outcome.stderr.decode().split())
    if not told:
        assert "pool" not in said
        return
    assert said.count(told) == 1
    assert f"{root}/large (3.0 MiB), which needs 12.0 MiB" in said
    assert "stored without packing; set peers.transit" in said


@pytest.mark.timeout(120)
def test_memory_of_the_agent_does_not_grow_with_decoded_files(
    runner: Runner, run_root: Path, folder: Path
) -> None:
    seen: list[int] = []

    def look() -> None:
        for pid in processes.agents(run_root):
            with suppress(OSError, ValueError):  # it is just ending
                seen.append(anonymous_bytes(pid))

    with watched(look, 0.02):
        transit = ("--set", f"peers.transit={POOL_BYTES}B")
        report = read_by_32_threads(runner, folder, TURNS, *transit)

    # A quarter of its life: all files are packed, and the first program begins to read.
    growth = max(seen) - seen[len(seen) // 4]
    assert growth <= GROWTH_MAX
    # A leak for each decoded file would be more.
    assert report["packed"]["decoded_bytes"] > 1.5 * GROWTH_MAX
