"""A numpy view of an index block: header, Entries, attributes and paths of a root."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from monarch import native

NONE32 = np.uint32(0xFFFFFFFF)
"""No number: an Entry without a File, a link without a target."""

Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[Any]

_HEADER = native.DTYPES["index"]


def aligned(offset: int) -> int:
    """Return the next multiple of eight, where every array of a segment begins."""
    return -(-offset // 8) * 8


class Block:
    """A view of the bytes of one index block; nothing is copied."""

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
        self.header: Records = memory[: _HEADER.itemsize].view(_HEADER)[0]

    def __repr__(self) -> str:
        return (
            f"Block(files={self.file_count}, directories={self.directory_count}, "
            f"bytes={len(self.memory)})"
        )

    @property
    def file_count(self) -> int:
        """Return the number of Files."""
        return int(self.header["file_count"])

    @property
    def directory_count(self) -> int:
        """Return the number of directories."""
        return int(self.header["dir_count"])

    @property
    def directories_inside(self) -> int:
        """Return the number of directories with a name in the root."""
        found = np.flatnonzero(
            self.modes()[: self.hop_start] & 0o170000 == stat.S_IFDIR
        )
        return len(np.unique(self.entries["file"][found]))

    @property
    def digest(self) -> int:
        """Return the digest of everything after the header."""
        return int(self.header["digest"])

    @property
    def identity(self) -> int:
        """Return the digest of the identities of all Files."""
        return int(self.header["identity"])

    @property
    def entries(self) -> Records:
        """Return the Entries, sorted by path."""
        return self.array("entries", "entry_count", native.DTYPES["entry"])

    @property
    def attrs(self) -> Records:
        """Return the attribute records that Entries share."""
        return self.array("attrs", "attr_count", native.DTYPES["attr"])

    @property
    def first_entry(self) -> npt.NDArray[np.uint32]:
        """Return for each File the first Entry that names it."""
        return self.array("first_entry", "file_count", np.dtype(np.uint32))

    @property
    def arena(self) -> Bytes:
        """Return the bytes of all paths."""
        return self.array("arena", "arena_bytes", np.dtype(np.uint8))

    def array(self, offset: str, count: str, dtype: np.dtype[np.generic]) -> Records:
        """Return the array whose offset and length these header fields contain."""
        start = int(self.header[offset])
        stop = start + int(self.header[count]) * dtype.itemsize
        return self.memory[start:stop].view(dtype)

    def path(self, entry: int) -> bytes:
        """Return the root-relative path of an Entry."""
        reference = int(self.entries["path"][entry])
        start = reference >> 16
        return self.arena[start : start + (reference & 0xFFFF)].tobytes()

    @property
    def name_count(self) -> int:
        """Return the number of Entries of names; those outside the root follow."""
        return int(self.header["name_count"])

    @property
    def hop_start(self) -> int:
        """Return the first Entry of a directory or link outside the root."""
        return self.name_count + int(self.header["outer_count"])

    def sizes(self) -> npt.NDArray[np.uint64]:
        """Return the size of each File."""
        sizes: npt.NDArray[np.uint64] = self.entries["size"][self.first_entry]
        return sizes

    def modes(self) -> npt.NDArray[np.uint32]:
        """Return the mode of each Entry."""
        modes: npt.NDArray[np.uint32] = self.attrs["mode"][self.entries["attr"]]
        return modes

    def move_to_devices(self, devices: Mapping[int, int]) -> None:
        """Replace the device numbers of file systems by those of this machine."""
        header = self.memory[: _HEADER.itemsize].view(_HEADER)
        known = self.attrs["dev"].copy()
        for before, now in devices.items():
            self.attrs["dev"][known == before] = now
        root_dev = int(header["root_dev"][0])
        header["root_dev"] = devices.get(root_dev, root_dev)
        native.index_finish(self.memory)

    def is_outer(self, entry: int) -> bool:
        """Return whether an Entry is the target of a link that leaves the root."""
        return self.name_count <= entry < self.hop_start

    def lookup_path(self, entry: int) -> bytes:
        """Return a path that leads to an Entry from the root, without its last link.

        A file that only a link leads to has no such path; the link's is returned.
        """
        path = self.path(entry)
        is_directory = self.attrs["mode"][self.entries["attr"][entry]] & 0o170000
        if self.is_outer(entry) and is_directory == stat.S_IFDIR:
            return path + b"/."
        return path or b"."

    def devices(self) -> dict[int, int]:
        """Return a directory's Entry for each device, the root's first."""
        places = np.fromiter(self.directories(), np.int64)
        found = self.attrs["dev"][self.entries["attr"][places]].tolist()
        first: dict[int, int] = {}
        for dev, place in zip(found, places.tolist(), strict=True):
            first.setdefault(dev, place)
        return first

    def directories(self) -> Iterator[int]:
        """Iterate over one Entry of each directory, the root first."""
        places = np.flatnonzero(self.modes() & 0o170000 == stat.S_IFDIR)
        _, first = np.unique(self.entries["file"][places], return_index=True)
        yield from places[np.sort(first)].tolist()
