"""Memory of an agent whose packed Tier is read by many threads through a small Pool."""

# ruff: noqa: F811

import threading
from contextlib import suppress
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
from support.programs import Runner

MIB = 1 << 20
POOL_BYTES = 2 * MIB
TURNS = 3
# Each thread that copies for programs has, at most, a small file as it is and packed,
# and what zstd:3 needs to pack and to unpack: less than 2 MiB together.
GROWTH_MAX = DEMAND_THREADS * 2 * MIB


def anonymous_bytes(pid: int) -> int:
    """The memory of a process that is no file's."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (found,) = (line.split() for line in lines if line.startswith("Anonymous:"))
    return int(found[1]) * 1024


@pytest.mark.timeout(120)
def test_memory_of_the_agent_does_not_grow_with_what_is_decoded(
    runner: Runner, run_root: Path, folder: Path
) -> None:
    seen: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            for pid in processes.agents(run_root):
                with suppress(OSError, ValueError):  # it ends just now
                    seen.append(anonymous_bytes(pid))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        transit = ("--set", f"peers.transit={POOL_BYTES}B")
        report = read_by_32_threads(runner, folder, TURNS, *transit)
    finally:
        ended.set()
        looking.join()

    # A quarter of its life: all is packed, and the first program begins to read.
    growth = max(seen) - seen[len(seen) // 4]
    assert growth <= GROWTH_MAX
    # What stayed of each file that was decoded would be more.
    assert report["packed"]["decoded_bytes"] > 1.5 * GROWTH_MAX
