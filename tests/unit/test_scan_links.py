"""Symbolic links in a dataset: which are followed, and which are left to the origin."""

import os
from pathlib import Path

import pytest

from monarch.catalog import links
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.origins.root import link_expansions
from support.trees import NONE32, Tree, lstat_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset root with one file in a directory, and a file beside the root."""
    folder = tmp_path / "root"
    (folder / "real" / "sub").mkdir(parents=True)
    (folder / "real" / "sub" / "x").write_bytes(b"x")
    (tmp_path / "beside").touch()
    return folder


def test_a_link_to_a_file_has_it_as_target_and_its_own_lstat(root: Path) -> None:
    (root / "link").symlink_to("real/sub/x")

    tree = Tree.scan(root)

    assert tree.target("link") == tree.entry("real/sub/x")
    assert tree.file("link") == tree.file("real/sub/x")
    assert tree.status("link") == lstat_of(os.fsencode(root / "link"))


def test_a_chain_of_links_has_the_last_file_as_target(root: Path) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to(root / "real" / ".." / "real" / "sub" / "x")

    tree = Tree.scan(root)

    assert tree.target("one") == tree.target("two") == tree.entry("real/sub/x")


@pytest.mark.parametrize(
    ("goal", "reason"),
    [
        ("..", Unmanaged.LINK_CYCLE),
        ("/", Unmanaged.LINK_CYCLE),
        ("/proc/self/status", Unmanaged.LINK_PSEUDO),
        ("/dev/null", Unmanaged.LINK_UNLISTED),
        ("nowhere", Unmanaged.LINK_DANGLING),
        ("real/sub/x/y", Unmanaged.LINK_DANGLING),
        ("link", Unmanaged.LINK_LOOP),
        ("real/fifo", Unmanaged.LINK_UNLISTED),
    ],
)
def test_a_link_that_cannot_be_served_keeps_its_lstat_only(
    root: Path, goal: str, reason: Unmanaged
) -> None:
    os.mkfifo(root / "real" / "fifo")
    (root / "link").symlink_to(goal)

    tree = Tree.scan(root)

    assert tree.target("link") == NONE32
    assert tree.file("link") == NONE32
    assert tree.status("link") == lstat_of(os.fsencode(root / "link"))
    assert tree.unmanaged == {reason: 1, Unmanaged.SPECIAL: 1}


def test_names_below_a_directory_link_are_found_as_the_same_files(root: Path) -> None:
    (root / "link").symlink_to("real")
    (root / "real" / "inner").symlink_to("sub")

    tree = Tree.scan(root)

    assert tree.target("link") == tree.entry("real")
    for path in ("link/sub/x", "link/inner/x", "real/inner/x"):
        assert tree.file(path) == tree.file("real/sub/x"), path
        assert tree.status(path) == lstat_of(os.fsencode(root / path))
    assert tree.file("link/sub") == tree.file("real/sub")
    assert tree.block.file_count == 1
    assert tree.block.directory_count == 3
    paths = tree.paths()
    assert paths == sorted(paths)


@pytest.mark.parametrize("goal", [".", "sub/..", "../real", ".."])
def test_a_directory_link_to_a_directory_that_holds_it_is_not_expanded(
    root: Path, goal: str
) -> None:
    (root / "real" / "up").symlink_to(goal)

    tree = Tree.scan(root)

    goal_path = os.path.relpath(os.path.realpath(root / "real" / "up"), root)
    assert tree.target("real/up") == tree.entry("" if goal_path == "." else goal_path)
    assert tree.find("real/up/sub") == -1
    assert tree.unmanaged == {Unmanaged.LINK_CYCLE: 1}


def test_directory_links_to_each_other_end(root: Path) -> None:
    (root / "a").mkdir()
    (root / "b").mkdir()
    (root / "a" / "x").touch()
    (root / "a" / "to_b").symlink_to("../b")
    (root / "b" / "to_a").symlink_to("../a")

    tree = Tree.scan(root)

    assert tree.file("b/to_a/x") == tree.file("a/x")
    assert tree.target("b/to_a/to_b") == tree.entry("b")
    assert tree.find("a/to_b/to_a/x") == -1
    assert tree.unmanaged[Unmanaged.LINK_CYCLE] == 2


def test_names_beyond_the_limit_are_left_to_the_origin(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LINK_NAMES_MAX", 3)
    (root / "one").symlink_to("real")
    (root / "two").symlink_to("real")

    tree = Tree.scan(root)

    found = [tree.find(f"{name}/sub/x") >= 0 for name in ("one", "two")]
    assert sorted(found) == [False, True]
    assert tree.unmanaged == {Unmanaged.LINK_LIMIT: 1}


def test_links_that_follow_links_end_at_the_depth_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LINK_DEPTH_MAX", 2)
    for number in range(4):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "next").symlink_to(f"../d{number + 1}")
    (root / "d4").mkdir()
    (root / "d4" / "x").touch()

    tree = Tree.scan(root)

    assert tree.find("d2/next/next/x") >= 0
    assert tree.find("d1/next/next/next/x") == -1
    assert tree.unmanaged[Unmanaged.LINK_LIMIT] > 0


def test_patterns_choose_among_names_below_a_directory_link(root: Path) -> None:
    (root / "link").symlink_to("real")
    (root / "real" / "sub" / "y").touch()

    tree = Tree.scan(root, Patterns(("**",), ("link/sub/y",)))

    assert tree.find("link/sub/x") >= 0
    assert tree.find("real/sub/y") >= 0
    assert tree.find("link/sub/y") == -1


def test_patterns_judge_the_name_in_the_dataset_not_that_of_the_target(
    root: Path,
) -> None:
    (root / "link").symlink_to("real/sub/x")
    (root / "folder").symlink_to("real")

    tree = Tree.scan(root, Patterns(exclude=("real",)))

    assert tree.file("link") == tree.file("folder/sub/x")
    assert tree.status_of(tree.target("link")) == lstat_of(
        os.fsencode(root / "real" / "sub" / "x")
    )
    assert tree.find("real") == -1
    assert tree.unmanaged == {Unmanaged.EXCLUDED: 1}


@pytest.mark.parametrize(
    ("middle", "hop"),
    [
        ("excluded/hop", "root/excluded/hop"),
        ("../beyond/hop", "beyond/hop"),
        ("excluded/folder/x", "root/excluded/folder"),
    ],
)
def test_every_hop_that_is_no_name_of_the_dataset_is_catalogued_as_such(
    root: Path, middle: str, hop: str
) -> None:
    beyond = root.parent / "beyond"
    beyond.mkdir()
    (beyond / "hop").symlink_to(root / "real" / "sub" / "x")
    (root / "excluded").mkdir()
    (root / "excluded" / "hop").symlink_to("../real/sub/x")
    (root / "excluded" / "folder").symlink_to("../real/sub")
    (root / "link").symlink_to(middle)

    tree = Tree.scan(root, Patterns(exclude=("excluded",)))

    path = os.fsencode(root.parent / hop)
    assert tree.target("link") == tree.entry("real/sub/x")
    assert tree.hops()[path] == lstat_of(path)
    assert tree.hops()[os.path.dirname(path)] == lstat_of(os.path.dirname(path))
    assert tree.hop_target(path) == tree.entry(
        "real/sub" if middle.endswith("folder/x") else "real/sub/x"
    )


def test_each_stage_of_a_spelling_through_links_is_a_spelling(tmp_path: Path) -> None:
    (tmp_path / "b" / "d").mkdir(parents=True)
    (tmp_path / "m").symlink_to("n/../b")
    (tmp_path / "n").mkdir()
    (tmp_path / "l").symlink_to(tmp_path / "m")
    base = os.fsencode(tmp_path)

    found = link_expansions(base + b"/l/d")

    assert found == [base + b"/l/d", base + b"/m/d", base + b"/n/../b/d"]
    assert link_expansions(base + b"/nowhere/d") == [base + b"/nowhere/d"]
