"""The Tier of the transit pool: a directory in the run directory, of modest size."""

import os
from pathlib import Path

import pytest

from monarch.tiers import Device, open_pool
from monarch.tiers.kinds import PoolTier
from monarch.tiers.leftovers import collect
from monarch.tiers.memory import Memory

MIB = 1 << 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory below somebody's own directory."""
    (tmp_path / "job.node").mkdir(mode=0o700)
    return tmp_path / "job.node"


def test_it_takes_what_it_is_given_or_one_part_of_what_is_free(run):
    asked = open_pool(run, 256 * MIB)
    tier = PoolTier(asked.settings, run, Memory(8192 * MIB, 0))

    assert tier.wanted_bytes(Device(None, None, 1)) == 256 * MIB
    assert tier.wanted_bytes(Device(64 * MIB, 64 * MIB, 1)) == 8 * MIB
    tight = PoolTier(asked.settings, run, Memory(512 * MIB, 500 * MIB))
    assert tight.wanted_bytes(Device(None, None, 1)) == 12 * MIB // 8


def test_a_pool_larger_than_the_machine_is_made_smaller_and_not_refused(run):
    tier = open_pool(run, 1 << 60)

    tier.resolve()

    assert 0 < tier.capacity_bytes < 1 << 60


def test_it_lies_in_the_run_directory_and_needs_no_lock_of_its_own(run):
    run.parent.chmod(0o755)
    tier = open_pool(run, MIB)
    (run / "transit").mkdir()
    (run / "transit" / "leftover").write_bytes(b"of an agent that was killed")

    tier.prepare(locked=run)

    assert tier.directory == run / "transit"
    assert os.listdir(run) == ["transit"]
    assert os.listdir(tier.directory) == []
    assert tier.directory.stat().st_mode & 0o777 == 0o700
    tier.remove(locked=run)
    assert run.is_dir()
    assert os.listdir(run) == []


def test_a_dead_run_directory_with_a_pool_is_recognised_as_ours(run):
    tier = open_pool(run, MIB)
    tier.prepare(locked=run)
    (tier.directory / ("a" * 32)).write_bytes(b"x")
    (run / "start").touch()
    (run / "lock").touch()
    run.parent.chmod(0o700)

    assert collect(run.parent, now_s=2e9) == [run]
    assert not run.exists()
