"""What goes wrong while a large file of a packed Tier is made whole: programs read the
right bytes, no room is lost, and the agent goes on."""

# ruff: noqa: F811

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from integration.test_hung_parts import (  # noqa: F401
    Begin,
    begin,
    medium,
    tierfs_program,
)
from integration.test_packed_media import (  # noqa: F401
    LARGE,
    LARGE_POOL,
    PACKED,
    large,
    on_disk,
    tiers,
    used_is_what_is_there,
)
from integration.test_whole_files import STREAM
from monarch.codec import Codec
from monarch.native import codec_library
from support.agents import AgentProcess
from support.countfs import CountFs
from support.processes import wait_until

MIB = 1 << 20
EXTENTS = sum(-(-size // (8 * MIB)) for size in LARGE)
# The whole copy is written so slowly that the fault hits the middle.
SLOW = 12_000_000
WRITE = """
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(20 << 20)
    file.write(b"other bytes")
"""

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("lz4")) is None, reason="no liblz4"
)


@pytest.fixture
def start(begin: Begin, medium: CountFs, large: list[Path]) -> Begin:
    """A function that starts an agent and waits until all files are packed."""

    def packed(*options: str, size: str = "256MiB") -> AgentProcess:
        agent = begin(
            *("--data", large[0].parent, "--tier", f"ssd:{size}:{medium.root}"),
            *(*PACKED, "--set", LARGE_POOL, *options),
        )
        wait_until(lambda: agent.figures()["packed_extents"] == EXTENTS)
        return agent

    return packed


def program(agent: AgentProcess, text: str, *words: object) -> subprocess.Popen[str]:
    """A program under the Shim."""
    command = [sys.executable, "-c", text, *map(str, words)]
    return subprocess.Popen(
        command, env=agent.environ(), stdout=subprocess.PIPE, text=True
    )


def streamed(agent: AgentProcess, path: Path) -> subprocess.Popen[str]:
    return program(agent, STREAM, path.parent, path.name)


def right(path: Path) -> str:
    """The content that a program without Monarch finds."""
    command = [sys.executable, "-c", STREAM, str(path.parent), path.name]
    return subprocess.check_output(command, text=True)


def copies(medium: CountFs) -> list[Path]:
    """The whole copies that the medium holds, or part of them."""
    found = [one for one in medium.source.rglob("*") if one.is_file()]
    return [one for one in found if one.stat().st_size in LARGE]


def begin_copy(
    agent: AgentProcess, medium: CountFs, path: Path
) -> subprocess.Popen[str]:
    """Returns a program that waits for a whole copy, of which a part is written."""
    medium.set(wbw=SLOW)
    reader = streamed(agent, path)
    wait_until(lambda: any(one.stat().st_blocks for one in copies(medium)))
    return reader


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_medium_that_fails_under_a_whole_copy(
    start: Begin, medium: CountFs, large: list[Path], error: int
) -> None:
    agent = start()

    reader = begin_copy(agent, medium, large[0])
    medium.set(write=error, wbw=0)

    assert reader.communicate(timeout=60)[0] == right(large[0])
    agent.await_figure("tiers_full" if error == errno.ENOSPC else "tiers_lost", 1)
    for path in large:
        assert streamed(agent, path).communicate(timeout=60)[0] == right(path)
    (tier,) = tiers(agent)
    assert tier["in_service"] == (error == errno.ENOSPC)
    # No program waits for a copy that does not arrive.
    assert agent.status()["report"]["counters"]["origin_timeout"] == 0
    if error == errno.ENOSPC:
        wait_until(lambda: used_is_what_is_there(agent, medium), "no room is lost")
        assert copies(medium) == []
    assert agent.figures()["agent_errors"] == 0
    assert agent.stop() == 0


def test_agent_killed_in_a_whole_copy_leaves_nothing_that_the_next_one_trusts(
    start: Begin, medium: CountFs, large: list[Path]
) -> None:
    retain = ("--set", "retain=7d")
    agent = start(*retain)

    reader = begin_copy(agent, medium, large[0])
    agent.kill()
    medium.set(wbw=0)
    assert reader.communicate(timeout=60)[0] == right(large[0])

    after = start(*retain)
    assert copies(medium) == []
    assert used_is_what_is_there(after, medium)
    for path in large:
        assert streamed(after, path).communicate(timeout=60)[0] == right(path)
    assert after.figures()["agent_errors"] == 0
    assert after.stop() == 0


def test_file_written_during_a_whole_copy_is_read_with_its_new_content(
    start: Begin, medium: CountFs, large: list[Path]
) -> None:
    agent = start()

    reader = begin_copy(agent, medium, large[0])
    before = right(large[0])
    assert program(agent, WRITE, large[0]).communicate(timeout=30)[0] == ""
    medium.set(wbw=0)

    after = right(large[0])
    assert after != before
    assert reader.communicate(timeout=60)[0] in (before, after)
    assert streamed(agent, large[0]).communicate(timeout=60)[0] == after
    assert streamed(agent, large[1]).communicate(timeout=60)[0] == right(large[1])
    assert agent.figures()["agent_errors"] == 0
    assert agent.stop() == 0


def test_space_freed_later_is_used(
    start: Begin, medium: CountFs, large: list[Path]
) -> None:
    """Of 42 MiB 16 are free: too little for all of the second file, until the frames of
    the first one are of no use."""
    agent = start(size="42MiB")
    assert streamed(agent, large[1]).communicate(timeout=60)[0] == right(large[1])
    assert agent.status()["report"]["waits"]["whole_served"] == 0
    assert copies(medium) == []

    assert program(agent, WRITE, large[0]).communicate(timeout=30)[0] == ""

    def is_served() -> bool:
        found = streamed(agent, large[1]).communicate(timeout=60)[0]
        assert found == right(large[1])
        return int(agent.status()["report"]["waits"]["whole_served"]) > 0

    wait_until(is_served)
    assert [one.stat().st_size for one in copies(medium)] == [LARGE[1]]
    assert agent.stop() == 0


def test_job_that_ends_in_a_whole_copy_leaves_nothing(
    start: Begin, medium: CountFs, large: list[Path]
) -> None:
    agent = start()

    reader = begin_copy(agent, medium, large[0])
    assert agent.stop() == 0
    medium.set(wbw=0)

    assert reader.communicate(timeout=60)[0] == right(large[0])
    assert copies(medium) == []
    assert on_disk(medium) == 0
