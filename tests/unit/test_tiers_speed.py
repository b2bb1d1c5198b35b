"""The speed of a medium is measured within the room that a Tier has."""

import os
import time
from pathlib import Path

import pytest

from monarch.tiers import speed

MIB = 1 << 20


@pytest.fixture
def most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the files of a directory had, each time that one was written."""
    found: list[int] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        found.append(sum(path.stat().st_size for path in files))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return found


@pytest.mark.parametrize("room", [16 << 10, 100_000, MIB, 19 * MIB + 1, 1 << 40])
def test_no_more_room_is_taken_than_there_is(
    tmp_path: Path, most: list[int], room: int
) -> None:
    found = speed.measure_speed(tmp_path, room)

    assert found.files_per_s > 0
    assert found.bytes_per_s > 0
    at_most = speed.BYTES + speed.FILES * speed.FILE_BYTES
    assert min(room, at_most) / 2 < max(most) <= min(room, at_most)
    assert list(tmp_path.iterdir()) == []


def test_without_room_nothing_is_measured(tmp_path: Path, most: list[int]) -> None:
    with pytest.raises(OSError, match="No space left"):
        speed.measure_speed(tmp_path, 10_000)

    assert most == []


def test_reads_that_were_interrupted_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread waits for the processor, beside busy programs, in some of its reads."""
    count, read = iter(range(1 << 20)), os.read

    def late(fd: int, size: int) -> bytes:
        if next(count) % 4 == 1:
            time.sleep(0.02)
        return read(fd, size)

    monkeypatch.setattr(os, "read", late)

    found = speed.measure_speed(tmp_path, 1 << 40)

    assert found.files_per_s > 500, "200 if all reads counted"
