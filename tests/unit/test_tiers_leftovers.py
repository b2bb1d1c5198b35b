"""Leftovers of dead jobs: collected if no process holds them, adopted only if whole."""

import math
import os
import time

import numpy as np
import pytest

from monarch.agent.control import HINT_PREFIX
from monarch.tiers.directory_lock import take_lock
from monarch.tiers.leftovers import collect
from monarch.tiers.retained import (
    MANIFEST,
    Manifest,
    claim,
    namespace_digest,
    read_manifest,
    retain_directory,
)

NAME = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32


@pytest.fixture
def home(tmp_path):
    path = tmp_path / f"monarch-{os.geteuid()}"
    path.mkdir(mode=0o700)
    return path


def job(home, name, *files, age_s=3600.0):
    directory = home / name
    directory.mkdir(mode=0o700)
    for file in files:
        (directory / file).touch()
    os.utime(directory, (time.time() - age_s,) * 2)
    return directory


def manifest(expires_s=math.inf):
    return Manifest(
        names=np.array([NAME], "S32"),
        sizes=np.array([3], np.uint64),
        first=np.array([0, 1], np.uint64),
        digests=np.array([7], np.uint64),
        expires_s=expires_s,
    )


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


def test_a_dead_job_is_removed_and_a_living_one_stays(home):
    job(home, "dead.n", "lock", "catalog")
    living = job(home, "living.n", "lock")
    fd = take_lock(living)
    assert fd is not None

    removed = collect(home, time.time())

    assert [path.name for path in removed] == ["dead.n"]
    assert names(home) == ["living.n"]
    os.close(fd)


def test_a_job_whose_launcher_is_starting_stays(home):
    starting = job(home, "starting.n", "lock", "start")
    fd = take_lock(starting, "start")
    assert fd is not None

    assert collect(home, time.time()) == []
    os.close(fd)


def test_a_directory_without_a_lock_stays_only_while_it_is_young(home):
    job(home, "young.n", age_s=0)
    job(home, "old.n")

    assert [path.name for path in collect(home, time.time())] == ["old.n"]


def test_leftovers_of_a_killed_collector_are_removed(home):
    job(home, "dead-0123456789ab", "catalog", age_s=0)

    collect(home, time.time())

    assert names(home) == []


def test_leftovers_of_a_killed_collector_are_removed_from_any_directory(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    doomed = job(home, "dead-0123456789ab", "catalog", age_s=0)
    job(home, "dead-ba9876543210", "catalog", "thesis.txt")

    assert collect(home, time.time()) == [doomed]
    assert names(home) == ["dead-ba9876543210"]


def test_links_and_homes_of_others_are_left_alone(home, tmp_path):
    (tmp_path / "precious").mkdir()
    (home / "link.n").symlink_to(tmp_path / "precious")

    assert collect(home, time.time()) == []
    home.chmod(0o755)
    job(home, "dead.n", "lock")
    assert collect(home, time.time()) == []


def test_only_run_directories_are_collected_in_a_shared_directory(
    tmp_path,
):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    job(home, "dead.n", "start", "lock", "agent.log", "catalog", f"{HINT_PREFIX}1")
    job(home, "documents", "thesis.txt")
    job(home, "empty.n")
    job(home, "locked", "lock", "thesis.txt")
    job(home, "started", "start", "thesis.txt")
    job(home, "retained-memories", "photo")
    job(home, "dead-poets", "poem")

    assert [path.name for path in collect(home, time.time())] == ["dead.n"]
    assert names(home) == [
        "dead-poets",
        "documents",
        "empty.n",
        "locked",
        "retained-memories",
        "started",
    ]


def test_retained_replicas_are_claimed_by_one_job_with_all_else_removed(home):
    first = job(home, "first", NAME, OTHER, ".monarch-temporary")
    retain_directory(first, home, "d", manifest())
    (home / "retained-d" / "planted").mkdir()
    winner, loser = job(home, "winner"), job(home, "loser")

    claimed = claim(winner, home, "d")

    assert claimed is not None
    assert claimed.names.tolist() == [NAME.encode()]
    assert claimed.digests.tolist() == [7]
    assert names(winner) == [NAME]
    assert claim(loser, home, "d") is None


def test_a_later_retained_tier_replaces_an_earlier_one(home):
    retain_directory(job(home, "first", OTHER), home, "d", manifest())
    retain_directory(job(home, "second", NAME), home, "d", manifest())

    assert names(home / "retained-d") == [NAME, MANIFEST]


@pytest.mark.parametrize("harm", ["missing", "cut", "flipped", "not a zip"])
def test_without_a_whole_manifest_nothing_is_adopted(home, harm):
    retain_directory(job(home, "first", NAME), home, "d", manifest())
    path = home / "retained-d" / MANIFEST
    content = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "flipped":
        content[content.index(NAME[:8].encode())] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(b"rubbish")
    mine = job(home, "mine")

    assert claim(mine, home, "d") is None
    assert names(mine) == []


def test_an_inconsistent_manifest_is_refused(home):
    wrong = Manifest(
        names=np.array([NAME], "S32"),
        sizes=np.array([3, 4], np.uint64),
        first=np.array([0, 1], np.uint64),
        digests=np.array([7], np.uint64),
    )
    retain_directory(job(home, "first", NAME), home, "d", wrong)

    assert read_manifest(home / "retained-d") is None


def test_retained_tiers_are_collected_when_they_have_expired(home):
    now = time.time()
    retain_directory(job(home, "a", NAME), home, "short", manifest(now - 1))
    retain_directory(job(home, "b", NAME), home, "long", manifest(now + 60))

    collect(home, now)

    assert names(home) == ["retained-long"]


def test_a_namespace_does_not_depend_on_the_order_of_its_roots():
    assert namespace_digest([b"/a", b"/b"]) == namespace_digest([b"/b", b"/a"])
    assert namespace_digest([b"/a", b"/b"]) != namespace_digest([b"/a/b"])
