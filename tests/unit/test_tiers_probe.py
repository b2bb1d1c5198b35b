"""Whether a Tier still works, judged by the answers of its file system."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from monarch.agent import tier_watch
from monarch.tiers.probe import Finding, Probe, fault_of, inspect


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path, memory: Path) -> Path:
    """A directory for a Tier."""
    return tmp_path if request.param == "disk" else memory


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory on tmpfs."""
    from support.stages import memory_directory

    with memory_directory() as found:
        yield found


def test_a_tier_that_works_is_probed_over_and_over_and_nothing_is_left(
    directory: Path,
) -> None:
    with closing(Probe(directory)) as one:
        assert [fault_of(one.run) for _ in range(3)] == ["", "", ""]
        assert list(directory.iterdir()) == []


def test_bytes_read_back_changed_are_a_fault(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(fd: int, into: list[memoryview], at: int) -> int:
        into[0][0:4096] = bytes(4096)
        return 4096

    monkeypatch.setattr(os, "preadv", preadv)
    with closing(Probe(directory)) as one:
        assert fault_of(one.run) == os.strerror(errno.EIO)


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_a_tier_that_is_full_works(
    directory: Path, monkeypatch: pytest.MonkeyPatch, cause: int
) -> None:
    def pwrite(*_: object) -> int:
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with closing(Probe(directory)) as one:
        assert fault_of(one.run) == ""


def test_inspection_reports_the_state_of_a_replica(directory: Path) -> None:
    (directory / "whole").write_bytes(b"12345")
    (directory / "cut").write_bytes(b"1234")

    found = [inspect(directory / name, 5) for name in ("whole", "cut", "none")]

    assert found == [Finding.HELD, Finding.LOST, Finding.LOST]
    assert inspect(directory / "gone" / "x", 5) is Finding.TIER_GONE


@pytest.mark.parametrize("cause", [errno.EIO, errno.ENOTCONN, errno.ESTALE])
def test_an_error_of_the_medium_is_none_of_the_replica(
    directory: Path, cause: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(cause, os.strerror(cause))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        fault = fault_of(lambda: inspect(directory / "x", 5))

    assert fault == os.strerror(cause)


def test_a_step_that_hangs_is_not_waited_for() -> None:
    hanging = threading.Event()

    async def asked() -> str:
        return await tier_watch.answer(lambda: str(hanging.wait(60)), limit_s=0.1)

    assert asyncio.run(asked()) == "no answer in 0.1 s"
    hanging.set()


def test_a_suspended_loop_does_not_report_a_hung_tier() -> None:
    """As if the agent had been stopped while a probe was under way."""
    began = threading.Event()

    def step() -> str:
        began.set()
        return ""

    async def stopped() -> str:
        asking = asyncio.create_task(tier_watch.answer(step, limit_s=0.5))
        await asyncio.sleep(0)
        began.wait(10)
        threading.Event().wait(1)  # the loop runs nothing meanwhile
        return await asking

    assert asyncio.run(stopped()) == ""
