"""Files of a saved index are compared with the origin."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.catalog.patterns import Patterns
from monarch.origins.recheck import Identity, compare, is_same
from support.trees import Tree

NAMES = ("a", "b/c", "b/d", "e")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset of four files."""
    for name in NAMES:
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 10)
    return tmp_path / "root"


def rewrite(path: Path) -> None:
    """Other bytes of the same size, and the same time of change."""
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def append(path: Path) -> None:
    """One byte more."""
    with path.open("ab") as file:
        file.write(b"x")


def become_directory(path: Path) -> None:
    """A directory in its place."""
    path.unlink()
    path.mkdir()


def become_link(path: Path) -> None:
    """A link to another file, in its place."""
    path.rename(path.with_name("other"))
    path.symlink_to("other")


CHANGES: dict[str, Callable[[Path], object]] = {
    "rewritten": rewrite,
    "appended to": append,
    "removed": Path.unlink,
    "a directory": become_directory,
    "a link": become_link,
    "mode": lambda path: path.chmod(0o600),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_file_is_found(root: Path, change: str) -> None:
    block = Tree.scan(root, Patterns()).index.block
    number = [block.path(int(e)) for e in block.first_entry].index(b"b/c")

    CHANGES[change](root / "b" / "c")
    compared = compare(os.fsencode(root), block, range(4))

    assert compared.changed.tolist() == [number]
    assert sorted([*compared.same.tolist(), number]) == [0, 1, 2, 3]


def test_only_the_given_files_are_compared(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    block = Tree.scan(root, Patterns()).index.block
    lstat = os.lstat

    def note(path: bytes) -> os.stat_result:
        asked.append(path)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", note)

    assert compare(os.fsencode(root), block, [1, 3]).same.tolist() == [1, 3]

    assert asked == [os.fsencode(root / NAMES[1]), os.fsencode(root / NAMES[3])]


def test_file_whose_origin_fails_is_neither(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: bytes) -> None:
        raise OSError(5, "Input/output error")

    block = Tree.scan(root, Patterns()).index.block
    monkeypatch.setattr(os, "lstat", fail)

    compared = compare(os.fsencode(root), block, range(4))

    assert (len(compared.same), len(compared.changed)) == (0, 0)


def test_each_part_of_the_identity_counts(root: Path) -> None:
    found = (root / "a").stat()
    known = Identity(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    assert is_same(known, found)
    for field, value in known._asdict().items():
        assert not is_same(known._replace(**{field: value + 1}), found)
    assert not is_same(known, root.stat())
