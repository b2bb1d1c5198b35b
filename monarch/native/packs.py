"""Pack files that jobs have retained, read by the data plane."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.native.codecs import Packing, packing_records
from monarch.native.layout import CONSTANTS, DTYPES
from monarch.native.library import LIB, span

PACK_ENTRY = DTYPES["monarch_pack_entry"]
NO_FILE = CONSTANTS["NO_FILE"]
PackIndex: TypeAlias = npt.NDArray[Any]
"""By frame: name of its Replica, extent, plain, offset, bytes, ID of its packing, and
the number of its Blocks of a large File, or 0 for a small one."""


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def read_index(path: Path) -> PackIndex | None:
    """Return the index of a pack file; None if it is missing or damaged."""
    try:
        fd = _open(path)
    except OSError:
        return None
    try:
        count = int(LIB.monarch_pack_index_read(fd, None, 0))
        if count <= 0:
            return None
        rows = np.zeros(count, PACK_ENTRY)
        found = int(LIB.monarch_pack_index_read(fd, span(rows)[0], count))
        return rows if found == count else None
    finally:
        os.close(fd)


def names_of(index: PackIndex) -> list[bytes]:
    """Return the names of the Replicas of an index, 16 bytes each."""
    names = np.ascontiguousarray(index["name"]).tobytes()
    return [names[at : at + 16] for at in range(0, len(names), 16)]


def packing_id(packing: Packing) -> int:
    """Return the ID in frames of this codec and dictionary."""
    return int(LIB.monarch_packing_id(span(packing_records([packing]))[0]))


def is_frame_right(path: Path, entry: PackIndex, packing: Packing) -> bool:
    """Decode a frame, and compare the checksum of its plain bytes.

    Args:
        entry: a row of the index of the file.

    Raises:
        OSError: the file was removed, or this node cannot decode it.
    """
    fd = _open(path)
    try:
        row, how = np.array([entry], PACK_ENTRY), packing_records([packing])
        code = int(LIB.monarch_pack_verify(fd, span(row)[0], span(how)[0]))
    finally:
        os.close(fd)
    if code and code != -errno.EBADMSG:
        raise OSError(-code, os.strerror(-code))
    return code == 0
