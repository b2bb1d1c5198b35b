"""Filling a limited room with Files, in their order and without splitting any."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint64]


def fitting(needs: Bytes, free_bytes: int) -> npt.NDArray[np.bool_]:
    """Return which Files get room: each that fits when its turn comes.

    A File that does not fit is passed over, and smaller ones after it still get room.
    """
    ends = np.cumsum(needs, dtype=np.uint64)
    taken: npt.NDArray[np.bool_] = ends <= np.uint64(free_bytes)
    if taken.all():
        return taken
    head = int(np.argmin(taken))
    taken[head:] = False
    left = free_bytes - (int(ends[head - 1]) if head else 0)
    rest = head + np.flatnonzero(needs[head:] <= np.uint64(left))
    for place, need in zip(rest.tolist(), needs[rest].tolist(), strict=True):
        if need <= left:
            taken[place] = True
            left -= need
    return taken
