"""Tiers: private directories, capacities, and separate places."""

import os
import threading
import time
from pathlib import Path

import pytest

from monarch.errors import UsageError
from monarch.tiers import Device, RamTier, SsdTier, TierSettings, check_places, measure
from monarch.tiers.directory_lock import Unsafe, is_locked, make_private, take_lock
from monarch.tiers.leftovers import collect
from monarch.tiers.memory import Memory, read_memory, tightest
from monarch.units import Size

GIB = 1 << 30


def settings(path, capacity="auto", *, name="ram", kind="ram", headroom="0"):
    return TierSettings(
        key="tiers[0]",
        name=name,
        kind=kind,
        path=Path(path),
        capacity=Size.parse(capacity),
        headroom=Size.parse(headroom),
    )


# -- directories --------------------------------------------------------------------


def test_a_directory_is_made_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        make_private(tmp_path / "d")
    finally:
        os.umask(before)

    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700


def test_a_link_in_our_place_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "d").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Unsafe, match="is a link, or not a directory"):
        make_private(tmp_path / "d")


def test_a_directory_that_others_can_enter_is_refused(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o755)

    with pytest.raises(Unsafe, match=r"not private: owner .* mode 0755"):
        make_private(tmp_path / "d")


@pytest.mark.root
def test_a_directory_of_another_user_is_refused(tmp_path):
    (tmp_path / "d").mkdir(mode=0o700)
    os.chown(tmp_path / "d", 12345, -1)

    with pytest.raises(Unsafe, match="owner 12345"):
        make_private(tmp_path / "d")


def test_a_lock_is_held_once_and_free_when_its_holder_has_ended(tmp_path):
    fd = take_lock(tmp_path)
    assert fd is not None
    assert take_lock(tmp_path) is None
    assert is_locked(tmp_path)

    os.close(fd)

    assert not is_locked(tmp_path)


# -- capacities ---------------------------------------------------------------------


def test_ram_takes_a_quarter_of_the_limit_and_half_of_what_is_free(tmp_path):
    roomy = RamTier(settings(tmp_path), "j.n", Memory(16 * GIB, 1 * GIB))
    tight = RamTier(settings(tmp_path), "j.n", Memory(16 * GIB, 14 * GIB))
    device = Device(64 * GIB, 64 * GIB, dev=0)

    assert roomy.wanted_bytes(device) == 4 * GIB
    assert tight.wanted_bytes(device) == 1 * GIB


def test_a_share_of_ram_is_one_of_the_memory_limit_not_of_the_tmpfs(tmp_path):
    tier = RamTier(settings(tmp_path, "50%"), "j.n", Memory(8 * GIB, 0))

    assert tier.wanted_bytes(Device(64 * GIB, 64 * GIB, dev=0)) == 4 * GIB


def test_shared_segments_count_in_a_share_of_memory_but_not_in_a_size(tmp_path):
    memory = Memory(8 * GIB, 0)
    share = RamTier(settings(tmp_path, "10%"), "j.n", memory)
    size = RamTier(settings(tmp_path, "1MiB"), "j.n", memory)
    for tier in (share, size):
        tier.resolve()
        tier.subtract(4096)

    assert share.capacity_bytes == GIB * 8 // 10 - 4096
    assert size.capacity_bytes == 1 << 20


def test_a_share_of_an_ssd_is_one_of_its_file_system(tmp_path):
    tier = SsdTier(settings(tmp_path, "80%", kind="ssd"), "j.n")

    assert tier.wanted_bytes(Device(100 * GIB, 60 * GIB, dev=0)) == 80 * GIB


def test_zeros_of_statvfs_mean_unknown_and_not_full(tmp_path, monkeypatch):
    zeros = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: zeros)

    device = measure(tmp_path)
    given = SsdTier(settings(tmp_path, "1GiB", kind="ssd"), "j.n")
    share = SsdTier(settings(tmp_path, "80%", kind="ssd"), "j.n")

    assert (device.total_bytes, device.free_bytes) == (None, None)
    given.resolve()
    assert given.capacity_bytes == GIB
    with pytest.raises(UsageError, match=r"tiers\[0\].capacity: .* in bytes"):
        share.resolve()


def test_a_capacity_larger_than_the_device_is_a_usage_error(tmp_path):
    tier = SsdTier(settings(tmp_path, "4096PiB", kind="ssd"), "j.n")

    with pytest.raises(UsageError, match=r"tiers\[0\].capacity: 4096PiB is larger"):
        tier.resolve()


def test_headroom_stays_free(tmp_path):
    total, free = measure(tmp_path).total_bytes, measure(tmp_path).free_bytes
    tier = SsdTier(settings(tmp_path, "100%", kind="ssd", headroom="10%"), "j.n")

    tier.resolve()

    assert total is not None
    assert free is not None
    assert tier.capacity_bytes <= max(0, free - total // 10 + GIB)


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_tier_path_must_be_a_directory(tmp_path, kind):
    path = tmp_path / "tier"
    if kind == "file":
        path.touch()

    with pytest.raises(UsageError, match=r"tiers\[0\].path: .*/tier (does|is) not"):
        SsdTier(settings(path, "1MiB", kind="ssd"), "j.n").resolve()


def test_a_tier_is_prepared_private_and_removed_whole(tmp_path):
    tier = SsdTier(settings(tmp_path, "1MiB", name="ssd", kind="ssd"), "j.n")
    tier.prepare(locked=tmp_path / "run")
    (tier.directory / "x").touch()

    assert tier.directory == tmp_path / f"monarch-{os.geteuid()}" / "j.n" / "ssd"
    assert is_locked(tier.job_directory)

    tier.remove(locked=tmp_path / "run")
    assert list(tier.home.iterdir()) == []


def test_a_job_directory_in_use_is_refused(tmp_path):
    first = SsdTier(settings(tmp_path, "1MiB", kind="ssd"), "j.n")
    first.prepare(locked=tmp_path / "run")

    second = SsdTier(settings(tmp_path, "1MiB", kind="ssd"), "j.n")
    with pytest.raises(UsageError, match="in use by another agent"):
        second.prepare(locked=tmp_path)

    second.remove(locked=tmp_path)
    assert first.directory.is_dir()
    first.remove(locked=tmp_path)


def test_collectors_of_leftovers_do_not_keep_a_tier_from_its_directory(tmp_path):
    tier = SsdTier(settings(tmp_path, "1MiB", kind="ssd"), "j.n")
    make_private(tier.home)
    ended = threading.Event()

    def collect_always():
        while not ended.is_set():
            collect(tier.home, time.time())

    collectors = [threading.Thread(target=collect_always) for _ in range(2)]
    for collector in collectors:
        collector.start()
    try:
        for _ in range(50):
            tier.prepare(locked=tmp_path / "run")
            assert tier.directory.is_dir()
            tier.remove(locked=tmp_path / "run")
    finally:
        ended.set()
        for collector in collectors:
            collector.join()


# -- places -------------------------------------------------------------------------


def ssd(path, name="ssd", job="j.n"):
    return SsdTier(settings(path, "1MiB", name=name, kind="ssd"), job)


@pytest.fixture
def places(tmp_path):
    for name in ("dataset/tier", "tier/dataset", "other"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_a_tier_inside_a_dataset_is_refused(places):
    with pytest.raises(UsageError, match=r"tiers\[0\].path: .* inside the dataset"):
        check_places({"d": places / "dataset"}, [ssd(places / "dataset" / "tier")])


def test_a_dataset_inside_a_tier_is_refused(places):
    with pytest.raises(UsageError, match=r"d: .*/tier/dataset is inside tier 'ssd'"):
        check_places({"d": places / "tier" / "dataset"}, [ssd(places / "tier")])


def test_a_dataset_may_share_dev_shm_with_a_tier(places):
    places.chmod(0o1777)

    check_places({"d": places / "dataset"}, [ssd(places)])


def test_two_tiers_in_one_directory_are_refused_even_through_a_link(places):
    (places / "link").symlink_to(places / "other")
    tiers = [ssd(places / "other", "a"), ssd(places / "link", "b")]

    with pytest.raises(UsageError, match="is already the directory of tier 'a'"):
        check_places({"d": places / "dataset"}, tiers)


def test_a_dataset_must_be_a_directory_that_is_there(places):
    (places / "file").touch()

    with pytest.raises(UsageError, match=r"k: .*/none does not exist"):
        check_places({"k": places / "none"}, [])
    with pytest.raises(UsageError, match=r"k: .*/file is not a directory"):
        check_places({"k": places / "file"}, [])


# -- memory -------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path):
    """A root with the /proc and /sys of a machine of 64 GiB, 60 of them available."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        f"MemTotal: {64 << 20} kB\nMemFree: {1 << 20} kB\nMemAvailable: {60 << 20} kB\n"
    )
    return tmp_path


def cgroup(machine, line, files):
    (machine / "proc/self/cgroup").write_text(line + "\n")
    for name, text in files.items():
        path = machine / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_without_a_limit_the_machine_is_the_limit(machine):
    cgroup(machine, "0::/user", {"user/memory.max": "max", "user/memory.current": 5})

    assert read_memory(machine) == [Memory(64 * GIB, 4 * GIB)]


def test_a_v2_limit_counts_what_the_kernel_cannot_reclaim(machine):
    files = {
        "job/memory.max": 8 * GIB,
        "job/memory.current": 6 * GIB,
        "job/memory.stat": f"anon 1\ninactive_file {3 * GIB}\nactive_file {GIB}",
    }
    cgroup(machine, "0::/job", files)

    assert tightest(read_memory(machine)) == Memory(8 * GIB, 2 * GIB)


def test_a_limit_of_an_ancestor_holds_too(machine):
    files = {
        "slurm/memory.max": 8 * GIB,
        "slurm/memory.current": 7 * GIB,
        "slurm/step/memory.max": "max",
        "slurm/step/memory.current": GIB,
    }
    cgroup(machine, "0::/slurm/step", files)

    assert tightest(read_memory(machine)) == Memory(8 * GIB, 7 * GIB)


def test_a_v1_limit_is_read_from_the_memory_hierarchy(machine):
    files = {
        "memory/job/memory.limit_in_bytes": 4 * GIB,
        "memory/job/memory.usage_in_bytes": 3 * GIB,
        "memory/job/memory.stat": f"total_inactive_file {GIB}\ntotal_active_file 0",
        "memory/memory.limit_in_bytes": 9223372036854771712,
        "memory/memory.usage_in_bytes": 3 * GIB,
    }
    cgroup(machine, "5:cpu:/job\n4:memory:/job\n0::/", files)

    assert tightest(read_memory(machine)) == Memory(4 * GIB, 2 * GIB)


def test_this_machine_has_memory():
    limit = tightest(read_memory())

    assert 0 < limit.free_bytes < limit.limit_bytes
