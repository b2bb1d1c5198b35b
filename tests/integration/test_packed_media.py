"""Media of packed Tiers that run full or fail in a job: the bytes are right, room that
is not used comes back, and a medium that fails is not used any more."""

# ruff: noqa: F811

import errno
from pathlib import Path
from typing import Any

import pytest

from integration.test_hung_parts import (  # noqa: F401
    Begin,
    begin,
    content_of,
    medium,
    tierfs_program,
)
from integration.test_packed_jobs import FILES, body, folder  # noqa: F401
from monarch.codec import Codec
from monarch.native import codec_library
from support.agents import AgentProcess
from support.changing_files import disk_bytes
from support.countfs import CountFs
from support.processes import wait_until

MIB = 1 << 20
LARGE = (33 * MIB + 5, 25 * MIB)
# Writes are so slow that Files are being packed when the fault occurs.
SLOW = 2_000_000
# So small that files read again are decoded again.
SMALL_POOL, LARGE_POOL = "peers.transit=2MiB", "peers.transit=40MiB"
PACKED = ("--set", "tiers[0].codec=lz4")

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("lz4")) is None, reason="no liblz4"
)


@pytest.fixture
def large(tmp_path: Path) -> list[Path]:
    """Large files that shrink."""
    root = tmp_path / "large"
    root.mkdir()
    for number, size in enumerate(LARGE):
        part = body(MIB, number)
        content = (part * (size // MIB + 1))[:size]
        (root / f"{number}.bin").write_bytes(content)
    return sorted(root.iterdir())


def texts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.txt"))


def tiers(agent: AgentProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.status()["report"]["tiers"]
    return found


def on_disk(medium: CountFs) -> int:
    """The space of pack files on a medium."""
    return disk_bytes(medium.source, ".pack")


def used_is_what_is_there(agent: AgentProcess, medium: CountFs) -> bool:
    """What is used is what the medium holds, but for the last page of a pack file."""
    return abs(on_disk(medium) - int(tiers(agent)[0]["used_bytes"])) <= 4096


def read_right(agent: AgentProcess, paths: list[Path]) -> None:
    assert agent.read(*paths) == content_of(paths)


def warnings(agent: AgentProcess) -> list[str]:
    """What the user was told, when the agent has ended in order."""
    assert agent.figures()["agent_errors"] == 0
    assert agent.stop() == 0
    return [line for line in agent.heard if "is no longer used" in line]


def test_files_that_find_a_full_medium_are_read_right_and_leak_no_room(
    begin: Begin, medium: CountFs, folder: Path
) -> None:
    medium.set(wbw=SLOW)
    agent = begin(
        *("--data", folder, "--tier", f"ssd:256MiB:{medium.root}"),
        *(*PACKED, "--set", SMALL_POOL),
    )
    agent.await_staged(FILES // 4)

    medium.set(write=errno.ENOSPC)
    agent.await_figure("tiers_full", 1)
    read_right(agent, texts(folder))
    read_right(agent, texts(folder))

    wait_until(lambda: used_is_what_is_there(agent, medium), "no room is lost")
    (tier,) = tiers(agent)
    assert tier["in_service"]
    # Files packed before stay packed.
    assert FILES // 4 <= tier["files"] < FILES
    assert 0 < tier["used_bytes"] <= tier["capacity_bytes"]
    assert warnings(agent) == []


def test_medium_that_fails_while_files_are_packed_is_no_longer_used(
    begin: Begin, medium: CountFs, folder: Path
) -> None:
    medium.set(wbw=SLOW)
    agent = begin(
        *("--data", folder, "--tier", f"ssd:256MiB:{medium.root}"),
        *("--tier", "ram:64MiB", *PACKED, "--set", SMALL_POOL),
    )
    agent.await_staged(FILES // 4)

    medium.set(write=errno.EIO)
    agent.await_figure("tiers_lost", 1)
    read_right(agent, texts(folder))
    agent.await_staged(FILES)

    first, second = tiers(agent)
    assert not first["in_service"]
    assert second["files"] == FILES
    assert len(warnings(agent)) == 1


def test_unreadable_medium_is_no_longer_used(
    begin: Begin, medium: CountFs, folder: Path
) -> None:
    agent = begin(
        *("--data", folder, "--tier", f"ssd:256MiB:{medium.root}"),
        *("--tier", "ram:64MiB", *PACKED, "--set", SMALL_POOL),
    )
    agent.await_staged(FILES)

    medium.set(eio=1)
    read_right(agent, texts(folder))
    agent.await_figure("tiers_lost", 1)
    read_right(agent, texts(folder))
    agent.await_staged(FILES)

    assert [tier["in_service"] for tier in tiers(agent)] == [False, True]
    assert len(warnings(agent)) == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_medium_that_fails_while_pieces_of_large_files_are_packed_is_reported(
    begin: Begin, medium: CountFs, large: list[Path], error: int
) -> None:
    agent = begin(
        *("--data", large[0].parent, "--tier", f"ssd:256MiB:{medium.root}"),
        *(*PACKED, "--set", LARGE_POOL, "--set", "fill.enabled=false"),
    )

    medium.set(write=error)
    read_right(agent, large)
    figure = "tiers_full" if error == errno.ENOSPC else "tiers_lost"
    agent.await_figure(figure, 1)
    read_right(agent, large)

    (tier,) = tiers(agent)
    assert tier["in_service"] == (error == errno.ENOSPC)
    assert tier["used_bytes"] == on_disk(medium) == 0
    assert len(warnings(agent)) == (error == errno.EIO)


def test_unreadable_medium_serves_no_piece_of_a_large_file(
    begin: Begin, medium: CountFs, large: list[Path]
) -> None:
    agent = begin(
        *("--data", large[0].parent, "--tier", f"ssd:256MiB:{medium.root}"),
        *(*PACKED, "--set", LARGE_POOL),
    )
    agent.await_staged(len(large))

    medium.set(eio=1)
    for _ in range(2):
        read_right(agent, large)
    agent.await_figure("tiers_lost", 1)
    read_right(agent, large)

    assert len(warnings(agent)) == 1
