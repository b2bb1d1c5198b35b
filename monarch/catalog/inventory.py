"""The roots of a job and its Files by number: names, sizes, Extents and paths."""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from monarch import native
from monarch.catalog.block import Block
from monarch.catalog.patterns import Patterns, Selection
from monarch.errors import UsageError, shown


@dataclass(frozen=True, slots=True)
class MappedRoot:
    """One dataset root: its path, the other names that programs use, and its index.

    Attributes:
        path: the realpath, which the agent uses to read the Origin.
        spellings: other absolute names: as the user wrote it, and aliases.
        unstable: the inode numbers of files may change.
        provisional: the attributes of Files are those of an earlier job.
        inside: links that leave it are not followed, by `links: inside`.
        chosen: only some of the names below it belong to the dataset.
        above: (dev, ino) of the directories and links above it; 0: it may change.
    """

    path: bytes
    spellings: tuple[bytes, ...]
    block: Block
    unstable: bool = False
    provisional: bool = False
    inside: bool = False
    chosen: bool = False
    above: tuple[tuple[int, int], ...] = ()

    def named_by(self, path: bytes, dev: int, ino: int) -> bytes | None:
        """Return the name of the root in a path of a File.

        It is empty if the path does not end with the name of the File in the root;
        None: the File is not in this root.
        """
        entry = native.index_find_inode(self.block.memory, dev, ino)
        if entry < 0:
            return None
        name = path.removesuffix(b"/" + self.block.path(entry))
        return b"" if name in (path, b"") else name


class Inventory:
    """Maps the number of a File to its size, Extents and path.

    Attributes:
        sizes: bytes of each File.
        extent_first: the number of each File's first Extent, where the Extents of all
            Files are numbered consecutively; one item more, which is the total.
    """

    def __init__(self, roots: Sequence[MappedRoot], extent_bytes: int) -> None:
        self._roots = tuple(roots)
        counts = [root.block.file_count for root in roots]
        self._bases: list[int] = np.cumsum([0, *counts])[:-1].tolist()
        self.sizes: npt.NDArray[np.uint64] = np.concatenate(
            [np.empty(0, np.uint64), *(root.block.sizes() for root in roots)]
        )
        self.extent_first = extents_of(self.sizes, extent_bytes)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all Files."""
        return int(self.sizes.sum())

    def root_of(self, file: int) -> int:
        """Return the number of the root of a File."""
        if not 0 <= file < len(self):
            raise IndexError(f"File {file} of {len(self)}")
        return bisect_right(self._bases, file) - 1

    def number_of(self, root: int, entry: int) -> int:
        """Return the number of the File that an Entry of a root names."""
        file = int(self._roots[root].block.entries["file"][entry])
        shared = native.CONSTANTS["FILE_SHARED"]
        return file & ~shared if file & shared else self._bases[root] + file

    def relative(self, file: int) -> bytes:
        """Return the first root-relative path of a File."""
        number = self.root_of(file)
        block = self._roots[number].block
        return block.path(int(block.first_entry[file - self._bases[number]]))

    def relatives(self, files: npt.NDArray[np.int64]) -> Iterator[bytes]:
        """Yield the first paths of many Files, in ascending order, much faster."""
        bounds = np.searchsorted(files, [*self._bases, len(self)]).tolist()
        for root, base, (start, stop) in zip(
            self._roots, self._bases, pairwise(bounds), strict=True
        ):
            block, arena = root.block, root.block.arena.data
            entries = block.first_entry[files[start:stop] - base]
            for reference in block.entries["path"][entries].tolist():
                at = reference >> 16
                yield arena[at : at + (reference & 0xFFFF)].tobytes()

    def first_matches(
        self, patterns: Sequence[tuple[str, ...]]
    ) -> npt.NDArray[np.uint8]:
        """Return for each File its first matching patterns, numbered from 1; or 0."""
        wanted = [Selection(Patterns(include=one)) for one in patterns]
        found = np.zeros(len(self), np.uint8)
        if not wanted:
            return found
        for file, path in enumerate(self.relatives(np.arange(len(self)))):
            hits = (n for n, one in enumerate(wanted, start=1) if one.includes(path))
            found[file] = next(hits, 0)
        return found

    def path(self, file: int) -> bytes:
        """Return the absolute path of a File on its Origin."""
        return self._roots[self.root_of(file)].path + b"/" + self.relative(file)


def extents_of(
    sizes: npt.NDArray[np.uint64], extent_bytes: int
) -> npt.NDArray[np.uint64]:
    """Return the number of each File's first Extent, followed by the total."""
    # An empty File has one Extent, too, because each File needs a checksum.
    extents = np.maximum((sizes + (extent_bytes - 1)) // extent_bytes, 1)
    firsts = np.cumsum(extents, dtype=np.uint64)
    return np.concatenate([np.zeros(1, np.uint64), firsts])


def catalog_digest(roots: Sequence[MappedRoot]) -> int:
    """Return the digest of the Catalog of these roots.

    Nodes that scan the same unchanged files get the same digest.
    """
    identities = np.array([root.block.identity for root in roots], np.uint64)
    return xxh3_64_intdigest(identities.tobytes())


@dataclass(frozen=True, slots=True)
class Prefix:
    """A path under which programs name a root, and the root's number."""

    path: bytes
    root: int


def prefixes_of(roots: Sequence[MappedRoot]) -> tuple[Prefix, ...]:
    """Return the names of all roots, the longest first: the first match is right.

    Raises:
        UsageError: a name is not absolute, two roots share a name, or a root is inside
            another.
    """
    _check_apart(roots)
    return _ordered(roots)


def _ordered(roots: Sequence[MappedRoot]) -> tuple[Prefix, ...]:
    owner: dict[bytes, int] = {}
    for number, root in enumerate(roots):
        for spelling in (root.path, *root.spellings):
            path = _normal(spelling)
            if owner.setdefault(path, number) != number:
                first = shown(roots[owner[path]].path)
                raise UsageError(
                    f"{shown(path)} is a name of two datasets, {first} and "
                    f"{shown(root.path)}; remove it from one of them"
                )
    ordered = sorted(owner.items(), key=lambda item: (-len(item[0]), item[0]))
    return tuple(Prefix(path, number) for path, number in ordered)


def _normal(spelling: bytes) -> bytes:
    if not spelling.startswith(b"/"):
        raise UsageError(f"alias {shown(spelling)}: use an absolute path")
    path = posixpath.normpath(spelling)
    path = path[1:] if path.startswith(b"//") else path
    if path == b"/":
        raise UsageError(f"alias {shown(spelling)}: use a subdirectory of /")
    return path


def _check_apart(roots: Sequence[MappedRoot]) -> None:
    ordered = sorted(root.path for root in roots)
    for outer, inner in pairwise(ordered):
        if outer == inner:
            raise UsageError(f"duplicate dataset {shown(outer)}")
    for outer in ordered:
        for inner in ordered:
            if inner.startswith(outer + b"/"):
                raise UsageError(
                    f"dataset {shown(inner)} is inside {shown(outer)}; "
                    "use only one of them"
                )
