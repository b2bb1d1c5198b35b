"""Random trees: what the index answers is what the kernel answers."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.trees import Tree, lstat_of

NAMES = st.one_of(
    st.sampled_from([b"a", b"b", b"a-", b"a0", b"a!", b"ab", b"A"]),
    st.binary(min_size=1, max_size=6)
    .map(lambda raw: raw.replace(b"/", b"_").replace(b"\0", b"0"))
    .filter(lambda raw: raw not in (b".", b"..")),
)
KINDS = st.sampled_from(["file", "directory", "hard", "link"])
STEPS = st.lists(
    st.tuples(KINDS, NAMES, st.integers(0, 30), st.integers(0, 30)), max_size=25
)


@contextmanager
def built(steps: list[tuple[str, bytes, int, int]]) -> Iterator[bytes]:
    """A tree made by the steps; each names a parent and an older path by number."""
    top = tempfile.mkdtemp()
    directories, made = [os.fsencode(top)], [os.fsencode(top)]
    try:
        for kind, name, parent, older in steps:
            path = directories[parent % len(directories)] + b"/" + name
            try:
                grow(kind, path, made[older % len(made)])
            except OSError:
                continue  # the name is taken, or a hard link is impossible
            made.append(path)
            if kind == "directory":
                directories.append(path)
        yield os.fsencode(top)
    finally:
        shutil.rmtree(top)


def grow(kind: str, path: bytes, older: bytes) -> None:
    """Makes one name."""
    if kind == "file":
        with open(path, "xb") as file:
            file.write(path)
    elif kind == "directory":
        os.mkdir(path)
    elif kind == "hard":
        os.link(older, path, follow_symlinks=False)
    else:
        os.symlink(os.path.relpath(older, os.path.dirname(path)), path)


def real_paths(root: bytes) -> set[bytes]:
    """All paths that a walk which follows no link finds."""
    found: set[bytes] = set()
    for folder, directories, files in os.walk(root):
        found.update(os.path.join(folder, name) for name in directories + files)
    return {os.path.relpath(path, root) for path in found} | {b""}


@settings(max_examples=60, deadline=None)
@given(STEPS, NAMES)
def test_the_index_answers_what_lstat_answers(
    steps: list[tuple[str, bytes, int, int]], other: bytes
) -> None:
    with built(steps) as root:
        tree = Tree.scan(root, threads=2)

        paths = tree.paths()
        assert paths == sorted(set(paths))
        assert real_paths(root) <= set(paths)
        for path in paths:
            real = os.path.join(root, path) if path else root
            assert tree.status(path) == lstat_of(real)
            target = tree.target(path)
            if os.path.islink(real) and target < len(paths):
                goal = os.path.join(root, paths[target])
                assert os.path.realpath(real) == os.path.realpath(goal)
        for path in [*paths, b""]:
            absent = path + b"/" + other if path else other
            if absent not in paths:
                assert tree.find(absent) == -1


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_two_names_share_a_file_exactly_if_they_are_one_inode(
    steps: list[tuple[str, bytes, int, int]],
) -> None:
    with built(steps) as root:
        tree = Tree.scan(root, threads=2)

        inode_of: dict[int, int] = {}
        for path in tree.paths():
            real = Path(os.fsdecode(os.path.join(root, path)))
            if real.is_file() and tree.target(path) < len(tree.block.entries):
                inode = real.stat().st_ino
                assert inode_of.setdefault(tree.file(path), inode) == inode
        assert len(set(inode_of.values())) == len(inode_of) == tree.block.file_count
