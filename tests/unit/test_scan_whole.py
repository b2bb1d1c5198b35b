"""A scan tells of which directories it has all names: only those may be listed."""

import os
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


def whole(tree: Tree) -> set[str]:
    """The directories of which all names are Entries; '' is the root."""
    found = set()
    for number in range(len(tree.block.entries)):
        path = os.fsdecode(tree.block.path(number))
        if tree.block.modes()[number] & 0o170000 == 0o040000:
            assert tree.target(path) in (number, NONE32)
            if tree.target(path) == number:
                found.add(path)
    return found


def test_a_directory_of_files_links_and_directories_is_whole(root: Path) -> None:
    (root / "a" / "dangling").symlink_to("nowhere")
    (root / "a" / "outside").symlink_to("/etc")

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


def test_a_directory_with_a_name_that_went_meanwhile_is_not(
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
    # Where the same names are left out below the link, the copy is not.
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
