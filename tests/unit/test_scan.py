"""A scan of a real tree: the content of the index, and what the origin answers."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monarch import native
from monarch.catalog.inventory import MappedRoot, catalog_digest
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import PATH_BYTES_MAX, Unmanaged
from monarch.errors import UsageError
from monarch.origins import walk
from monarch.origins.root import open_root
from support.trees import NONE32, Tree, lstat_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty dataset root."""
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def test_every_name_is_found_with_the_metadata_of_lstat(root: Path) -> None:
    (root / "a" / "deep").mkdir(parents=True)
    (root / "a" / "deep" / "one").write_bytes(b"1" * 5000)
    (root / "a" / "two").write_bytes(b"")
    (root / "empty").mkdir()
    os.chmod(root / "a" / "two", 0o640)
    os.utime(root / "a" / "two", ns=(123_456_789, 987_654_321_123_456_789))

    tree = Tree.scan(root)

    for path in ("", "a", "a/deep", "a/deep/one", "a/two", "empty"):
        real = os.fsencode(root / path)
        assert tree.status(path) == lstat_of(real), path
    assert tree.find("a/three") == -1
    assert tree.find("a/") == -1
    assert tree.block.file_count == 2
    assert tree.block.directory_count == 4


def test_an_empty_root_has_one_entry(root: Path) -> None:
    tree = Tree.scan(root)

    assert tree.paths() == [b""]
    assert tree.block.file_count == 0


def test_entries_are_sorted_by_the_bytes_of_their_paths(root: Path) -> None:
    for name in ("a", "a-b", "a0", "b"):
        (root / name).mkdir()
        (root / name / "x").touch()
    (root / "a!").touch()
    (root / "a" / "sub").mkdir()
    (root / "a" / "sub" / "y").touch()
    (root / "a" / "sub-z").touch()

    paths = Tree.scan(root).paths()

    assert paths == sorted(paths)
    assert len(paths) == 13


def test_file_numbers_follow_the_order_of_paths(root: Path) -> None:
    for name in ("c", "a", "b"):
        (root / name).touch()

    tree = Tree.scan(root)

    assert [tree.file(name) for name in "abc"] == [0, 1, 2]
    assert [tree.block.path(e) for e in tree.block.first_entry] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "name",
    [b"new\nline", b"\xff\xfe", b" ", b"*", "é".encode(), b"-rf", b"a\\b", b"\x01"],
)
def test_names_of_any_bytes_are_found(root: Path, name: bytes) -> None:
    folder = os.path.join(os.fsencode(root), name)
    os.mkdir(folder)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(b"x")

    tree = Tree.scan(root)

    path = name + b"/" + name
    assert tree.status(path) == lstat_of(os.path.join(os.fsencode(root), path))


def test_several_names_of_one_inode_share_one_file(root: Path) -> None:
    (root / "z").write_bytes(b"same")
    (root / "d").mkdir()
    os.link(root / "z", root / "d" / "a")
    (root / "other").touch()

    tree = Tree.scan(root)

    assert tree.file("z") == tree.file("d/a")
    assert tree.block.file_count == 2
    assert tree.block.path(int(tree.block.first_entry[tree.file("z")])) == b"d/a"


def test_special_files_are_left_to_the_origin(root: Path) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "sock"))
        tree = Tree.scan(root)

    assert tree.find("fifo") == tree.find("sock") == -1
    assert tree.unmanaged == {Unmanaged.SPECIAL: 2}


def test_paths_that_are_too_long_are_left_to_the_origin(root: Path) -> None:
    folder = root
    while len(os.fsencode(folder.relative_to(root))) + 201 < PATH_BYTES_MAX:
        folder = folder / ("d" * 200)
    folder.mkdir(parents=True)
    room = PATH_BYTES_MAX - len(os.fsencode(folder.relative_to(root))) - 1
    (folder / ("f" * room)).touch()
    (folder / ("f" * (room + 1))).touch()

    tree = Tree.scan(root)

    assert tree.find((folder / ("f" * room)).relative_to(root).as_posix()) >= 0
    assert tree.unmanaged == {Unmanaged.LONG: 1}


@pytest.mark.root
def test_mounts_below_the_root_are_left_to_the_origin(root: Path) -> None:
    (root / "inside").touch()
    (root / "mounted").mkdir()
    if not mounted("tmpfs", root / "mounted"):
        pytest.skip("may not mount here")
    try:
        (root / "mounted" / "x").touch()
        tree = Tree.scan(root)
    finally:
        subprocess.run(["umount", str(root / "mounted")], check=True)

    assert tree.paths() == [b"", b"inside"]
    assert tree.unmanaged == {Unmanaged.MOUNT: 1}


@pytest.mark.root
def test_files_of_an_overlay_are_catalogued_whatever_device_they_report(
    tmp_path: Path,
) -> None:
    layers = tmp_path / "layers"
    layers.mkdir()
    merged = tmp_path / "merged"
    merged.mkdir()
    upper, work = layers / "upper", layers / "work"
    options = f"lowerdir={tmp_path}/low,upperdir={upper},workdir={work},xino=off"
    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "old").write_bytes(b"old")
    if not mounted("tmpfs", layers):
        pytest.skip("may not mount here")
    try:
        upper.mkdir()
        work.mkdir()
        if not mounted("overlay", merged, options):
            pytest.skip("may not mount an overlay here")
        (merged / "new").write_bytes(b"new")
        tree = Tree.scan(merged)
        for name in ("old", "new"):
            assert tree.status(name) == lstat_of(os.fsencode(merged / name))
            assert tree.file(name) != NONE32
    finally:
        subprocess.run(["umount", str(merged)], check=False, capture_output=True)
        subprocess.run(["umount", str(layers)], check=True)


def mounted(kind: str, place: Path, options: str = "rw") -> bool:
    """Mounts a file system and returns whether that was possible."""
    mount = ["mount", "-t", kind, "-o", options, "none", str(place)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.fixture
def nobody() -> Iterator[None]:
    """An effective user without privileges."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_to_all(root: Path) -> Path:
    """A dataset root that every user can reach."""
    for folder in (root, *root.parents[:4]):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o555)
    return root


def test_a_directory_that_cannot_be_read_is_counted_and_the_rest_is_scanned(
    open_to_all: Path, request: pytest.FixtureRequest
) -> None:
    root = open_to_all
    (root / "closed").mkdir()
    (root / "closed" / "x").touch()
    (root / "open").touch()
    (root / "secret").touch()
    (root / "secret").chmod(0o000)
    (root / "closed").chmod(0o000)
    request.getfixturevalue("nobody")

    tree = Tree.scan(root)

    assert tree.paths() == [b"", b"closed", b"open", b"secret"]
    assert tree.unmanaged == {Unmanaged.UNREADABLE: 1}
    attrs = tree.block.attrs[tree.block.entries["attr"]]
    assert attrs["readable"].tolist() == [1, 0, 1, 0]


def test_a_file_that_vanishes_while_the_scan_runs_is_skipped(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (root / name).touch()
    find_names = native.find_names

    def vanish(fd: int, names: list[bytes], **how: Any) -> Any:
        (root / "b").unlink(missing_ok=True)
        return find_names(fd, names, **how)

    monkeypatch.setattr(native, "find_names", vanish)

    tree = Tree.scan(root)

    assert tree.paths() == [b"", b"a", b"c"]
    assert tree.unmanaged == {}


def test_an_error_of_the_scan_itself_reaches_the_caller(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").touch()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(walk.Walk, "_batch", fail)

    with pytest.raises(ZeroDivisionError):
        Tree.scan(root)


def test_the_index_does_not_depend_on_the_number_of_threads(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "BATCH_NAMES", 7)
    for folder in ("a", "b", "b/c"):
        (root / folder).mkdir()
        for number in range(100):
            (root / folder / f"f{number}").touch()
    for folder in (".", "a", "b", "b/c"):  # so that reading them leaves their atime
        os.utime(root / folder, (time.time() + 3600, time.time() - 3600))

    digests = {Tree.scan(root, threads=threads).block.digest for threads in (1, 3, 16)}

    assert len(digests) == 1


def test_a_later_scan_of_a_tree_that_was_read_finds_the_same_files(
    root: Path,
) -> None:
    (root / "a" / "b").mkdir(parents=True)
    for number in range(20):
        (root / "a" / f"f{number}").write_bytes(b"x" * number)
    os.link(root / "a" / "f3", root / "a" / "b" / "again")
    long_ago = time.time_ns() - 40 * 3600 * 10**9
    for path in (root, *root.rglob("*")):  # so that reading moves the atime
        os.utime(path, ns=(long_ago, long_ago))
    first = Tree.scan(root)

    for path in (root, *root.rglob("*")):
        list(path.iterdir()) if path.is_dir() else path.read_bytes()
    second = Tree.scan(root, threads=2)

    roots = [[MappedRoot(b"/r", (), tree.block)] for tree in (first, second)]
    assert catalog_digest(roots[0]) == catalog_digest(roots[1])
    (root / "a" / "f3").write_bytes(b"new")
    assert Tree.scan(root).block.identity != first.block.identity


def test_excluded_directories_are_not_even_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("train", "cache", "val"):
        (root / folder).mkdir()
        (root / folder / "x.jpg").touch()
        (root / folder / "x.lock").touch()
    opened = []
    listed = walk.Walk._list

    def watch(self: walk.Walk, at: Any) -> None:
        opened.append(at.path)
        listed(self, at)

    monkeypatch.setattr(walk.Walk, "_list", watch)

    tree = Tree.scan(root, Patterns(("train/**", "val/*.jpg"), ("val",), ("*.lock",)))

    assert sorted(opened) == [b"", b"train"]
    assert tree.paths() == [b"", b"train", b"train/x.jpg"]
    assert tree.unmanaged == {Unmanaged.EXCLUDED: 3}


def test_progress_ends_with_all_names_that_were_seen(root: Path) -> None:
    from monarch.origins.dataset import scan

    for number in range(50):
        (root / f"f{number}").touch()
    seen: list[int] = []

    scan(open_root(str(root)), Patterns(), threads=2, progress=seen.append)

    assert seen[-1] == 50


@pytest.mark.parametrize("what", ["missing", "file", "loop"])
def test_a_root_that_is_no_directory_is_refused_in_one_line(
    tmp_path: Path, what: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(UsageError, match=str(tmp_path / what)) as refused:
        open_root(str(tmp_path / what))

    assert "\n" not in str(refused.value)


def test_a_root_that_may_not_be_read_is_refused(
    open_to_all: Path, request: pytest.FixtureRequest
) -> None:
    (open_to_all / "closed").mkdir(mode=0o000)
    request.getfixturevalue("nobody")

    with pytest.raises(UsageError, match="Permission denied"):
        open_root(str(open_to_all / "closed"))


def test_a_root_given_by_a_link_is_known_by_both_names(root: Path) -> None:
    link = root.with_name("link")
    link.symlink_to(root)

    found = open_root(str(link))

    assert found.given == os.fsencode(link)
    assert found.path == os.fsencode(root.resolve())


def test_a_link_is_never_a_file_of_its_own(root: Path) -> None:
    (root / "file").touch()
    (root / "link").symlink_to("file")
    (root / "gone").symlink_to("nowhere")

    tree = Tree.scan(root)

    assert tree.block.file_count == 1
    assert tree.file("link") == tree.file("file")
    assert tree.file("gone") == NONE32
