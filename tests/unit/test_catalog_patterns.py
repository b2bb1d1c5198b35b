"""Patterns of names: what each form matches, and which directories it keeps alive."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.catalog.patterns import Patterns, Selection
from monarch.config.schema import Dataset
from monarch.errors import UsageError


def includes(pattern: str, path: str) -> bool:
    """Whether a pattern alone includes a path."""
    return Selection(Patterns((pattern,))).includes(path.encode())


LETTERS = "ab.[]?*!-/é"
PATTERN = st.text(LETTERS, min_size=1, max_size=6)
NAME = st.text("ab.[]?!-é", min_size=1, max_size=6).map(str.encode)


@given(st.lists(PATTERN, max_size=3), st.lists(NAME, min_size=1, max_size=4))
def test_names_selected_together_would_be_selected_one_by_one(
    exclude: list[str], names: list[bytes]
) -> None:
    try:
        selection = Selection(Patterns(exclude=tuple(exclude)))
    except UsageError:
        return
    if selection.takes_all(names):
        assert not any(selection.drops(name) for name in names)
        assert not any(selection.drops(b"d/" + name) for name in names) or any(
            selection.drops(b"d") for _ in exclude
        )


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("[--.]", "-."),
        ("[!--]", "ab"),
        ("[a-c-]", "abc-"),
        ("[-&&~]", "-&~"),
        ("[[]", "["),
    ],
)
def test_a_hyphen_in_a_set_is_a_range_between_two_characters(
    pattern: str, names: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [name for name in "abcd-&~[.?" if includes(pattern, name)]

    assert set(names) <= set(found)
    assert ("d" in found) is (pattern == "[!--]")


def test_names_without_the_text_of_a_pattern_are_selected_together() -> None:
    selection = Selection(Patterns(never=Dataset(path="/x").never))

    assert selection.takes_all([b"a.jpg", b"locker", b"db"])
    assert not selection.takes_all([b"a.jpg", b"x.lock"])
    assert not Selection(Patterns(include=("*.jpg",))).takes_all([b"a.jpg"])


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**", "a", True),
        ("**", "a/b\nc", True),
        ("*.jpg", "x.jpg", True),
        ("*.jpg", "a/b/x.jpg", True),
        ("*.jpg", "a.jpg/x", False),
        ("/*.jpg", "x.jpg", True),
        ("./*.jpg", "x.jpg", True),
        ("/*.jpg", "a/x.jpg", False),
        ("train/*.jpg", "train/x.jpg", True),
        ("train/*.jpg", "train/a/x.jpg", False),
        ("train/*.jpg", "val/train/x.jpg", False),
        ("train/**", "train/a/b", True),
        ("train/**", "train", False),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("**/x", "a/bx", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "a/bz", False),
        ("a**z", "abcz", True),
        ("/a**z", "a/z", False),
        ("?.txt", "é.txt", True),
        ("?.txt", "ab.txt", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[!a-c]x", "dx", True),
        ("[]]x", "]x", True),
        ("a[", "a[", True),
        ("a.b", "axb", False),
        ("(a|b)+", "(a|b)+", True),
        ("(a|b)+", "a", False),
        ("^$", "", False),
    ],
)
def test_a_pattern_includes_the_names_that_it_matches(
    pattern: str, path: str, expected: bool
) -> None:
    assert includes(pattern, path) is expected


def test_a_pattern_matches_names_that_are_not_utf8() -> None:
    selection = Selection(Patterns(("?.bin", "\udcff/*")))

    assert selection.includes(b"\x80.bin")
    assert selection.includes(b"\xff/x")


@pytest.mark.parametrize(
    ("path", "staged"),
    [
        *[(f"a/x.sqlite{end}", False) for end in ("", "3", "3-wal", "-journal")],
        *[(f"x.db{end}", False) for end in ("", "-wal", "-shm")],
        *[(name, False) for name in ("x.lock", "x-lock", "lock.mdb")],
        *[(name, True) for name in ("data.mdb", "x.dbf", "db", "sqlite", "x.tar")],
    ],
)
def test_locks_and_databases_of_live_writers_are_not_staged_by_default(
    path: str, staged: bool
) -> None:
    dataset = Dataset(path="/pfs/a")
    patterns = Patterns(dataset.include, dataset.exclude, dataset.never)
    selection = Selection(patterns)
    name = path.encode()

    assert (selection.includes(name) and not selection.drops(name)) is staged


@pytest.mark.parametrize("section", ["exclude", "never"])
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.lock", "a/x.lock", True),
        ("cache", "a/cache/deep/x", True),
        ("cache/", "a/cache/x", True),
        ("/cache", "a/cache/x", False),
        ("a/b", "a/b/c", True),
        ("a/b", "a/bc", False),
        ("a/**", "a", False),
        ("a/**", "a/b", True),
    ],
)
def test_a_dropped_directory_is_dropped_with_all_below(
    section: str, pattern: str, path: str, expected: bool
) -> None:
    patterns = (
        Patterns(exclude=(pattern,))
        if section == "exclude"
        else Patterns(never=(pattern,))
    )
    selection = Selection(patterns)

    assert selection.drops(path.encode()) is expected


@pytest.mark.parametrize(
    ("include", "directory", "expected"),
    [
        (("**",), "any", True),
        (("*.jpg",), "any/where", True),
        (("train/*.jpg",), "train", True),
        (("train/*.jpg",), "train/a", False),
        (("train/*.jpg",), "val", False),
        (("train/**",), "train/a/b", True),
        (("t*/n?/*.jpg",), "train", True),
        (("t*/n?/*.jpg",), "train/n1", True),
        (("t*/n?/*.jpg",), "train/m1", False),
        (("a/**/z",), "a/b/c", True),
        (("a/**/z",), "b", False),
        (("/x",), "a", False),
        (("a/x", "b/y"), "b", True),
    ],
)
def test_directories_are_walked_where_a_pattern_can_still_match(
    include: tuple[str, ...], directory: str, expected: bool
) -> None:
    assert Selection(Patterns(include)).descends(directory.encode()) is expected


@pytest.mark.parametrize("pattern", ["", "/", ".", "../x", "a/../b", "[z-a]", "a\0"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="pattern"):
        Selection(Patterns(exclude=(pattern,)))
