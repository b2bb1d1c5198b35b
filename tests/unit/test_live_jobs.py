"""Running jobs by their Catalogs, the space that they share, and when it is freed."""

import fcntl
import os
from pathlib import Path

import numpy as np
import pytest

from monarch import native
from monarch.catalog.inventory import MappedRoot
from monarch.catalog.segment import OpenPolicy, TierPlace, plan_catalog
from monarch.native import ReplicaState
from monarch.tiers import SsdTier, TierSettings
from monarch.tiers.links import FreedSpace, Held
from monarch.tiers.live_jobs import LiveJob, linkable_files, live_jobs, ready_files
from monarch.units import Size
from support.segments import write_field
from support.surveys import flat_block

SIZES = (10, 0, 3000)
ROOT = MappedRoot(b"/pfs/one", (), flat_block(list(SIZES), root_ino=7))
NONE = np.zeros(0, np.uint32)


def job_at(run: Path, root: MappedRoot, ready: tuple[int, ...], tier: int = 0) -> Path:
    """A run directory with the Catalog of a job that has these Files READY."""
    run.mkdir()
    tiers = [
        TierPlace(1, b"/local/job", 77),
        TierPlace(0, os.fsencode(run / "transit"), 88),
    ]
    plan = plan_catalog([root], tiers, OpenPolicy(1, 8 << 20, 1))
    memory = np.zeros(plan.length, np.uint8)
    plan.write_into(memory, 9)
    states = memory[plan.places.states :][: 4 * len(SIZES)].view(np.uint32)
    states[list(ready)] = native.state_word(ReplicaState.READY, tier)
    (run / "catalog").write_bytes(memory.tobytes())
    (run / "lock").touch()
    return run


def test_ready_files_are_those_of_the_same_index(tmp_path: Path) -> None:
    changed = MappedRoot(b"/pfs/one", (), flat_block([10, 0, 3001], root_ino=7))
    job = LiveJob.read(job_at(tmp_path / "j.n", ROOT, (0, 2)))
    assert job is not None

    assert ready_files([job], [ROOT])[77].tolist() == [True, False, True]
    assert ready_files([job], [changed]) == {}
    assert ready_files([job], [MappedRoot(b"/pfs/two", (), ROOT.block)]) == {}


def test_files_in_the_pool_of_another_job_do_not_count(tmp_path: Path) -> None:
    job = LiveJob.read(job_at(tmp_path / "j.n", ROOT, (0,), tier=1))
    assert job is not None

    assert [tier.path for tier in job.tiers] == [Path("/local/job")]
    assert not ready_files([job], [ROOT])[77].any()


def test_the_files_of_several_jobs_are_counted_once(tmp_path: Path) -> None:
    runs = [
        job_at(tmp_path / f"{n}.n", ROOT, ready)
        for n, ready in enumerate([(0,), (0, 2)])
    ]
    jobs = [job for run in runs if (job := LiveJob.read(run))]

    assert ready_files(jobs, [ROOT])[77].sum() == 2


def test_empty_files_and_large_ones_of_many_nodes_are_not_linked() -> None:
    large = np.array([2], np.uint32)

    assert linkable_files([ROOT], large, links_large=True).tolist() == [1, 0, 1]
    assert linkable_files([ROOT], large, links_large=False).tolist() == [1, 0, 0]


@pytest.mark.parametrize("part", [0, 0.001, 0.5, 0.99])
def test_a_truncated_catalog_is_ignored(tmp_path: Path, part: float) -> None:
    run = job_at(tmp_path / "j.n", ROOT, (0,))
    os.truncate(run / "catalog", int((run / "catalog").stat().st_size * part))

    assert LiveJob.read(run) is None


def test_a_catalog_of_another_version_is_ignored(tmp_path: Path) -> None:
    run = job_at(tmp_path / "j.n", ROOT, (0,))
    write_field(run / "catalog", "seg.version", native.CONSTANTS["LAYOUT_VERSION"] + 1)

    assert LiveJob.read(run) is None


def test_only_jobs_with_an_agent_are_live(tmp_path: Path) -> None:
    runs = [job_at(tmp_path / f"{n}.n", ROOT, ()) for n in range(2)]
    with (runs[1] / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        found = live_jobs([*runs, tmp_path / "gone"])

    assert [job.name for job in found] == ["1.n"]


def tier_of(path: Path, capacity: str, free_bytes: int) -> SsdTier:
    """A Tier on a disk with so much free space."""
    size = Size.parse
    settings = TierSettings("tiers[0]", "ssd", "ssd", path, size(capacity), size("0"))
    tier = SsdTier(settings, "j.n")
    tier.resolve()
    tier.capacity_bytes = free_bytes
    return tier


def test_shared_space_counts_if_all_other_files_fit(tmp_path: Path) -> None:
    tier = tier_of(tmp_path, "auto", 100)

    assert tier.add_shared(held_bytes=50, needed_bytes=150)
    assert tier.capacity_bytes == 150


def test_shared_space_does_not_count_if_others_would_take_it(tmp_path: Path) -> None:
    tier = tier_of(tmp_path, "auto", 100)

    assert not tier.add_shared(held_bytes=50, needed_bytes=151)
    assert tier.capacity_bytes == 100


def test_shared_space_does_not_exceed_a_given_capacity(tmp_path: Path) -> None:
    tier = tier_of(tmp_path, "1KiB", 1000)

    assert tier.add_shared(held_bytes=50, needed_bytes=1050)
    assert tier.capacity_bytes == 1024


def test_files_with_names_elsewhere_are_shared(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    for name in "ab":
        (tmp_path / "one" / name).write_bytes(bytes(range(1, 101)) * 100)
    (tmp_path / "two" / "a").hardlink_to(tmp_path / "one" / "a")

    assert Held.below(tmp_path / "one") == Held(2, 20_000, 1, 10_000)
    assert Held.below(tmp_path / "gone") == Held(0, 0, 0, 0)


def test_an_inode_is_freed_with_its_last_name(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "a").write_bytes(b"x" * 10_000)
    (folders[1] / "a").hardlink_to(folders[0] / "a")
    (folders[1] / "b").write_bytes(b"x" * 5_000)
    (folders[2] / "b").hardlink_to(folders[1] / "b")
    space = FreedSpace()
    for folder in folders:
        space.note(folder)

    assert space.sums(folders[:1]) == (0, 10_000)
    assert space.sums(folders[:2]) == (10_000, 5_000)
    assert space.sums(folders) == (15_000, 0)
