"""Retained copies: `monarch list`, `monarch stage --check` and `--evict`."""

import json
import math
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monarch.tiers.retained import Manifest, Origins, read_manifest, retain_directory
from support.agents import start_agent
from support.dataset import Dataset, make_dataset

KEEP = ("--set", "retain=7d")
FILES = 32


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    """Small files, one of no bytes, and two large ones that end in mid-chunk."""
    dataset = make_dataset(tmp_path / "dataset", files=FILES - 3, large=2)
    (dataset.root / "empty").touch()
    for number, path in enumerate(dataset.paths):
        with path.open("ab") as file:  # so that each has its own size
            file.truncate(path.stat().st_size // 64 * 64 + number)
    return dataset


@pytest.fixture
def monarch(
    monarch_command: Path,
    run_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs a verb of the installed command."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    (tmp_path / "ssd").mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        line = [str(monarch_command), *words]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def stage(
    monarch: Callable[..., subprocess.CompletedProcess[str]],
    data: Dataset,
    tmp_path: Path,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs `monarch stage` on the dataset and a Tier."""
    tier = f"ssd:256MiB:{tmp_path / 'ssd'}"
    return lambda *more: monarch(
        "stage", "--data", str(data.root), "--tier", tier, *more
    )


def retained(tmp_path: Path) -> Path:
    """The only retained directory."""
    [found] = (tmp_path / "ssd").glob("monarch-*/retained-*")
    return found


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The printed text, whatever the width of the lines."""
    return " ".join(done.stdout.split())


def change(replica: Path) -> None:
    """Change a byte in the middle of a copy."""
    replica.chmod(0o600)
    with replica.open("r+b") as file:
        file.seek(replica.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def replica_of(tmp_path: Path, size: int) -> Path:
    """The copy of a file of this size."""
    return next(p for p in retained(tmp_path).iterdir() if p.stat().st_size == size)


def test_a_check_after_staging_finds_everything_right(stage, data, tmp_path):
    assert stage(*KEEP).returncode == 0
    before = sorted(os.listdir(retained(tmp_path)))

    done = stage("--check")

    assert (done.returncode, done.stderr) == (0, "")
    text = f"{data.root}: {FILES} of {FILES} files are staged and verified ("
    assert said(done).startswith(text)
    assert sorted(os.listdir(retained(tmp_path))) == before


def test_a_check_names_unstaged_files(stage, data):
    """Complaint C9: a warm-up says that it is done, and is not."""
    done = stage("--check")

    assert done.returncode == 1
    assert f"0 of {FILES} files are staged and verified" in said(done)
    assert f"not staged: {FILES} files, " in said(done)
    assert f"{min(data.paths)}" in said(done)


@pytest.mark.parametrize("large", [False, True])
def test_a_check_finds_a_copy_with_a_wrong_byte(stage, data, tmp_path, large):
    assert stage(*KEEP).returncode == 0
    paths = sorted(data.paths, key=lambda path: path.stat().st_size)
    victim = paths[-1] if large else paths[3]
    change(replica_of(tmp_path, victim.stat().st_size))

    done = stage("--check")

    assert done.returncode == 1
    assert f"{FILES - 1} of {FILES} files are staged and verified" in said(done)
    assert f"wrong: {victim}: its copy has another checksum" in said(done)


def test_a_check_finds_a_missing_copy_and_a_new_file(stage, data, tmp_path):
    assert stage(*KEEP).returncode == 0
    paths = sorted(data.paths, key=lambda path: path.stat().st_size)
    replica_of(tmp_path, paths[-1].stat().st_size).unlink()
    (data.root / "new").write_bytes(b"new")
    os.utime(paths[0])

    done = stage("--check")

    assert done.returncode == 1
    assert f"{FILES - 2} of {FILES + 1} files are staged and verified" in said(done)
    assert f"wrong: {paths[-1]}: its copy is missing" in said(done)
    assert "not staged: 2 files, " in said(done)
    assert f"{data.root}/new" in said(done)
    assert "1 copy of files that have changed since, or no longer exist" in said(done)


def test_retained_copies_are_listed(stage, monarch, data, tmp_path):
    """Finding 10 of first use: retained copies were listed by no verb."""
    assert monarch("list", str(tmp_path / "ssd")).stdout == (
        "nothing is retained on this node\n"
    )
    assert stage(*KEEP).returncode == 0

    text = said(monarch("list", str(tmp_path / "ssd")))
    row = json.loads(monarch("list", "--json", str(tmp_path / "ssd")).stdout)

    assert text.startswith(f"{data.root} tier ssd: {FILES} files, ")
    assert re.search(rf"(6 d 23|7 d 00) h left {retained(tmp_path)}$", text)
    size = sum(path.stat().st_size for path in data.paths)
    assert row == {
        "job": None,
        "datasets": [str(data.root)],
        "tier": "ssd",
        "path": str(retained(tmp_path)),
        "files": FILES,
        "bytes": size,
        "shared_bytes": 0,
        "stored_bytes": size,
        "age_s": pytest.approx(30, abs=30),
        "expires_s": pytest.approx(7 * 86400, abs=60),
        "missing": 0,
        "state": "retained",
    }


def test_copies_in_a_configured_tier_are_listed(stage, monarch, tmp_path):
    assert stage(*KEEP).returncode == 0

    done = monarch("list", "--tier", f"ssd:1GiB:{tmp_path / 'ssd'}")

    assert f"{FILES} files" in done.stdout


def test_damaged_and_incomplete_copies_are_listed_as_such(stage, monarch, tmp_path):
    assert stage(*KEEP).returncode == 0
    place = retained(tmp_path)

    def state() -> tuple[str, int]:
        row = json.loads(monarch("list", "--json", str(tmp_path / "ssd")).stdout)
        return row["state"], row["missing"]

    next(path for path in place.iterdir() if path.suffix != ".npz").unlink()
    assert state() == ("incomplete", 1)
    (place / "manifest.npz").write_bytes(b"half a manifest")
    assert state() == ("damaged", 0)


def test_listing_a_path_that_is_no_directory_is_refused(monarch):
    done = monarch("list", "/nowhere")

    assert done.returncode == 2
    assert done.stderr == "monarch: /nowhere: no such directory\n"


def test_copies_are_evicted_once(stage, monarch, data, tmp_path):
    """Complaint C15: no command shows or clears what is stored."""
    assert stage(*KEEP).returncode == 0

    done, again = stage("--evict"), stage("--evict")

    assert done.returncode == again.returncode == 0
    assert done.stdout.startswith(f"evicted {data.root} ({FILES} files, ")
    text = f"nothing of {data.root} is retained in these tiers\n"
    assert again.stdout == text
    assert list((tmp_path / "ssd").glob("monarch-*/*")) == []
    assert all(path.exists() for path in data.paths)


def test_quiet_reports_by_the_exit_status_alone(stage):
    assert stage("--check", "-q").returncode == 1
    assert stage(*KEEP, "-q").returncode == 0
    checked, evicted = stage("--check", "-q"), stage("--evict", "-q")

    assert checked.returncode == evicted.returncode == 0
    assert checked.stdout == evicted.stdout == ""


def test_another_dataset_is_not_evicted(stage, monarch, tmp_path):
    assert stage(*KEEP).returncode == 0
    (tmp_path / "other").mkdir()

    tier = f"ssd:256MiB:{tmp_path / 'ssd'}"
    done = monarch(
        "stage", "--evict", "--data", str(tmp_path / "other"), "--tier", tier
    )

    assert "is retained" in done.stdout
    assert retained(tmp_path).is_dir()


def test_copies_adopted_by_a_job_are_its_own(stage, data, run_root, tmp_path):
    assert stage(*KEEP).returncode == 0
    tier = f"ssd:256MiB:{tmp_path / 'ssd'}"
    options = ["--data", str(data.root), "--tier", tier, *KEEP]
    agent = start_agent(run_root / "job.n", options)
    agent.listen("ready")
    agent.await_staged(FILES)

    evicted, checked = stage("--evict"), stage("--check")

    assert evicted.returncode == checked.returncode == 1
    assert evicted.stderr == "monarch: in use by job, which keeps its copies\n"
    assert "in use by job: see `monarch status`" in said(checked)
    agent.stop()
    assert stage("--check").returncode == 0


@pytest.mark.parametrize(
    "options", [("--check", "--evict"), ("--check", "--mpi"), ("--evict", "--mpi")]
)
def test_contradictory_options_are_refused(stage, options):
    done = stage(*options)

    assert done.returncode == 2
    assert "use --check, --evict or --mpi, not several" in done.stderr


def test_a_node_checks_the_share_that_it_was_to_keep(stage, data, tmp_path):
    assert stage(*KEEP).returncode == 0
    place = retained(tmp_path)
    manifest = read_manifest(place)
    assert manifest is not None
    origins, kept = manifest.origins, 5
    assert origins is not None

    def pretend(left_files: int = 0) -> None:
        """Let the copies be those of one of several nodes."""
        first = manifest.first[: kept + 1]
        whole = Manifest(
            manifest.names[:kept],
            manifest.sizes[:kept],
            first,
            manifest.digests[: int(first[-1])],
            math.inf,
            replace(origins, nodes=4, kept_files=kept, left_files=left_files),
        )
        os.rename(place, tmp_path / "ssd" / "aside")
        name = place.name.removeprefix("retained-")
        retain_directory(tmp_path / "ssd" / "aside", place.parent, name, whole)

    pretend()
    done = stage("--check")
    assert done.returncode == 0
    assert f"{kept} of {FILES} files are staged and verified" in said(done)
    assert "the share of this node of 4 nodes" in said(done)

    pretend(left_files=2)
    done = stage("--check")
    assert done.returncode == 1
    assert "complete on no node, without space: 2 files" in said(done)

    (data.root / "new").touch()  # the share is that of another Catalog
    done = stage("--check")
    assert done.returncode == 1
    assert f"not staged: {FILES + 1 - kept} files" in said(done)


def test_copies_retained_by_an_older_version_are_read(tmp_path):
    folder = tmp_path / "retained-d"
    folder.mkdir()
    np.savez(
        folder / "manifest.npz",
        schema=1,
        names=np.array([b"0" * 32]),
        sizes=np.array([5], np.uint64),
        first=np.array([0, 1], np.uint64),
        digests=np.array([7], np.uint64),
        expires_s=math.inf,
    )

    manifest = read_manifest(folder)

    assert manifest is not None
    assert manifest.origins is None


def test_origins_in_manifests_are_validated():
    origins = Origins(("/a", "/b\udcff"), "ram", 1.0, 1 << 63, 3, 1, 3, 0)

    assert Origins.read(origins.text()) == origins
    for wrong in ("", "{}", "[]", '{"roots": []}', '{"roots": 3, "tier": 2}'):
        with pytest.raises(ValueError):
            Origins.read(wrong)
