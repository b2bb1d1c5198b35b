"""Packed Tiers that outlive their job: a later one adopts only undamaged files."""

# ruff: noqa: F811

import json
import os
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.test_packed_jobs import (  # noqa: F401
    FILES,
    OVERREAD_MAX,
    body,
    folder,
    total,
)
from integration.test_retained import change, monarch, retained, said  # noqa: F401
from monarch.codec import Codec
from monarch.native import codec_library, read_index
from support.agents import start_agent
from support.countfs import CountFs

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)
CODECS = ["zstd:3", "zstd:3+dict", "none"]


@dataclass(frozen=True, slots=True)
class Site:
    """A dataset, and agents that stage it one after the other."""

    view: CountFs
    run_root: Path
    tmp: Path

    @property
    def tier(self) -> str:
        return f"ssd:256MiB:{self.tmp / 'ssd'}"

    def words(self, codec: str) -> list[str]:
        words = ["--data", str(self.view.root), "--tier", self.tier]
        words += ["--set", "retain=7d", "--set", f"tiers[0].codec={codec}"]
        return words

    def job(self, name: str, codec: str, files: int = FILES) -> dict[str, Any]:
        """Stage everything, end, and return the report."""
        agent = start_agent(self.run_root / f"{name}.n", self.words(codec))
        agent.listen("ready")
        agent.await_staged(files)
        report: dict[str, Any] = agent.status()["report"]
        agent.stop()
        return report

    def read_bytes(self) -> int:
        return self.view.counts().read_bytes


@pytest.fixture
def site(
    monarch: Callable[..., Any],
    mount_counted: Callable[..., CountFs],
    folder: Path,
    run_root: Path,
    tmp_path: Path,
) -> Site:
    return Site(mount_counted(folder), run_root, tmp_path)


def make_incompressible(folder: Path) -> None:
    for number, path in enumerate(sorted(folder.rglob("*.txt"))):
        path.write_bytes(random.Random(number).randbytes(path.stat().st_size))


def test_later_job_of_a_tier_that_auto_left_plain_tries_no_codecs(
    site: Site, folder: Path
) -> None:
    make_incompressible(folder)
    first = site.job("one", "auto")
    site.view.reset()

    second = site.job("two", "auto")

    assert site.read_bytes() == 0
    assert second["staging"]["adopted_files"] == FILES
    assert second["tiers"][0]["codec"] == first["tiers"][0]["codec"] == "plain"


def test_later_job_with_other_files_chooses_again(site: Site, folder: Path) -> None:
    make_incompressible(folder)
    site.job("one", "auto")
    (folder / "more.txt").write_bytes(b"more" * 100)
    site.view.reset()

    second = site.job("two", "auto", FILES + 1)

    assert second["agent"]["tried_bytes"] > 0
    assert second["staging"]["adopted_files"] == FILES


def segments(tmp_path: Path) -> list[Path]:
    return sorted(retained(tmp_path).glob("segment-*.pack"))


@pytest.mark.parametrize("codec", CODECS)
def test_later_job_adopts_packed_files_and_reads_nothing(
    site: Site,
    folder: Path,
    tmp_path: Path,
    codec: str,
) -> None:
    first = site.job("one", codec)
    assert site.read_bytes() >= total(folder)
    site.view.reset()

    second = site.job("two", codec)

    assert site.read_bytes() == 0
    assert second["staging"]["adopted_files"] == FILES
    assert second["packed"]["files"] == first["packed"]["files"] == FILES
    assert second["packed"]["stored_bytes"] == first["packed"]["stored_bytes"]
    assert second["tiers"][0]["codec"] == first["tiers"][0]["codec"]
    third = site.job("three", codec)
    assert site.read_bytes() == 0
    assert third["staging"]["adopted_files"] == FILES


def test_file_that_has_changed_is_read_again_and_no_other(
    site: Site,
    folder: Path,
    tmp_path: Path,
) -> None:
    site.job("one", "zstd:3")
    victim = folder / "class3" / "3.txt"
    victim.write_bytes(body(victim.stat().st_size, 4242))
    site.view.reset()

    report = site.job("two", "zstd:3")

    assert report["staging"]["adopted_files"] == FILES - 1
    assert site.read_bytes() == victim.stat().st_size


def test_frame_that_is_damaged_is_found_and_the_program_reads_right_bytes(
    site: Site,
    folder: Path,
    tmp_path: Path,
    monarch: Callable[..., Any],
) -> None:
    site.job("one", "none")
    (segment,) = segments(tmp_path)
    change(segment)  # a byte in its middle
    site.view.reset()
    words = site.words("none")
    report = tmp_path / "report.json"
    program = (
        "import pathlib, sys, zlib\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).rglob('*.txt')):\n"
        "    print(path.name, zlib.crc32(path.read_bytes()))\n"
    )

    done = monarch(
        *("run", *words, "--set", f"report.file={report}", "--"),
        *("python3", "-c", program, str(site.view.root)),
    )

    expected = [
        f"{path.name} {zlib.crc32(path.read_bytes())}"
        for path in sorted(folder.rglob("*.txt"))
    ]
    assert done.stdout.splitlines() == expected
    figures = json.loads(report.read_text())
    assert figures["packed"]["dropped_files"] == 1
    assert 0 < site.read_bytes() < 0.02 * total(folder)


def test_index_that_is_damaged_adopts_nothing_of_its_pack_file(
    site: Site,
    folder: Path,
    tmp_path: Path,
) -> None:
    site.job("one", "zstd:3")
    (segment,) = segments(tmp_path)
    os.truncate(segment, segment.stat().st_size - 5)
    site.view.reset()

    report = site.job("two", "zstd:3")

    assert report["staging"]["adopted_files"] == 0
    assert site.read_bytes() == total(folder)


def test_job_with_another_codec_reads_again_and_reports_it(
    site: Site,
    folder: Path,
    tmp_path: Path,
) -> None:
    site.job("one", "zstd:3")
    site.view.reset()
    agent = start_agent(site.run_root / "two.n", site.words("lz4"))

    warning = agent.listen("warn")
    agent.listen("ready")
    agent.await_staged(FILES)
    report = agent.status()["report"]
    agent.stop()

    assert f"{FILES} packed copies of an earlier job cannot be used" in warning
    assert report["staging"]["adopted_files"] == 0
    assert site.read_bytes() >= total(folder)


def test_job_with_a_plain_tier_reads_again(
    site: Site,
    folder: Path,
    tmp_path: Path,
) -> None:
    site.job("one", "zstd:3")
    site.view.reset()

    report = site.job("two", "plain")

    assert report["staging"]["adopted_files"] == 0
    assert site.read_bytes() == total(folder)
    assert segments(tmp_path) == []


@pytest.mark.parametrize("moment", ["filling", "filled", "adopted"])
def test_job_that_is_killed_leaves_nothing_that_the_next_one_trusts(
    site: Site,
    folder: Path,
    tmp_path: Path,
    moment: str,
) -> None:
    if moment == "adopted":
        site.job("zero", "zstd:3")
    agent = start_agent(site.run_root / "one.n", site.words("zstd:3"))
    agent.listen("ready")
    if moment != "filling":
        agent.await_staged(FILES)
    left = list((tmp_path / "ssd").glob("monarch-*/one.n/*/segment-*.pack"))
    agent.kill()
    assert all(read_index(path) is None for path in left)
    site.view.reset()

    report = site.job("two", "zstd:3")

    assert report["staging"]["adopted_files"] == 0
    assert total(folder) <= site.read_bytes() <= OVERREAD_MAX * total(folder)
    assert report["packed"]["dropped_files"] == 0


def test_packed_tiers_are_listed_checked_and_evicted(
    site: Site,
    folder: Path,
    tmp_path: Path,
    monarch: Callable[..., Any],
) -> None:
    first = site.job("one", "zstd:3+dict")
    words = ["stage", *site.words("zstd:3+dict")]

    lines = monarch("list", "--json", str(tmp_path / "ssd")).stdout.splitlines()
    # This node may retain other datasets, too.
    (row,) = (json.loads(line) for line in lines if str(tmp_path) in line)
    text = said(monarch("list", str(tmp_path / "ssd")))
    assert (row["files"], row["bytes"]) == (FILES, total(folder))
    assert row["stored_bytes"] == first["packed"]["stored_bytes"] < total(folder)
    assert (row["state"], row["missing"]) == ("retained", 0)
    assert re.search(f"{FILES} files, .*B packed in .*B, ", text)

    checked = monarch(*words, "--check")
    assert checked.returncode == 0, checked
    assert f"{FILES} of {FILES} files are staged and verified" in said(checked)
    (segment,) = segments(tmp_path)
    change(segment)
    checked = monarch(*words, "--check")
    assert checked.returncode == 1
    assert f"{FILES - 1} of {FILES} files are staged and verified" in said(checked)
    assert "its copy has another checksum" in said(checked)

    segment.unlink()
    lines = monarch("list", "--json", str(tmp_path / "ssd")).stdout.splitlines()
    # This node may retain other datasets, too.
    (row,) = (json.loads(line) for line in lines if str(tmp_path) in line)
    assert (row["state"], row["missing"]) == ("incomplete", FILES)
    evicted = monarch(*words, "--evict")
    assert evicted.stdout.startswith(f"evicted {site.view.root} ({FILES} files, ")
    assert list((tmp_path / "ssd").glob("monarch-*/retained-*")) == []
