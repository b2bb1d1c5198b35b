"""How a scan reads directories: in parts, by all threads, whatever they return."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from monarch import native
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.origins import walk
from support.trees import Tree, lstat_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty dataset root."""
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def test_all_threads_share_the_names_of_one_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "BATCH_NAMES", 1)
    monkeypatch.setattr(walk, "LOOK_NS", 1)  # the origin is slow: only one name
    monkeypatch.setattr(walk.Walk, "_has_idle", lambda _: True)
    for name in "abcd":
        (root / name).touch()
    together = threading.Barrier(3, timeout=30)
    look_last = walk.Walk._look_last

    def meet(self: walk.Walk, *place: Any) -> None:
        together.wait()
        look_last(self, *place)

    monkeypatch.setattr(walk.Walk, "_look_last", meet)

    assert len(Tree.scan(root, threads=4).paths()) == 5


def test_the_thread_that_reads_a_directory_looks_its_names_up(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the client has at hand, it may have for that thread only."""
    monkeypatch.setattr(walk, "BATCH_NAMES", 1)
    for folder in range(20):
        (root / f"d{folder}").mkdir()
        for number in range(20):
            (root / f"d{folder}" / f"f{number}").touch()
    readers: dict[str, int] = {}
    others = []
    list_names, find_names = native.list_names, native.find_names

    def list_here(fd: int) -> tuple[list[bytes], bytes]:
        readers[os.readlink(f"/proc/self/fd/{fd}")] = threading.get_ident()
        return list_names(fd)

    def find_here(fd: int, names: list[bytes], **how: Any) -> Any:
        reader = readers.get(os.readlink(f"/proc/self/fd/{fd}"))
        if names != [b"."] and reader != threading.get_ident():
            others.append(names)
        return find_names(fd, names, **how)

    monkeypatch.setattr(native, "list_names", list_here)
    monkeypatch.setattr(native, "find_names", find_here)

    Tree.scan(root, threads=8)

    assert not others


def test_a_name_that_a_changing_directory_returns_twice_is_catalogued_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (root / name).mkdir()
    list_names = native.list_names

    def list_twice(fd: int) -> tuple[list[bytes], bytes]:
        names, types = list_names(fd)
        return names * 2, types * 2

    monkeypatch.setattr(native, "list_names", list_twice)

    assert Tree.scan(root).paths() == [b"", b"a", b"b"]


def test_a_directory_whose_reading_fails_half_way_is_left_to_the_origin(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "bad").mkdir()
    (root / "bad" / "x").touch()
    (root / "good").touch()
    list_names = native.list_names

    def fail_later(fd: int) -> tuple[list[bytes], bytes]:
        names, types = list_names(fd)
        if not names and os.readlink(f"/proc/self/fd/{fd}").endswith("bad"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return names, types

    monkeypatch.setattr(native, "list_names", fail_later)

    tree = Tree.scan(root)

    assert tree.paths() == [b"", b"bad", b"good"]
    assert tree.unmanaged == {Unmanaged.FAILED: 1}


def test_names_of_unknown_type_are_looked_up_where_only_directories_matter(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "x.jpg").touch()
    (root / "file").touch()
    list_names = native.list_names

    def forget_types(fd: int) -> tuple[list[bytes], bytes]:
        names, types = list_names(fd)
        return names, bytes(len(types))

    monkeypatch.setattr(native, "list_names", forget_types)

    tree = Tree.scan(root, Patterns(include=("*.jpg",)))

    assert tree.paths() == [b"", b"sub", b"sub/x.jpg"]
    assert tree.unmanaged == {Unmanaged.EXCLUDED: 1}


def test_a_directory_of_many_names_is_read_in_parts(root: Path) -> None:
    names = sorted(f"{number:0200d}" for number in range(1000))
    for name in names:
        (root / name).touch()

    tree = Tree.scan(root)

    assert tree.paths() == [b"", *map(os.fsencode, names)]
    assert tree.status(names[-1]) == lstat_of(os.fsencode(root / names[-1]))
