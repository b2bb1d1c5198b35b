"""`monarch stage` on one node, as people use it, and the jobs after it."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.commands import python_without
from support.countfs import CountFs
from support.dataset import Dataset, make_dataset

FILES = 50
REQUEST_BYTES = 1 << 20
PROGRESS = re.compile(r"monarch: staging: [\d.]+% of ")
"""What a slow machine sees besides."""


class Command:
    """The installed `monarch`, with a Tier and run directories of its own."""

    def __init__(self, command: Path, tier: Path) -> None:
        self.command = command
        self.tier = tier
        tier.mkdir()

    def words(self, verb: str, data: Path, *options: str) -> list[str]:
        """Return a command line."""
        tier = ["--tier", f"ssd:256MiB:{self.tier}"]
        return [str(self.command), verb, "--data", str(data), *tier, *options]

    def stage(self, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """Stage a dataset and return what came of it."""
        words = self.words("stage", data, *options)
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def run(self, data: Path, program: Sequence[str], *options: str) -> str:
        """Return the output of a program in a later job."""
        words = self.words("run", data, *options, "--", *program)
        return subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=True
        ).stdout


@pytest.fixture
def command(monarch_command: Path, run_root: Path, tmp_path: Path) -> Command:
    return Command(monarch_command, tmp_path / "ssd")


@pytest.fixture
def view(
    mount_counted: Callable[..., CountFs], tmp_path: Path
) -> tuple[CountFs, Dataset]:
    dataset = make_dataset(tmp_path / "dataset", files=FILES, large=2)
    return mount_counted(dataset.root), dataset


KEEP = ("--set", "retain=node")
# Otherwise a large file opened before its checksum is compared reads the origin.
WAIT = ("--set", "cold_open.mode=wait")


def test_a_later_job_adopts_staged_files_and_does_not_read_the_origin(command, view):
    mount, dataset = view

    done = command.stage(mount.root, *KEEP)

    told = [line for line in done.stderr.splitlines() if not PROGRESS.match(line)]
    assert (done.returncode, told) == (0, [])
    assert done.stdout.startswith("staged 52 files, ")
    assert mount.counts().read_bytes == dataset.size_bytes
    mount.reset()
    names = [str(mount.root / name) for name in sorted(dataset.digests)]
    found = command.run(mount.root, ["sha256sum", *names], *KEEP, *WAIT)
    assert mount.counts().read_bytes == mount.counts().opens == 0
    digests = [line.split()[0] for line in found.splitlines()]
    assert digests == [dataset.digests[name] for name in sorted(dataset.digests)]


def test_large_files_are_read_in_large_requests(command, view):
    mount, dataset = view

    assert command.stage(mount.root, *KEEP).returncode == 0

    counts = mount.counts()
    assert counts.opens == len(dataset.digests)
    assert counts.read_bytes == dataset.size_bytes
    # The end of each file is requested, too.
    assert counts.reads <= 2 * counts.opens + dataset.size_bytes / REQUEST_BYTES


def test_staging_that_would_not_outlive_the_command_is_refused(command, dataset):
    done = command.stage(dataset.root)

    assert done.returncode == 2
    assert done.stderr.startswith("monarch: retain: job would remove the staged files")
    assert "--set retain=node" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--set", "retain=soon"), "retain"),
        (("--data", "/nowhere", *KEEP), "/nowhere does not exist"),
        (("extra", *KEEP), "unexpected extra argument"),
    ],
)
def test_bad_input_is_one_line_and_2(command, dataset, options, line):
    done = command.stage(dataset.root, *options)

    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_files_without_room_are_reported_with_exit_status_1(command, dataset):
    done = command.stage(dataset.root, *KEEP, "--set", "tiers[0].capacity=4MiB")

    assert done.returncode == 1
    assert done.stdout.startswith("staged 40 of 41 files, ")
    assert "1 file, 8.0 MiB: no tier had room for them" in done.stdout


def test_missing_mpi4py_is_one_line_with_the_install_command(
    command, dataset, monkeypatch
):
    python = python_without("mpi4py", dataset.root.parent)
    monkeypatch.setenv("MONARCH_STAGING_PYTHON", python)

    done = command.stage(dataset.root, "--mpi", *KEEP)

    assert done.returncode == 2
    assert "pip install 'monarch-staging[mpi]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unreadable_file_is_named_with_exit_status_1(command, view):
    mount, dataset = view
    victim = sorted(dataset.digests)[7]
    mount.set(read_eio=victim)

    done = command.stage(mount.root, *KEEP)

    assert done.returncode == 1
    assert "not staged: 1 file, " in done.stdout
    assert ": copying them failed too often" in done.stdout
    assert f"{mount.root / victim}: Input/output error" in done.stdout


def test_a_signal_ends_staging_and_keeps_staged_files(command, view, run_root):
    mount, dataset = view
    mount.set(read_us=20_000)
    words = command.words("stage", mount.root, *KEEP)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await_replicas(command.tier, 5)

    process.send_signal(signal.SIGTERM)

    _, told = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"stopped; the files staged so far are retained" in told
    kept = len(list(command.tier.glob("monarch-*/retained-*/*"))) - 1
    assert 5 <= kept < len(dataset.digests)
    assert os.listdir(run_root) == []
    mount.set(read_us=0)
    done = command.stage(mount.root, *KEEP)
    assert f"{kept} files adopted from an earlier job" in done.stdout


def test_leftovers_of_a_killed_command_are_removed(command, view, run_root):
    mount, dataset = view
    mount.set(read_us=20_000)
    words = command.words("stage", mount.root, *KEEP)
    process = subprocess.Popen(words)
    await_replicas(command.tier, 5)
    process.kill()
    process.wait()
    mount.set(read_us=0)

    assert command.stage(mount.root, *KEEP).returncode == 0

    [home] = command.tier.iterdir()
    [kept] = home.iterdir()
    assert len(list(kept.iterdir())) == len(dataset.digests) + 1
    assert os.listdir(run_root) == []


def await_replicas(tier: Path, count: int) -> None:
    """Wait until so many Replicas lie in a Tier."""
    while len(list(tier.glob("monarch-*/stage-*/*/*"))) < count:
        time.sleep(0.01)
