"""Random trees: the index answers as the kernel does."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.trees import NONE32, Tree, lstat_of

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
def built(
    steps: list[tuple[str, bytes, int, int]], names: tuple[bytes, ...] = (b"",)
) -> Iterator[bytes]:
    """A tree made by the steps; each names a parent and an older path by number.

    Args:
        names: of the trees that are made at once, with links to each other; the first
            is given.
    """
    top = tempfile.mkdtemp()
    tops = [os.path.join(os.fsencode(top), name).rstrip(b"/") for name in names]
    for one in tops:
        os.makedirs(one, exist_ok=True)
    directories, made = [*tops], [*tops]
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
        yield tops[0]
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


LINKS_MAX = 8
"""So many links the Shim follows within a path (`route.c`)."""
DEPTH_MAX, NAMES_MAX = 6, 300


def walked(root: bytes) -> list[bytes]:
    """Paths of regular files that a program finds by following every link."""
    found: list[bytes] = []
    folders = [root]
    while folders and len(found) < NAMES_MAX:
        folder = folders.pop(0)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                found.append(os.path.relpath(path, root))
            elif (
                os.path.isdir(path) and path.count(b"/") < root.count(b"/") + DEPTH_MAX
            ):
                folders.append(path)
    return found


def resolved(tree: Tree, path: bytes) -> int | None:
    """The Entry to which the Catalog leads from a path, as the Shim goes."""
    for _ in range(LINKS_MAX):
        entry = tree.find(path)
        if entry >= 0:
            target = int(tree.block.entries["target"][entry])
            return target if tree.is_link(entry) else entry
        head = next((one for one in heads(path) if tree.find(one) >= 0), None)
        if head is None or not tree.is_link(tree.find(head)):
            return None
        target = tree.target(head)
        if target == NONE32 or tree.block.path(target) == head:
            return None
        path = (tree.block.path(target) + path[len(head) :]).lstrip(b"/")
    return None


def heads(path: bytes) -> Iterator[bytes]:
    """The directories in a path, the deepest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def returns(root: bytes, path: bytes) -> bool:
    """Whether a link on a path leads to a directory that it passed, or above one."""
    passed = [root]
    for name in reversed([path, *heads(path)]):
        full = os.path.join(root, name)
        real = os.path.realpath(full)
        if os.path.islink(full) and any(
            (place + b"/").startswith(real + b"/") for place in passed
        ):
            return True
        passed.append(real)
    return False


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_links_out_of_the_root_lead_where_they_lead_for_a_program(
    steps: list[tuple[str, bytes, int, int]],
) -> None:
    with built(steps, (b"root", b"far", b"farther")) as root:
        root = os.path.realpath(root)
        tree = Tree.scan(root, threads=2)

        for path in walked(root):
            entry, real = resolved(tree, path), os.path.join(root, path)
            if entry is None or entry == NONE32:
                assert returns(root, path), path
                continue
            status = os.stat(real)
            found = tree.status_of(entry)
            assert (found[0], found[9]) == (status.st_ino, status.st_dev), path
