"""Hashes, index blocks and Replica names, as the C code of all parts computes them."""

import ctypes
import errno
import mmap
import os
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.native.layout import CONSTANTS
from monarch.native.library import LIB

Memory: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[Any]


class BlockError(ValueError):
    """An index block that cannot be what it claims to be."""


def hash64(content: Memory, seed: int = 0) -> int:
    """The 64-bit XXH3 of some bytes."""
    start, size = span(content)
    return int(LIB.monarch_hash(start, size, seed))


def index_finish(block: Memory) -> None:
    """Fills the path table, the inode table and the digest of a new block.

    Raises FileExistsError if a path occurs twice, BlockError if the block is broken.
    """
    start, size = span(block)
    code = LIB.monarch_index_finish(start, size)
    if code == -errno.EEXIST:
        raise FileExistsError(errno.EEXIST, "a path occurs twice in the index")
    if code:
        raise BlockError(f"broken index block: {os.strerror(-code)}")


def index_check(block: Memory) -> None:
    """Proves that a block from a file can be used; BlockError if it cannot."""
    start, size = span(block)
    code = LIB.monarch_index_check(start, size)
    if code == -errno.EBADMSG:
        raise BlockError("the index is damaged: its checksum is wrong")
    if code:
        raise BlockError(f"broken index block: {os.strerror(-code)}")


def index_find(block: Memory, rel: bytes) -> int:
    """The number of the Entry with this root-relative path, or -1."""
    return int(LIB.monarch_index_find(span(block)[0], rel, len(rel)))


def index_find_inode(block: Memory, dev: int, ino: int) -> int:
    """The number of the first Entry with this device and inode, or -1."""
    return int(LIB.monarch_index_find_inode(span(block)[0], dev, ino))


def inodes_unstable(directory: bytes) -> bool:
    """Whether a file below a directory may get another inode where it is.

    What cannot be asked about is taken for unstable.
    """
    return bool(LIB.monarch_inodes_unstable(directory))


def replica_name(block: Memory, root: bytes, entry: int) -> str:
    """The name in a Tier of the File whose first Entry this is.

    Args:
        root: realpath of the root that the block describes.
    """
    name = ctypes.create_string_buffer(CONSTANTS["REPLICA_NAME_BYTES"])
    LIB.monarch_replica_name(span(block)[0], hash64(root), entry, name)
    return name.raw.decode()


def span(memory: Memory) -> tuple[int, int]:
    """Address and length of a buffer; valid while the caller keeps the buffer."""
    if isinstance(memory, np.ndarray):
        if not memory.flags.c_contiguous:
            raise ValueError("the data plane needs contiguous memory")
        return memory.ctypes.data, memory.nbytes
    view = np.frombuffer(memory, dtype=np.uint8)
    return view.ctypes.data, view.nbytes
