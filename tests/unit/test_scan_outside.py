"""Links that leave a dataset: which of their targets are catalogued."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from monarch import native
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.origins import walk
from monarch.origins.dataset import scan
from monarch.origins.index_text import reasons_text
from monarch.origins.root import open_root
from support.trees import NONE32, Tree, lstat_of

INSIDE = Patterns(links="inside")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset root beside a directory `store` with `a`, `sub/b` and an empty one."""
    folder = tmp_path / "root"
    folder.mkdir()
    (tmp_path / "store" / "sub").mkdir(parents=True)
    (tmp_path / "store" / "empty").mkdir()
    (tmp_path / "store" / "a").write_bytes(b"a")
    (tmp_path / "store" / "sub" / "b").write_bytes(b"bb")
    return folder


@pytest.fixture
def store(root: Path) -> Path:
    """The directory beside the root."""
    return root.parent / "store"


@pytest.mark.parametrize("absolute", [False, True])
def test_a_link_to_a_file_outside_has_that_file_as_target(
    root: Path, store: Path, absolute: bool
) -> None:
    (root / "link").symlink_to(store / "a" if absolute else "../store/a")

    tree = Tree.scan(root)

    assert tree.status("link") == lstat_of(os.fsencode(root / "link"))
    assert tree.status_of(tree.target("link")) == lstat_of(os.fsencode(store / "a"))
    assert tree.file("link") == 0
    assert tree.paths() == [b"", b"link"]
    assert tree.unmanaged == {}


def test_names_below_a_link_to_a_directory_outside_are_names_of_the_dataset(
    root: Path, store: Path
) -> None:
    (root / "train").symlink_to(store)

    tree = Tree.scan(root)

    for name in ("a", "sub", "sub/b", "empty"):
        assert tree.status(f"train/{name}") == lstat_of(os.fsencode(store / name))
    assert tree.status_of(tree.target("train")) == lstat_of(os.fsencode(store))
    assert tree.block.file_count == 2
    assert listed(tree, tree.target("train")) == sorted(os.listdir(store))
    assert listed(tree, tree.entry("train/sub")) == ["b"]
    assert listed(tree, tree.entry("train/empty")) == []


def listed(tree: Tree, entry: int) -> list[str]:
    """The names of a directory, as programs get them, sorted."""
    prefix = os.fsdecode(tree.block.path(entry)) + "/"
    found = []
    start = int(tree.block.entries["target"][entry])
    assert start != NONE32
    for raw in tree.block.arena[start:].tobytes().split(b"\0"):
        name = os.fsdecode(raw)
        if not name.startswith(prefix) or "/" in name[len(prefix) :]:
            break
        found.append(name[len(prefix) :])
    return sorted(found)


def test_two_links_to_one_file_share_it(root: Path, store: Path) -> None:
    (root / "one").symlink_to("../store/a")
    (root / "two").symlink_to(store / "sub" / ".." / "a")
    os.link(store / "a", root / "hard")
    (root / "folder").symlink_to(store)

    tree = Tree.scan(root)

    names = ("one", "two", "hard", "folder/a")
    assert {tree.file(name) for name in names} == {tree.file("one")}
    assert tree.block.file_count == 2


def test_each_directory_is_read_once_whatever_leads_to_it(
    root: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (root / f"all{number}").symlink_to(store)
        (root / f"part{number}").symlink_to(store / "sub")
    (store / "again").symlink_to("sub")
    opened = []
    list_names = native.list_names

    def watch(fd: int) -> tuple[list[bytes], bytes]:
        opened.append(os.readlink(f"/proc/self/fd/{fd}"))
        return list_names(fd)

    monkeypatch.setattr(native, "list_names", watch)

    tree = Tree.scan(root)

    # A directory is read until no names are left.
    found = {path: opened.count(path) for path in opened}
    assert found == {
        str(root): 2,
        str(store): 2,
        str(store / "sub"): 2,
        str(store / "empty"): 1,
    }
    for number in range(5):
        for name in (f"all{number}/sub/b", f"part{number}/b", f"all{number}/again/b"):
            assert tree.file(name) == tree.file("all0/sub/b")


def test_names_that_many_links_pass_are_looked_up_once(
    root: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        (store / "sub" / f"f{number}").touch()
        (root / f"l{number}").symlink_to(f"../store/sub/f{number}")
    looked: list[bytes] = []
    find_names = native.find_names

    def watch(fd: int, names: list[bytes], **how: Any) -> Any:
        looked.extend(names)
        return find_names(fd, names, **how)

    monkeypatch.setattr(native, "find_names", watch)

    tree = Tree.scan(root)

    assert tree.block.file_count == 100
    names = [name for name in looked if not name.startswith(b"/")]
    assert len(names) == len(set(names)) == 201
    # Threads that reach a directory at the same moment all check it.
    assert len(looked) <= len(set(looked)) + 3


def test_chains_of_links_outside_are_followed_and_each_link_is_a_hop(
    root: Path, store: Path
) -> None:
    (root / "link").symlink_to(store / "current" / "one")
    (store / "current").symlink_to("v1")
    (store / "v1").mkdir()
    (store / "v1" / "one").symlink_to("two")
    (store / "v1" / "two").symlink_to(store / "a")

    tree = Tree.scan(root)

    hops = tree.hops()
    for hop in ("current", "v1", "v1/one", "v1/two"):
        path = os.fsencode(store / hop)
        assert hops[path] == lstat_of(path)
    goal = tree.target("link")
    assert tree.hop_target(os.fsencode(store / "v1" / "one")) == goal
    assert tree.hop_target(os.fsencode(store / "v1" / "two")) == goal
    current = tree.hop_target(os.fsencode(store / "current"))
    assert tree.block.path(current) == os.fsencode(store / "v1")


def test_links_below_a_directory_outside_are_followed(root: Path, store: Path) -> None:
    further = root.parent / "further"
    further.mkdir()
    (further / "c").touch()
    (root / "train").symlink_to(store)
    (store / "more").symlink_to(further)
    (store / "c").symlink_to("more/c")

    tree = Tree.scan(root)

    assert tree.file("train/c") == tree.file("train/more/c") != NONE32


def test_directory_links_to_each_other_end(root: Path, store: Path) -> None:
    other = root.parent / "other"
    other.mkdir()
    (other / "x").touch()
    (other / "back").symlink_to(store)
    (store / "on").symlink_to(other)
    (root / "one").symlink_to(store)
    (root / "two").symlink_to(other)

    for patterns in (Patterns(), Patterns(exclude=("/nothing",))):
        tree = Tree.scan(root, patterns)

        assert tree.file("one/on/x") == tree.file("two/x")
        assert tree.file("two/back/a") == tree.file("one/a")
        assert tree.find("one/on/back/on/x") == -1
        assert tree.unmanaged[Unmanaged.LINK_CYCLE] > 0


@pytest.mark.parametrize("goal", ["/", "..", "../root", ".", "../store/up"])
def test_a_link_to_the_root_or_above_it_is_not_followed(
    root: Path, store: Path, goal: str
) -> None:
    (store / "up").symlink_to(root.parent)
    (root / "x").touch()
    (root / "link").symlink_to(goal)

    tree = Tree.scan(root)

    assert tree.find("link/x") == tree.find("link/root/x") == -1
    assert tree.paths() == [b"", b"link", b"x"]
    assert tree.unmanaged == {Unmanaged.LINK_CYCLE: 1}


def test_a_link_from_a_directory_outside_to_one_above_it_is_not_followed(
    root: Path, store: Path
) -> None:
    (root / "link").symlink_to(store / "sub")
    (store / "sub" / "up").symlink_to(store)

    tree = Tree.scan(root)

    assert tree.paths() == [b"", b"link", b"link/b", b"link/up"]
    assert tree.target("link/up") == NONE32
    assert tree.unmanaged == {Unmanaged.LINK_CYCLE: 1}


def test_patterns_apply_behind_a_link(
    root: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "one").symlink_to(store)
    (root / "two").symlink_to(store)
    opened = []
    listed_by = walk.Walk._list

    def watch(self: walk.Walk, at: Any) -> None:
        opened.append(at.path)
        listed_by(self, at)

    monkeypatch.setattr(walk.Walk, "_list", watch)

    tree = Tree.scan(root, Patterns(exclude=("one/sub", "/two/a", "empty")))

    assert sorted(opened) == [b"", b"one", b"two", b"two/sub"]
    assert tree.paths() == [
        *(b"", b"one", b"one/a"),
        *(b"two", b"two/sub", b"two/sub/b"),
    ]
    assert tree.unmanaged == {Unmanaged.EXCLUDED: 4}


def test_include_selects_behind_a_link_by_the_name_in_the_dataset(
    root: Path, store: Path
) -> None:
    (root / "train").symlink_to(store)
    (root / "a.jpg").symlink_to(store / "a")
    (root / "b.txt").symlink_to(store / "sub" / "b")

    tree = Tree.scan(root, Patterns(include=("*.jpg", "train/sub/**")))

    assert tree.file("a.jpg") != NONE32
    assert tree.target("b.txt") == NONE32
    assert tree.find("train/a") == -1
    assert tree.file("train/sub/b") != NONE32


def test_links_inside_leaves_links_out_of_the_root_to_the_origin(
    root: Path, store: Path
) -> None:
    (root / "x").touch()
    (root / "file").symlink_to(store / "a")
    (root / "folder").symlink_to(store)
    (root / "by_way").symlink_to("../store/back")
    (store / "back").symlink_to(root / "x")
    (root / "own").symlink_to(root / "x")

    tree = Tree.scan(root, INSIDE)

    assert tree.target("own") == tree.entry("x")
    for name in ("file", "folder", "by_way"):
        assert tree.target(name) == NONE32
        assert tree.status(name) == lstat_of(os.fsencode(root / name))
    assert tree.block.file_count == 1
    assert tree.unmanaged == {Unmanaged.LINK_OUTSIDE: 3}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search every directory")
def test_a_target_that_may_not_be_reached_is_left_to_the_origin(
    root: Path, store: Path
) -> None:
    (root / "file").symlink_to(store / "sub" / "b")
    (root / "folder").symlink_to(store / "sub")
    (store / "sub").chmod(0o000)
    try:
        tree = Tree.scan(root)
    finally:
        (store / "sub").chmod(0o755)

    assert tree.target("file") == NONE32
    assert tree.unmanaged == {Unmanaged.UNREADABLE: 2}


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_slash_behind_a_link_text_asks_for_a_directory(
    root: Path, store: Path, slash: str
) -> None:
    (root / "file").symlink_to(f"{store}/a{slash}")
    (root / "folder").symlink_to(f"{store}/sub{slash}")

    tree = Tree.scan(root)

    assert (tree.target("file") == NONE32) == bool(slash)
    assert tree.file("folder/b") != NONE32


def test_the_index_does_not_depend_on_which_link_is_followed_first(
    root: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "BATCH_NAMES", 1)
    for number in range(20):
        (store / "sub" / f"f{number}").touch()
        (root / f"l{number}").symlink_to(store if number % 2 else store / "sub")
    identities = set()
    for threads in (1, 2, 3, 16, 16, 16):
        block = Tree.scan(root, threads=threads).block
        names = [block.path(int(first)) for first in block.first_entry]
        identities.add((block.identity, *names))

    assert len(identities) == 1
    assert not [one for one in threading.enumerate() if one.name.startswith("scan ")]


def test_a_link_with_more_names_behind_it_than_the_root_is_reported(
    root: Path, store: Path
) -> None:
    for number in range(10):
        (root / f"own{number}").touch()
    for number in range(15):
        (store / "sub" / f"f{number}").touch()
    (root / "part").symlink_to(store / "sub")
    said: list[bytes] = []

    def told() -> bytes:
        scan(open_root(str(root)), Patterns(), behind=said.append)
        return said[-1]

    assert told() == b"part"
    for number in range(10, 20):
        (root / f"own{number}").touch()
    assert told() == b""


def test_reasons_agree_with_their_counts() -> None:
    one = {Unmanaged.LINK_OUTSIDE: 1, Unmanaged.LINK_LOOP: 1, Unmanaged.EXCLUDED: 1}
    two = {Unmanaged.LINK_OUTSIDE: 2, Unmanaged.LINK_LOOP: 2, Unmanaged.EXCLUDED: 0}

    assert reasons_text(one) == (
        "1 excluded by include, exclude or never, 1 link loop, "
        "1 link that leaves the dataset (links: inside)"
    )
    assert reasons_text(two) == (
        "2 link loops, 2 links that leave the dataset (links: inside)"
    )
