"""Files of several roots, and Files behind links, by the blocks of a job."""

import os
from pathlib import Path

import numpy as np
import pytest

from monarch.catalog.inventory import Inventory, MappedRoot
from monarch.catalog.outside import behind_links, count_links, share_files
from monarch.native import CONSTANTS
from support.trees import NONE32, Tree

SHARED = CONSTANTS["FILE_SHARED"]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Two roots `one` and `two`, with links to each other and to `store`."""
    for name in ("one", "two", "store/sub"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("one/a", "two/b", "store/c", "store/sub/d"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "one" / "b").symlink_to("../two/b")
    (tmp_path / "one" / "c").symlink_to("../store/c")
    (tmp_path / "two" / "c2").symlink_to("../store/c")
    (tmp_path / "two" / "a").symlink_to("../one/a")
    (tmp_path / "two" / "store").symlink_to("../store")
    return tmp_path


def inventory(base: Path, trees: list[Tree]) -> tuple[Inventory, list[MappedRoot]]:
    """The Files of a job with these roots, the first two of which share theirs."""
    blocks = share_files([tree.block for tree in trees])
    names = ("one", "two")
    roots = [
        MappedRoot(os.fsencode(base / name), (), block)
        for name, block in zip(names, blocks, strict=True)
    ]
    return Inventory(roots, CONSTANTS["EXTENT_BYTES"]), roots


def test_a_file_of_two_roots_is_one_file(base: Path) -> None:
    trees = [Tree.scan(base / "one"), Tree.scan(base / "two")]
    found, roots = inventory(base, trees)

    def number(root: int, path: str) -> int:
        return found.number_of(root, trees[root].entry(path))

    assert len(found) == 4
    assert number(0, "a") == number(1, "a")
    assert number(0, "b") == number(1, "b")
    assert number(0, "c") == number(1, "c2") == number(1, "store/c")
    paths = {os.path.realpath(found.path(file)) for file in range(len(found))}
    names = ("one/a", "two/b", "store/c", "store/sub/d")
    assert paths == {os.fsencode(base / name) for name in names}
    assert sum(root.block.file_count for root in roots) == 4


def test_blocks_without_common_files_are_not_copied(base: Path) -> None:
    (base / "three").mkdir()
    (base / "three" / "x").touch()
    blocks = [Tree.scan(base / name).block for name in ("one", "three")]

    assert share_files(blocks)[1] is blocks[1]


def test_a_file_that_changed_between_two_scans_is_two(base: Path) -> None:
    first = Tree.scan(base / "one").block
    (base / "store" / "c").write_bytes(b"changed")

    shared = share_files([first, Tree.scan(base / "two").block])

    files = shared[1].entries["file"]
    taken = files[(files >= SHARED) & (files != NONE32)]
    assert len(set(taken.tolist())) == 2  # a and b


def test_files_reached_only_by_directory_links_are_behind_them(base: Path) -> None:
    (base / "two" / "again").symlink_to("../store/sub")

    tree = Tree.scan(base / "two")
    behind = behind_links(tree.block)

    assert behind.links == (b"again", b"store")
    assert behind.group[tree.file("b")] == 0
    assert behind.group[tree.file("store/c")] == 0  # c2 leads to it, too
    assert behind.group[tree.file("store/sub/d")] == 1


def test_a_link_inside_the_root_brings_nothing(base: Path) -> None:
    (base / "one" / "real").mkdir()
    (base / "one" / "real" / "x").touch()
    (base / "one" / "link").symlink_to("real")

    behind = behind_links(Tree.scan(base / "one").block)

    assert behind.links == ()
    assert not np.any(behind.group)


def test_links_are_counted_by_whether_they_leave(base: Path) -> None:
    (base / "two" / "own").symlink_to("b")
    (base / "two" / "nowhere").symlink_to("gone")
    (base / "store" / "inner").symlink_to("c")

    counts = count_links(Tree.scan(base / "two").block)

    assert (counts.links, counts.followed) == (5, 3)


def test_a_file_behind_a_link_may_have_a_name_of_its_own_in_another_root(
    base: Path,
) -> None:
    trees = [Tree.scan(base / "two"), Tree.scan(base / "store")]

    first, second = (
        behind_links(block) for block in share_files([tree.block for tree in trees])
    )

    assert first.group[trees[0].file("store/sub/d")] == 1
    assert trees[0].file("store/sub/d") in second.claimed
    assert len(second.group) == 0
