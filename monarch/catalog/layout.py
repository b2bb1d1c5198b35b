"""What the catalog asks of the native layouts, which layer 3 passes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

NONE32 = np.uint32(0xFFFFFFFF)
"""No number: an unmanaged Entry, a link without a target."""

Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[Any]
Finish = Callable[[Bytes], None]
"""Fill the tables and the digest of a block in place."""
Hash = Callable[[bytes], int]


@dataclass(frozen=True, slots=True)
class Layout:
    """The structs and constants of ``layout.h`` as numpy knows them.

    Attributes:
        segments: number of each kind of segment, by its name such as CATALOG.
    """

    dtypes: Mapping[str, np.dtype[Any]]
    constants: Mapping[str, int]
    segments: Mapping[str, int]


def aligned(offset: int) -> int:
    """Return the next multiple of eight, where every array of a segment begins."""
    return -(-offset // 8) * 8
