"""The Tier of the transit pool: a directory in the run directory, of modest size."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monarch.agent.setup import Setup, without_pool
from monarch.config import Config
from monarch.tiers import (
    Device,
    RamTier,
    divide,
    give_to_pool,
    open_pool,
    pool_bytes,
    wanted_pool,
)
from monarch.tiers.leftovers import collect
from monarch.tiers.memory import Memory
from monarch.tiers.pool import PoolTier
from monarch.units import Size

MIB = 1 << 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory below a directory of the user."""
    (tmp_path / "job.node").mkdir(mode=0o700)
    return tmp_path / "job.node"


def test_the_pool_takes_its_configured_size_or_a_part_of_the_free_space(run):
    asked = open_pool(run, 256 * MIB)
    tier = PoolTier(asked.settings, run, Memory(8192 * MIB, 0))

    assert tier.wanted_bytes(Device(None, None, 1)) == 256 * MIB
    assert tier.wanted_bytes(Device(64 * MIB, 64 * MIB, 1)) == 8 * MIB
    tight = PoolTier(asked.settings, run, Memory(512 * MIB, 500 * MIB))
    assert tight.wanted_bytes(Device(None, None, 1)) == 12 * MIB // 8


@pytest.mark.parametrize(
    ("wanted", "ram", "pool", "left"),
    [
        ("auto", [800 * MIB], 100 * MIB, [700 * MIB]),
        ("auto", [8192 * MIB], 256 * MIB, [7936 * MIB]),
        ("auto", [40 * MIB, 760 * MIB], 100 * MIB, [0, 700 * MIB]),
        ("auto", [], 256 * MIB, []),
        ("60MiB", [800 * MIB], 60 * MIB, [740 * MIB]),
        ("60MiB", [50 * MIB, 20 * MIB], 60 * MIB, [0, 10 * MIB]),
        ("60MiB", [50 * MIB], 50 * MIB, [0]),
        ("60MiB", [], 60 * MIB, []),
        ("0", [50 * MIB], 0, [50 * MIB]),
    ],
)
def test_pool_and_ram_tiers_together_have_the_configured_size(wanted, ram, pool, left):
    found = pool_bytes(Size.parse(wanted), ram)
    parts = divide(found, ram)

    assert found == pool
    assert [room - part for room, part in zip(ram, parts, strict=True)] == left


def test_room_of_the_pool_is_not_returned_to_a_tier_with_retained_files(tmp_path):
    settings = open_pool(tmp_path, 0).settings
    settings = replace(settings, path=tmp_path, capacity=Size.parse("8MiB"))
    tier = RamTier(settings, "j.n", Memory(1 << 40, 0))
    tier.resolve()

    give_to_pool(wanted_pool(Size.parse("auto"), [tier]), [tier])
    tier.add_retained(3 * MIB)

    assert tier.capacity_bytes == tier.granted_bytes == 7 * MIB


def test_pool_that_is_not_used_returns_its_room_to_the_tiers_that_are_left(
    tmp_path: Path,
) -> None:
    settings = open_pool(tmp_path, 0).settings
    settings = replace(settings, path=tmp_path, capacity=Size.parse("8MiB"))
    lost, kept = (RamTier(settings, f"{n}.n", Memory(1 << 40, 0)) for n in "jk")
    for tier in (lost, kept):
        tier.resolve()
    give_to_pool(10 * MIB, [lost, kept])
    assert (lost.capacity_bytes, kept.capacity_bytes) == (0, 6 * MIB)
    unused: Any = None
    setup = Setup(Config(), "", (), (), (kept,), True, 0, unused, pool_at_once=True)

    found = without_pool(setup)

    assert not found.pool_at_once
    assert kept.capacity_bytes == kept.granted_bytes == 8 * MIB


def test_a_pool_larger_than_the_machine_is_made_smaller_and_not_refused(run):
    tier = open_pool(run, 1 << 60)

    tier.resolve()

    assert 0 < tier.capacity_bytes < 1 << 60


def test_the_pool_is_in_the_run_directory_and_needs_no_lock_of_its_own(run):
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


def test_a_dead_run_directory_with_a_pool_is_recognised(run):
    tier = open_pool(run, MIB)
    tier.prepare(locked=run)
    (tier.directory / ("a" * 32)).write_bytes(b"x")
    (run / "start").touch()
    (run / "lock").touch()
    run.parent.chmod(0o700)

    assert collect(run.parent, now_s=2e9) == [run]
    assert not run.exists()
