"""Datasets as people name them: files, patterns, lists, and one inside another."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from monarch import native
from monarch.catalog.parts import selection_of
from monarch.catalog.patterns import Patterns
from monarch.config.schema import Dataset
from monarch.errors import UsageError
from monarch.origins.named import Named, literal_head, name_roots
from support.trees import Tree


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory of shards, with one of images and a file of another kind."""
    (tmp_path / "images" / "deep").mkdir(parents=True)
    names = ("train-0.tar", "train-1.tar", "val-0.tar", "notes.txt")
    for name in (*names, "images/a.jpg", "images/a.txt", "images/deep/b.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def roots(*datasets: Dataset | str | Path) -> list[Named]:
    """The directories to scan."""
    made = [
        one if isinstance(one, Dataset) else Dataset(path=str(one)) for one in datasets
    ]
    return name_roots(made, ())


def files(named: Named) -> list[str]:
    """The files that are catalogued, below the directory."""
    tree = Tree.scan(Path(named.path), named.patterns)
    return [os.fsdecode(tree.block.path(int(n))) for n in tree.block.first_entry]


def only(named: Sequence[Named]) -> Named:
    """The only directory."""
    [one] = named
    return one


def test_a_file_is_a_dataset(base: Path) -> None:
    named = only(roots(base / "train-0.tar"))

    assert named.path == str(base)
    assert files(named) == ["train-0.tar"]


def test_a_file_of_a_large_directory_costs_one_stat(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bytes] = []
    find_names = native.find_names

    def watch(fd: int, names: list[bytes], **how: Any) -> Any:
        looked.extend(names)
        return find_names(fd, names, **how)

    def fail(_: int) -> None:
        raise AssertionError("a directory is read")

    monkeypatch.setattr(native, "find_names", watch)
    monkeypatch.setattr(native, "list_names", fail)

    assert files(only(roots(base / "notes.txt"))) == ["notes.txt"]
    assert looked == [b".", b"notes.txt"]


def test_a_pattern_is_a_dataset(base: Path) -> None:
    assert files(only(roots(base / "train-*.tar"))) == ["train-0.tar", "train-1.tar"]
    assert files(only(roots(base / "*" / "a.*"))) == ["images/a.jpg", "images/a.txt"]


def test_an_existing_name_with_a_wildcard_is_taken_literally(base: Path) -> None:
    (base / "train-*.tar").touch()

    assert files(only(roots(base / "train-*.tar"))) == ["train-*.tar"]


def test_a_list_names_files_and_directories(base: Path) -> None:
    (base / "list").write_text(f"# shards\nval-0.tar\n\n{base}/images\nval-0.tar\n")

    named = only(roots(f"@{base}/list"))

    assert files(named) == [
        *("images/a.jpg", "images/a.txt", "images/deep/b.jpg", "val-0.tar")
    ]


def test_missing_files_of_a_list_are_reported(base: Path) -> None:
    (base / "list").write_text("val-0.tar\ngone\n")

    named = only(roots(f"@{base}/list"))
    index = Tree.scan(Path(named.path), named.patterns).index

    assert index.refused.names == 1
    assert index.refused.examples == ("gone: No such file or directory",)


def test_a_dataset_inside_another_is_part_of_it_with_its_own_patterns(
    base: Path,
) -> None:
    outer = Dataset(path=str(base), exclude=("*.txt",))
    inner = Dataset(path=str(base / "images"), include=("*.txt",))

    for order in ((outer, inner), (inner, outer)):
        named = only(roots(*order))
        assert named.path == str(base)
        assert files(named) == [
            *("images/a.txt", "train-0.tar", "train-1.tar", "val-0.tar")
        ]


def test_a_file_that_is_named_is_staged_whatever_the_patterns_around_it(
    base: Path,
) -> None:
    outer = Dataset(path=str(base), exclude=("*.txt", "images"))

    named = only(roots(outer, base / "images" / "a.txt"))

    assert "images/a.txt" in files(named)
    assert "images/a.jpg" not in files(named)


def test_the_same_path_twice_is_once(base: Path) -> None:
    (base / "link").symlink_to(base / "images")

    named = only(roots(base / "images", base / "images", base / "link"))

    assert named.path == str(base / "images")
    assert named.aliases == (str(base / "link"),)
    assert len(files(named)) == 3


def test_directories_apart_stay_apart(base: Path) -> None:
    (base / "images-2").mkdir()

    found = roots(base / "images", base / "images-2", base / "images-2")

    assert [one.path for one in found] == [str(base / "images"), str(base / "images-2")]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("gone", "does not exist"),
        ("gone/train-*.tar", "does not exist"),
        ("notes.txt/x", "does not exist"),
        ("@gone", "list .*gone: No such file"),
        ("@empty", "has no path"),
    ],
)
def test_a_missing_path_is_refused_in_one_line(
    base: Path, path: str, reason: str
) -> None:
    (base / "empty").write_text("# nothing\n")
    given = f"@{base}/{path[1:]}" if path.startswith("@") else str(base / path)

    with pytest.raises(UsageError, match=rf"^datasets\[0\].path: .*{reason}"):
        roots(given)


def test_a_pattern_beside_include_is_refused(base: Path) -> None:
    dataset = Dataset(path=str(base / "*.tar"), include=("*.jpg",))

    with pytest.raises(UsageError, match="use it or include"):
        roots(dataset)


def test_a_hung_path_is_not_accessed(base: Path) -> None:
    dataset = Dataset(path=str(base / "gone"))

    [named] = name_roots([dataset], [str(base / "gone")])

    assert named.path == dataset.path


@pytest.mark.parametrize(
    ("path", "head"),
    [("/a/b", "/a/b"), ("/a/*/c", "/a"), ("/*", "/"), ("@/a/l", "/a/l")],
)
def test_the_literal_head_of_a_name_has_no_wildcard(path: str, head: str) -> None:
    assert literal_head(path) == head


def test_patterns_of_parts_survive_a_round_trip_by_json() -> None:
    inner = Patterns(include=("*.jpg",), never=("x",))
    patterns = Patterns(include=(), links="inside", parts=(("a/b", inner),))
    described = {
        "include": [],
        "exclude": [],
        "never": [],
        "links": "inside",
        "names": [],
        "parts": [
            [
                "a/b",
                {
                    "include": ["*.jpg"],
                    "exclude": [],
                    "never": ["x"],
                    "links": "follow",
                    "names": [],
                    "parts": [],
                },
            ]
        ],
    }

    assert Patterns.of(described) == patterns
    assert selection_of(patterns).includes(b"a/b/c.jpg")
    assert not selection_of(patterns).includes(b"a/c.jpg")
