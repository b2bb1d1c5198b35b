"""Packed Extents of large files outlive their job; damaged ones are read again."""

# ruff: noqa: F811

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.test_packed_large import READER, words_of
from integration.test_packed_retained import segments
from integration.test_retained import monarch, retained, said  # noqa: F401
from monarch.codec import Codec
from monarch.native import codec_library, read_index
from support.agents import start_agent
from support.countfs import CountFs
from support.processes import wait_until

MIB = 1 << 20
EXTENT = 8 * MIB
SIZES = (16 * MIB + 5, 9 * MIB, 24 * MIB)
TOTAL = sum(SIZES)
EXTENTS = sum(-(-size // EXTENT) for size in SIZES)

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)


@dataclass(frozen=True)
class Site:
    """Large files that shrink, and agents that stage them one after the other."""

    view: CountFs
    run_root: Path
    tmp: Path
    monarch: Callable[..., Any]

    @property
    def words(self) -> list[str]:
        words = ["--data", str(self.view.root)]
        words += ["--tier", f"ssd:256MiB:{self.tmp / 'ssd'}"]
        return [*words, "--set", "retain=7d", "--set", "tiers[0].codec=zstd:1"]

    def stage(self, name: str, extents: int = EXTENTS) -> dict[str, Any]:
        """Stage everything until so many Extents are packed; return the report."""
        agent = start_agent(self.run_root / f"{name}.n", self.words)
        agent.listen("ready")

        def packed() -> int:
            agent_counters = agent.status()["report"]["agent"]
            return int(agent_counters["packed_extents"])

        wait_until(lambda: packed() == extents)
        report: dict[str, Any] = agent.status()["report"]
        agent.stop()
        return report

    def read(self, way: str = "all") -> dict[str, Any]:
        """Compare all bytes that a program reads under a job; return the report."""
        report = self.tmp / "report.json"
        program = ["python3", "-c", READER, str(self.view.root), str(self.view.source)]
        self.view.reset()
        done = self.monarch(
            *("run", *self.words, "--set", f"report.file={report}", "--"),
            *(*program, "2", way, "0"),
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    @property
    def origin_bytes(self) -> int:
        return self.view.counts().read_bytes


@pytest.fixture
def site(
    monarch: Callable[..., Any],
    mount_counted: Callable[..., CountFs],
    run_root: Path,
    tmp_path: Path,
) -> Site:
    root = tmp_path / "data"
    root.mkdir()
    for number, size in enumerate(SIZES):
        (root / f"{number}.bin").write_bytes(words_of(size, number))
    return Site(mount_counted(root), run_root, tmp_path, monarch)


def spoil(segment: Path) -> None:
    """Damage the middle of a frame of a large file."""
    index = read_index(segment)
    assert index is not None
    row = index[index["bytes"].argmax()]
    with segment.open("r+b") as file:
        file.seek(int(row["offset"]) + int(row["bytes"]) // 2)
        file.write(b"\x55" * 64)


def test_later_jobs_adopt_all_extents_and_read_nothing(
    site: Site, tmp_path: Path
) -> None:
    site.stage("one")
    assert site.origin_bytes >= TOTAL

    for _ in range(2):
        report = site.read()
        assert site.origin_bytes == 0
        assert report["staging"]["adopted_files"] == len(SIZES)
        assert report["packed"]["dropped_files"] == 0

    assert f"{len(SIZES)} files, " in said(site.monarch("list", str(tmp_path / "ssd")))
    checked = site.monarch("stage", *site.words[:4], "--check")
    assert checked.returncode == 0, checked.stdout
    count = len(SIZES)
    assert f"{count} of {count} files are staged and verified" in said(checked)


def test_damaged_extent_is_read_again_and_no_other(site: Site, tmp_path: Path) -> None:
    site.stage("one")
    (segment,) = segments(tmp_path)
    spoil(segment)
    checked = site.monarch("stage", *site.words[:4], "--check")
    assert checked.returncode == 1
    assert "its copy has another checksum" in said(checked)

    report = site.read()

    assert report["packed"]["dropped_files"] == 1
    assert 0 < site.origin_bytes <= EXTENT


def test_checksums_of_blocks_that_are_damaged_adopt_nothing(
    site: Site, tmp_path: Path
) -> None:
    site.stage("one")
    (segment,) = segments(tmp_path)
    with segment.open("r+b") as file:
        file.seek(-100, os.SEEK_END)  # behind the entries
        file.write(b"\x55")
    assert read_index(segment) is None

    report = site.read()

    assert report["staging"]["adopted_files"] == 0
    assert site.origin_bytes >= TOTAL


def test_file_that_has_changed_is_read_again(site: Site, tmp_path: Path) -> None:
    site.stage("one")
    (tmp_path / "data" / "1.bin").write_bytes(words_of(SIZES[1], 77))

    report = site.read()

    assert report["staging"]["adopted_files"] == len(SIZES) - 1
    assert SIZES[1] <= site.origin_bytes <= SIZES[1] * 1.02


def test_extents_that_a_job_has_not_read_are_added_by_the_next_one(
    site: Site, tmp_path: Path
) -> None:
    """Without fill a job packs the Extents alone of which it has read all."""
    off = ("--set", "fill.enabled=false", "--set", "peers.transit=64MiB")
    program = (
        "import os, sys, time\n"
        "with open(sys.argv[1], 'rb', buffering=0) as file:\n"
        f"    file.seek({EXTENT})\n"
        f"    for _ in range({EXTENT} >> 18):\n"
        "        assert file.read(1 << 18)\n"
        "time.sleep(2)\n"
    )
    words = ["run", *site.words, *off, "--", "python3", "-c", program]
    assert site.monarch(*words, str(site.view.root / "2.bin")).returncode == 0
    (segment,) = segments(tmp_path)
    index = read_index(segment)
    assert index is not None
    kept = int(index["plain"].sum())
    assert 1 in index["extent"]
    assert kept < SIZES[2]

    report = site.read()

    assert TOTAL - kept <= site.origin_bytes <= TOTAL - kept + MIB
    assert report["staging"]["adopted_bytes"] == kept
