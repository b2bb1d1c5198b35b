"""Hashes, index blocks and Replica names, computed by the C code."""

import ctypes
import errno
import os

import numpy as np
import numpy.typing as npt

from monarch.native.layout import CONSTANTS
from monarch.native.library import LIB, Memory, span


class BlockError(ValueError):
    """An index block that is damaged or malformed."""


def hash64(content: Memory, seed: int = 0) -> int:
    """Return the 64-bit XXH3 of some bytes."""
    start, size = span(content)
    return int(LIB.monarch_hash(start, size, seed))


def index_finish(block: Memory) -> None:
    """Fill the path table, the inode table and the digest of a new block.

    Raises:
        FileExistsError: a path occurs twice.
        BlockError: the block is malformed.
    """
    start, size = span(block)
    code = LIB.monarch_index_finish(start, size)
    if code == -errno.EEXIST:
        raise FileExistsError(errno.EEXIST, "a path occurs twice in the index")
    if code:
        raise BlockError(f"broken index block: {os.strerror(-code)}")


def index_check(block: Memory) -> None:
    """Check a block from a file; BlockError if it cannot be used."""
    start, size = span(block)
    code = LIB.monarch_index_check(start, size)
    if code == -errno.EBADMSG:
        raise BlockError("the index is damaged: its checksum is wrong")
    if code:
        raise BlockError(f"broken index block: {os.strerror(-code)}")


def index_find(block: Memory, rel: bytes) -> int:
    """Return the number of the Entry with this root-relative path, or -1."""
    return int(LIB.monarch_index_find(span(block)[0], rel, len(rel)))


def index_find_inode(block: Memory, dev: int, ino: int) -> int:
    """Return the number of the first Entry with this device and inode, or -1."""
    return int(LIB.monarch_index_find_inode(span(block)[0], dev, ino))


def replica_name(block: Memory, root: bytes, entry: int) -> str:
    """Return the name of the Replica of the File whose first Entry this is.

    Args:
        root: realpath of the root that the block describes.
    """
    name = ctypes.create_string_buffer(CONSTANTS["REPLICA_NAME_BYTES"])
    LIB.monarch_replica_name(span(block)[0], hash64(root), entry, name)
    return name.raw.decode()


def hint_files(catalog: Memory, paths: bytes) -> npt.NDArray[np.uint32]:
    """Return the Files of absolute paths, in their order.

    Args:
        catalog: the segment.
        paths: each ended by NUL; paths of no File are left out.
    """
    files = np.zeros(paths.count(b"\0") + 1, np.uint32)
    text = ctypes.c_char_p(paths)
    n = LIB.monarch_hint_files(span(catalog)[0], text, len(paths), span(files)[0])
    return files[:n]
