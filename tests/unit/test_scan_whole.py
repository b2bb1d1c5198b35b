"""A scan marks the directories of which it has all names: only those may be listed."""

import os
import random
from pathlib import Path

import pytest

from monarch import native
from monarch.catalog import links
from monarch.catalog.patterns import Patterns
from support.surveys import flat_survey
from support.trees import NONE32, Tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset root with a directory of one file, and an empty one."""
    folder = tmp_path / "root"
    (folder / "a" / "sub").mkdir(parents=True)
    (folder / "a" / "x").touch()
    return folder


def names_at(tree: Tree, path: str) -> list[str] | None:
    """The names of a directory in the order of the index; None: not all are in it."""
    start = tree.target(path)
    if start == NONE32:
        return None
    prefix, names = f"{path}/" if path else "", []
    for raw in tree.block.arena[start:].tobytes().split(b"\0"):
        name = os.fsdecode(raw)
        if not name.startswith(prefix) or name == "" or "/" in name[len(prefix) :]:
            break
        names.append(name[len(prefix) :])
    return names


def whole(tree: Tree) -> set[str]:
    """The directories of which all names are Entries; '' is the root."""
    kinds = tree.block.modes() & 0o170000
    paths = [os.fsdecode(tree.block.path(n)) for n in range(len(kinds))]
    folders = [path for path, kind in zip(paths, kinds, strict=True) if kind == 0o40000]
    return {path for path in folders if names_at(tree, path) is not None}


def test_names_are_in_the_order_of_the_origin(root: Path) -> None:
    """Also where many threads look them up, in a directory of several readings."""
    choose = random.Random(7)
    for number in choose.sample(range(10**9), 3000):
        (root / "a" / f"{number:0{choose.choice((1, 80))}d}").touch()

    tree = Tree.scan(root, threads=16)

    for path in ("", "a", "a/sub"):
        assert names_at(tree, path) == os.listdir(root / path)


def test_a_directory_of_files_links_and_directories_is_whole(root: Path) -> None:
    (root / "a" / "dangling").symlink_to("nowhere")
    (root / "a" / "outside").symlink_to("/")

    assert whole(Tree.scan(root)) == {"", "a", "a/sub"}


def test_a_large_directory_is_whole(root: Path) -> None:
    for number in range(5000):
        (root / "a" / f"name-that-takes-some-room-{number:060d}").touch()

    assert whole(Tree.scan(root)) == {"", "a", "a/sub"}


@pytest.mark.parametrize(
    "patterns",
    [Patterns(exclude=("x",)), Patterns(never=("*x",)), Patterns(include=("*.jpg",))],
    ids=["exclude", "never", "include"],
)
def test_a_directory_with_a_name_left_out_is_not(
    root: Path, patterns: Patterns
) -> None:
    assert whole(Tree.scan(root, patterns)) == {"", "a/sub"}


def test_a_directory_that_is_left_out_itself_lacks_in_its_parent(root: Path) -> None:
    assert whole(Tree.scan(root, Patterns(exclude=("sub",)))) == {""}


def test_a_directory_with_a_fifo_is_not_whole(root: Path) -> None:
    os.mkfifo(root / "a" / "fifo")

    assert whole(Tree.scan(root)) == {"", "a/sub"}


def test_a_directory_that_could_not_be_read_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refuse(path: bytes, *words: int, **options: int) -> int:
        if path == b"a/sub":
            raise PermissionError(13, "refused")
        return opened(path, *words, **options)

    monkeypatch.setattr(os, "open", refuse)

    assert whole(Tree.scan(root)) == {"", "a"}


def test_a_directory_with_a_vanished_name_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = native.list_names

    def and_more(fd: int) -> tuple[list[bytes], bytes]:
        names, types = listed(fd)
        if b"x" in names:
            return [*names, b"gone"], types + b"\x08"
        return names, types

    monkeypatch.setattr("monarch.origins.walk.native.list_names", and_more)

    assert whole(Tree.scan(root)) == {"", "a/sub"}


def test_a_directory_below_a_link_is_whole_if_that_is(root: Path) -> None:
    (root / "b").mkdir()
    (root / "b" / "link").symlink_to("../a")

    assert whole(Tree.scan(root)) == {"", "a", "a/sub", "b", "b/link/sub"}
    # If the same names are excluded below the link, the copy is not.
    limited = Tree.scan(root, Patterns(exclude=("b/link/sub/y", "/b/link/x")))
    assert whole(limited) == {"", "a", "a/sub", "b", "b/link/sub"}


def test_a_directory_of_which_names_are_left_out_below_a_link_is_not(
    root: Path,
) -> None:
    (root / "a" / "sub" / "y").touch()
    (root / "b").mkdir()
    (root / "b" / "link").symlink_to("../a")

    tree = Tree.scan(root, Patterns(exclude=("b/link/sub/y",)))

    assert whole(tree) == {"", "a", "a/sub", "b"}


def test_a_directory_beyond_the_limit_of_links_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LINK_NAMES_MAX", 0)
    (root / "b").symlink_to("a")

    assert whole(Tree.scan(root)) == {"", "a", "a/sub"}


def test_a_survey_that_does_not_say_so_has_no_whole_directory() -> None:
    assert not flat_survey([b"a"], [1]).listings[0].whole
