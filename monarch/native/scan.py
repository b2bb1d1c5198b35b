"""The names of open directories and their metadata, many per call."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from monarch.native.layout import CONSTANTS, DTYPES
from monarch.native.library import LIB

LIST_BYTES = CONSTANTS["SCAN_LIST_BYTES"]
FOUND = DTYPES["monarch_found"]
ROW = DTYPES["monarch_row"]

Records = npt.NDArray[Any]


def list_names(fd: int) -> tuple[list[bytes], bytes]:
    """Return the next names of an open directory, and the DT_ type of each.

    Returns:
        No names after the last ones.

    Raises:
        OSError: the directory cannot be read.
    """
    names = ctypes.create_string_buffer(LIST_BYTES)
    types = ctypes.create_string_buffer(LIST_BYTES)
    used = LIB.monarch_scan_list(fd, names, types)
    if used < 0:
        raise OSError(-used, os.strerror(-used))
    found = ctypes.string_at(names, used).split(b"\0")[:-1]
    return found, ctypes.string_at(types, len(found))


def find_names(
    fd: int, names: list[bytes], *, rights: bool, limit_ns: int = 0
) -> Records:
    """Return the metadata of the first names, or of all, of a directory.

    Args:
        rights: whether to check which of them this process may read.
        limit_ns: begin no further name after this time; 0: no limit.
    """
    count = len(names)
    found = np.empty(count, FOUND)
    text = b"\0".join(names)
    place = found.ctypes.data
    count = LIB.monarch_scan_find(fd, text, count, place, limit_ns)
    if rights:
        LIB.monarch_scan_readable(fd, text, count, place)
    return found[:count]


def make_rows(found: Records, root_dev: int) -> tuple[Records, npt.NDArray[np.uint8]]:
    """Return the rows of the Catalog, and the ScanKind of each name.

    The `attr` of a row is the position in `found` of a name with equal attributes.
    """
    count = len(found)
    rows, kinds = np.empty(count, ROW), np.empty(count, np.uint8)
    LIB.monarch_scan_rows(
        found.ctypes.data, count, root_dev, rows.ctypes.data, kinds.ctypes.data
    )
    return rows, kinds


def rights_are_local(fd: int) -> bool:
    """Return whether checking read permissions in a directory costs no request."""
    return bool(LIB.monarch_rights_are_local(fd))


def is_pseudo(fd: int) -> bool:
    """Return whether the kernel generates the files of this file system (proc(5))."""
    return bool(LIB.monarch_is_pseudo(fd))
