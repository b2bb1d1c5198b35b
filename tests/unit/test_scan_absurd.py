"""Stat values that no file can have affect their own Entry, never the scan."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch import native
from monarch.catalog.survey import Unmanaged
from support.trees import NONE32, Tree

NS = 1_000_000_000
FILES = [b"a", b"b", b"sub/c", b"sub/deep/d", b"link"]
NAMES = [b".", b"a", b"b", b"c", b"d", b"sub", b"deep", b"link"]
EDGES = [0, 1, -1, 1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1]
NUMBERS = st.one_of(st.sampled_from(EDGES), st.integers(-(1 << 64), 1 << 64))
UNSIGNED = st.one_of(
    st.sampled_from([edge for edge in EDGES if edge >= 0]),
    st.integers(0, (1 << 64) - 1),
)
TIMES = st.tuples(
    st.one_of(
        st.sampled_from([9_223_372_036, 9_223_372_037, -9_223_372_038, -1, 0]),
        st.integers(-(1 << 63), (1 << 63) - 1),
    ),
    st.sampled_from([0, 1, NS - 1, NS, -1, -NS]),
)
LIES = st.dictionaries(
    st.sampled_from(NAMES),
    st.fixed_dictionaries(
        {},
        optional={
            "ino": UNSIGNED,
            "size": NUMBERS,
            "nlink": UNSIGNED,
            "uid": st.sampled_from([-1, 0, 1, (1 << 32) - 2]),
            "gid": st.sampled_from([-1, 0, 1, (1 << 32) - 2]),
            "dev": UNSIGNED,
            "blocks": NUMBERS,
            "blksize": NUMBERS,
            "mtime": TIMES,
            "ctime": TIMES,
            "atime": TIMES,
        },
    ),
    max_size=len(NAMES),
)
Lie = dict[str, Any]
TIME_NAMES = ("mtime", "ctime", "atime")


def altered(found: Any, lie: Lie) -> None:
    """Changes some of the kernel's values for a name."""
    for name, value in lie.items():
        if name in TIME_NAMES:
            found[f"{name}_s"], rest = value
            found[f"{name}_ns"] = rest % (1 << 32)
        else:
            found[name] = value % (1 << 8 * found.dtype[name].itemsize)


@contextmanager
def lying(lies: dict[bytes, Lie]) -> Iterator[None]:
    """The file system returns other values for some names."""
    find_names = native.find_names

    def find_and_lie(fd: int, names: list[bytes], **how: Any) -> Any:
        found = find_names(fd, names, **how)
        for name, one in zip(names, found, strict=False):
            altered(one, lies.get(name, {}))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "find_names", find_and_lie)
        yield


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A little tree with a link."""
    top = Path(tempfile.mkdtemp())
    (top / "sub" / "deep").mkdir(parents=True)
    for name in FILES[:-1]:
        (top / os.fsdecode(name)).write_bytes(name)
    (top / "link").symlink_to("a")
    yield top
    shutil.rmtree(top)


def said(root: Path, path: bytes, lies: dict[bytes, Lie]) -> tuple[int, ...]:
    """The lying file system's status of a path, in the order of Tree.status."""
    fd = os.open(root, os.O_RDONLY)
    try:
        one = native.find_names(fd, [path or b"."], rights=False)[0]
    finally:
        os.close(fd)
    altered(one, lies.get(os.path.basename(path) or b".", {}))
    times = [int(one[f"{name}_s"]) * NS + int(one[f"{name}_ns"]) for name in TIME_NAMES]
    shared = ("blocks", "mode", "uid", "gid", "nlink", "dev", "blksize")
    return (
        int(one["ino"]),
        int(one["size"]),
        *times[:2],
        *(int(one[name]) for name in shared),
    )


@settings(max_examples=300, deadline=None)
@given(LIES)
def test_absurd_stat_values_never_end_a_scan_and_are_never_returned(
    root: Path, lies: dict[bytes, Lie]
) -> None:
    with lying(lies):
        tree = Tree.scan(root, threads=2)

    sizes = tree.block.sizes()
    assert (sizes <= 1 << 46).all()
    for path in tree.paths():
        entry = tree.block.entries[tree.entry(path)]
        if entry["blocks"] == NONE32:
            continue  # the Shim asks the origin
        assert tree.status(path) == said(root, path, lies), path
    for path in FILES:
        parts = path.split(b"/")
        if not any(part in lies for part in [b".", *parts]):
            assert tree.find(path) >= 0, "an honest Entry is left out"


@settings(max_examples=150, deadline=None)
@given(LIES)
def test_files_without_an_inode_are_never_taken_for_one(
    root: Path, lies: dict[bytes, Lie]
) -> None:
    for lie in lies.values():
        lie["ino"] = 0 if lie.get("ino", 0) in (0, 1) else (1 << 64) - 1
        lie.pop("dev", None)
    with lying(lies):
        tree = Tree.scan(root, threads=2)

    paths = [path for path in FILES[:-1] if tree.find(path) >= 0]
    assert len({tree.file(path) for path in paths}) == len(paths)
    assert not any(path.split(b"/")[-1] in lies for path in paths)


@pytest.mark.parametrize(
    "lie",
    [
        {"mtime": (9_246_182_400, 0)},
        {"mtime": (-9_246_182_400, 0)},
        {"ctime": (9_246_182_400, 0)},
        {"atime": (-(1 << 62), 0)},
        {"mtime": (5, NS)},
        {"ctime": (5, -1)},
        {"size": 1 << 62},
        {"size": -1},
        {"ino": 0},
        {"ino": (1 << 64) - 1},
        {"nlink": 1 << 40},
        {"blksize": -1},
    ],
    ids=str,
)
def test_an_absurd_value_leaves_one_file_to_the_origin(root: Path, lie: Lie) -> None:
    with lying({b"a": lie}):
        tree = Tree.scan(root)

    assert tree.find("a") == -1
    assert tree.find("b") >= 0
    assert tree.unmanaged[Unmanaged.ABSURD] == 1
    assert tree.target("link") == NONE32


@pytest.mark.parametrize("lie", [{"blocks": 1 << 40}, {"blocks": -7}], ids=str)
def test_block_counts_that_do_not_fit_are_requested_from_the_origin(
    root: Path, lie: Lie
) -> None:
    with lying({b"a": lie}):
        tree = Tree.scan(root)

    assert tree.block.entries["blocks"][tree.entry("a")] == NONE32


def test_an_owner_that_python_calls_minus_one_is_stored_correctly(root: Path) -> None:
    with lying({b"a": {"uid": -1, "gid": -1}}):
        tree = Tree.scan(root)

    attr = tree.block.attrs[tree.block.entries["attr"][tree.entry("a")]]
    assert (attr["uid"], attr["gid"]) == (np.uint32(0xFFFFFFFF), np.uint32(0xFFFFFFFF))


@pytest.mark.parametrize("name", [b".", b"sub"])
def test_a_directory_from_the_far_future_keeps_what_is_below_it(
    root: Path, name: bytes
) -> None:
    with lying({name: {"mtime": (9_246_182_400, 0)}}):
        tree = Tree.scan(root)

    path = b"" if name == b"." else name
    entry = tree.block.entries[tree.entry(path)]
    assert entry["blocks"] == NONE32
    assert stat.S_ISDIR(int(tree.block.attrs["mode"][entry["attr"]]))
    assert tree.find("sub/deep/d") >= 0
