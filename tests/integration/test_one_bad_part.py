"""One bad Entry, root, Tier or process: the rest of the job is staged as usual."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.dataset import Dataset, make_dataset
from support.jobs import Jobs

AFTER_2262_S = 9_246_182_400
READ_ALL = (
    "import hashlib, os, sys\n"
    "for folder, _, names in sorted(os.walk(sys.argv[1])):\n"
    "    for name in sorted(names):\n"
    "        path = os.path.join(folder, name)\n"
    "        found = os.stat(path)\n"
    "        if found.st_size < 1 << 30:\n"
    "            digest = hashlib.sha256(open(path, 'rb').read()).hexdigest()\n"
    "            print(digest, found.st_mtime_ns, os.path.relpath(path, sys.argv[1]))\n"
)


@pytest.fixture
def dataset() -> Iterator[Dataset]:
    """A generated dataset on a file system that keeps any time and any size."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as home:
        yield make_dataset(Path(home) / "dataset")


@pytest.fixture
def jobs(
    tmp_path: Path, run_root: Path, monarch_command: Path, dataset: Dataset
) -> Iterator[Jobs]:
    """Jobs over a generated dataset."""
    ram = tmp_path / "ram"
    ram.mkdir()
    made = Jobs(monarch_command, dataset.root, run_root, ram)
    yield made
    made.kill()


def read_all(root: Path) -> list[str]:
    """A program that reads every file below a root and prints its findings."""
    return [sys.executable, "-c", READ_ALL, str(root)]


def staged_files(report: dict[str, Any]) -> int:
    """How many files lay in Tiers at the end of a job."""
    return sum(tier["files"] for tier in report["tiers"])


def plant_absurd(root: Path) -> None:
    """Put files into a dataset whose stat values no index can hold."""
    late, early = root / "late", root / "early"
    for path in (late, early):
        path.write_bytes(path.name.encode())
    subprocess.run(["touch", "-d", "2263-01-01", late], check=True)
    os.utime(early, (-AFTER_2262_S, -AFTER_2262_S))
    os.utime(root / "class-0", (AFTER_2262_S, AFTER_2262_S))
    assert late.stat().st_mtime > AFTER_2262_S - 86_400


def test_files_with_absurd_times_are_left_to_the_origin_and_the_rest_is_staged(
    jobs: Jobs, dataset: Dataset
) -> None:
    plant_absurd(dataset.root)
    plain = subprocess.run(
        read_all(dataset.root), capture_output=True, text=True, check=True
    )

    report = jobs.report(["-q"], read_all(dataset.root))
    words = jobs.line(["-q"], read_all(dataset.root))
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60)

    assert staged_files(report) >= len(dataset.paths)
    assert shown.stdout == plain.stdout, shown.stderr


def test_a_file_of_two_exbibytes_ends_no_job(jobs: Jobs, dataset: Dataset) -> None:
    vast = dataset.root / "vast"
    vast.touch()
    os.truncate(vast, 1 << 61)

    script = f"cd {dataset.root}; cat */* > /dev/null; cat */* > /dev/null"
    report = jobs.report(["-q"], ["sh", "-c", script])

    assert staged_files(report) == len(dataset.paths)


def test_an_index_of_a_dataset_with_absurd_times_is_made_and_reports_them(
    dataset: Dataset, tmp_path: Path
) -> None:
    plant_absurd(dataset.root)

    done = subprocess.run(
        [sys.executable, "-m", "monarch", "index", dataset.root, "-o", "x.index"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "2 with an invalid size, time or inode" in done.stdout


# -- few descriptors --------------------------------------------------------------


def test_many_processes_and_few_descriptors_cost_no_file_its_copy(
    jobs: Jobs, dataset: Dataset
) -> None:
    script = (
        "cd " + str(dataset.root) + "; "
        "for i in $(seq 230); do sleep 20 & done; sleep 1; "
        "cat */* > /dev/null; sleep 3; cat */* > /dev/null; kill $(jobs -p)"
    )
    file = jobs.run_root.parent / "report.json"
    options = ["-q", "--report", str(file), "--set", "fill.enabled=false"]
    words = jobs.line(options, ["bash", "-c", script])
    # A job of an unprivileged user, who cannot raise the limit.
    limit = ["prlimit", "--nofile=200:200"]
    if os.geteuid() == 0:
        limit += ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-all"]

    subprocess.run([*limit, *words], capture_output=True, timeout=60)

    report = json.loads(file.read_text())
    reasons = {row["reason"]: row["files"] for row in report["unstaged"]}
    assert reasons.get("copying them failed too often", 0) == 0
    assert report["tiers"][0]["in_service"]
    assert staged_files(report) == len(dataset.paths)
