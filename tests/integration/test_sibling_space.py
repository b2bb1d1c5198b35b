"""The space of jobs that share files: capacities, reports of verbs, and deaths."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.programs import Runner
from support.sharing import Job, make_files, shared

Verb = Callable[..., "subprocess.CompletedProcess[str]"]

FILES = 100
BYTES = 204_800
TOTAL = FILES * BYTES
LARGE = 20 * 2**20


@pytest.fixture
def verb(monarch_command: Path, run_root: Path) -> Verb:
    def run(*words: str | Path) -> "subprocess.CompletedProcess[str]":
        line = [str(monarch_command), *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, check=True)

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_files(tmp_path / "data", FILES, BYTES)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that has room for the dataset one and a half times."""
    path = tmp_path / "disk"
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={TOTAL * 3 // 2}", "none", str(path)]
    subprocess.run(words, check=True)
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def capacity(report: Mapping[str, Any]) -> int:
    """The capacity of the only tier, by a report."""
    (tier,) = report["tiers"]
    return int(tier["capacity_bytes"])


@pytest.mark.root
def test_the_space_of_files_that_are_linked_counts_as_free(
    runner: Runner, data: Path, disk: Path
) -> None:
    on_disk = Runner(runner.command, runner.folder, tier=f"ssd:99%:{disk}")
    first = Job(on_disk, data, "first")
    digest = first.wait_for_pass()
    assert first.wait_for_pass() == digest

    second = Job(on_disk, data, "second")

    assert second.wait_for_pass() == digest
    first.end()
    assert second.wait_for_pass() == digest
    report = second.end().report
    assert shared(report) == FILES
    assert report["tiers"][0]["files"] == FILES


@pytest.mark.root
def test_the_space_of_other_files_does_not_count_as_free(
    runner: Runner, data: Path, disk: Path, tmp_path: Path
) -> None:
    other = make_files(tmp_path / "other", FILES, BYTES)
    on_disk = Runner(runner.command, runner.folder, tier=f"ssd:99%:{disk}")
    first = Job(on_disk, data, "first")
    first.wait_for_pass()
    first.wait_for_pass()
    left = os.statvfs(disk)

    second = Job(on_disk, other, "second")

    digest = second.wait_for_pass()
    assert second.wait_for_pass() == digest
    report = second.end().report
    first.end()
    assert capacity(report) <= left.f_bavail * left.f_frsize
    assert shared(report) == 0


def test_list_shows_space_shared_by_jobs(
    runner: Runner, data: Path, verb: Verb
) -> None:
    first = Job(runner, data, "first")
    first.wait_for_pass()
    first.wait_for_pass()

    (row,) = map(json.loads, verb("list", "--json").stdout.splitlines())
    assert (row["files"], row["bytes"], row["shared_bytes"]) == (FILES, TOTAL, 0)

    second = Job(runner, data, "second")
    second.wait_for_pass()
    second.wait_for_pass()
    rows = [json.loads(line) for line in verb("list", "--json").stdout.splitlines()]
    text = " ".join(verb("list").stdout.split())

    assert [row["shared_bytes"] for row in rows] == [TOTAL, TOTAL]
    assert {row["state"] for row in rows} == {"in use"}
    assert all(row["datasets"] == [str(data)] for row in rows)
    assert text.count("19.5 MiB (19.5 MiB shared with other jobs)") == 2
    assert all(f"in use by {row['job']}" in text for row in rows)
    first.end()
    second.end()


def test_plan_names_the_jobs_from_which_files_can_be_linked(
    runner: Runner, data: Path, verb: Verb
) -> None:
    words = ["plan", "--data", data, "--tier", "ram:256MiB", "--json"]
    alone = json.loads(verb(*words).stdout)
    first = Job(runner, data, "first")
    first.wait_for_pass()
    first.wait_for_pass()

    plan = json.loads(verb(*words).stdout)
    off = json.loads(verb(*words, "--set", "share=off").stdout)

    (job,) = plan["sharing"]["jobs"]
    assert (job["files"], job["bytes"]) == (FILES, TOTAL)
    assert plan["sharing"]["bytes"] == TOTAL
    assert alone["origin"]["sharded"]["bytes"] == TOTAL
    assert plan["origin"]["sharded"]["bytes"] == 0
    assert f"can be linked from {job['job']}" in verb(*words[:-1]).stdout
    assert "sharing" not in alone
    assert "sharing" not in off
    first.end()


def test_a_large_file_is_linked_before_fill_reaches_it(
    runner: Runner, tmp_path: Path
) -> None:
    folder = make_files(tmp_path / "shards", 3, LARGE)
    first = Job(runner, folder, "first")
    digest = first.wait_for_pass()
    assert first.wait_for_pass() == digest

    second = Job(runner, folder, "second", "--set", "fill.enabled=false")

    assert second.wait_for_pass() == digest
    assert second.wait_for_pass() == digest
    report = second.end().report
    first.end()
    assert shared(report) == 3
    assert report["staging"]["shared_bytes"] == 3 * LARGE


@pytest.mark.parametrize("victim", ["source", "target"])
def test_linking_jobs_continue_when_one_is_killed(
    runner: Runner, tmp_path: Path, victim: str
) -> None:
    """Either the job that others link from, or one that links."""
    folder = make_files(tmp_path / "many", 2000, 4096)
    first = Job(runner, folder, f"{victim}-first")
    digest = first.wait_for_pass()
    assert first.wait_for_pass() == digest

    others = [Job(runner, folder, f"{victim}-{n}") for n in range(2)]
    time.sleep(0.4 + random.Random(victim).random() / 2)
    killed = first if victim == "source" else others.pop()
    os.killpg(killed.process.pid, signal.SIGKILL)
    killed.process.communicate()

    for job in others:
        assert {job.wait_for_pass() for _ in range(2)} == {digest}
        job.end()
    if killed is not first:
        first.end()
