"""Scans of real little trees, for the tests of the catalog."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from monarch import native
from monarch.catalog.block import Block
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.origins.dataset import scan_index
from monarch.origins.index_file import RootIndex
from monarch.origins.root import open_root

NONE32 = 0xFFFFFFFF
EVERYTHING = Patterns()


@dataclass(frozen=True)
class Tree:
    """The index of a directory, asked by root-relative path."""

    index: RootIndex

    @classmethod
    def scan(
        cls, root: Path | bytes, patterns: Patterns = EVERYTHING, threads: int = 4
    ) -> "Tree":
        """Scans a directory."""
        made = open_root(os.fsencode(root))
        return cls(scan_index(made, patterns, threads=threads))

    @property
    def block(self) -> Block:
        """The index block."""
        return self.index.block

    @property
    def unmanaged(self) -> dict[Unmanaged, int]:
        """How many names were left out, by reason."""
        return dict(self.index.unmanaged)

    def find(self, path: str | bytes) -> int:
        """The Entry of a path, or -1."""
        return native.index_find(self.block.memory, os.fsencode(path))

    def is_link(self, number: int) -> bool:
        """Whether an Entry is a link."""
        attr = self.block.attrs[self.block.entries["attr"][number]]
        return stat.S_ISLNK(int(attr["mode"]))

    def file(self, path: str | bytes) -> int:
        """The File number of a path."""
        return int(self.block.entries["file"][self.entry(path)])

    def target(self, path: str | bytes) -> int:
        """The Entry that a path resolves to."""
        return int(self.block.entries["target"][self.entry(path)])

    def entry(self, path: str | bytes) -> int:
        """The Entry of a path that must be there."""
        number = self.find(path)
        assert number >= 0, f"{path!r} is not in the index"
        return number

    def paths(self) -> list[bytes]:
        """All paths of the dataset, in the order of their Entries."""
        return [self.block.path(i) for i in range(self.block.name_count)]

    def hops(self) -> dict[bytes, tuple[int, ...]]:
        """The index's status of directories and links outside the root, by path."""
        numbers = range(self.block.hop_start, len(self.block.entries))
        return {self.block.path(number): self.status_of(number) for number in numbers}

    def hop_target(self, path: bytes) -> int:
        """The Entry that a link outside the root resolves to."""
        for number in range(self.block.hop_start, len(self.block.entries)):
            if self.block.path(number) == path:
                return int(self.block.entries["target"][number])
        raise AssertionError(f"{path!r} is no hop")

    def status(self, path: str | bytes) -> tuple[int, ...]:
        """The index's status of a path, in the order of `lstat_of`."""
        return self.status_of(self.entry(path))

    def status_of(self, number: int) -> tuple[int, ...]:
        """The index's status of an Entry, in the order of `lstat_of`."""
        entry = self.block.entries[number]
        attr = self.block.attrs[entry["attr"]]
        times = ("ino", "size", "mtime_ns", "ctime_ns", "blocks")
        shared = ("mode", "uid", "gid", "nlink", "dev", "blksize")
        return tuple(
            [int(entry[name]) for name in times] + [int(attr[name]) for name in shared]
        )


def lstat_of(path: bytes) -> tuple[int, ...]:
    """The kernel's status of a path, in the order of `Tree.status`."""
    found = os.lstat(path)
    return (
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_blocks,
        found.st_mode,
        found.st_uid,
        found.st_gid,
        found.st_nlink,
        found.st_dev,
        found.st_blksize,
    )
