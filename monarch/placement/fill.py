"""The order in which a node fetches its Files unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.placement.place import Placement

LOOKED_AT_MAX = 64

Files: TypeAlias = npt.NDArray[np.uint32]


class FillOrder:
    """The Files of this node in the order of background fill; each is passed once.

    Args:
        files: by their numbers; a node alone holds all, in the order of the Catalog.
    """

    def __init__(self, files: range | Files) -> None:
        self._files = files
        self._passed = 0

    def __repr__(self) -> str:
        return f"<FillOrder {self.remaining} remaining>"

    @property
    def remaining(self) -> int:
        """How many Files have not been looked at."""
        return len(self._files) - self._passed

    def take(self, wanted: int, is_due: Callable[[int], bool]) -> list[int]:
        """Return up to `wanted` next Files that are due, passing over the others.

        At most 64 Files are looked at for each that is wanted, so that one call stays
        short even where everything is staged already.
        """
        due: list[int] = []
        part = self._files[self._passed : self._passed + LOOKED_AT_MAX * wanted]
        for file in part if isinstance(part, range) else part.tolist():
            self._passed += 1
            if is_due(file):
                due.append(file)
                if len(due) == wanted:
                    break
        return due


def fill_files(
    placement: Placement, kept: npt.NDArray[np.bool_], own: int
) -> tuple[Files, int]:
    """Return the Files that a node owns, then the others that it keeps: how many those.

    Both in the order of the Catalog, but each node begins with the others at another
    place, so that they do not all ask the same owner at the same time.
    """
    owned = placement.owners == own
    others = np.flatnonzero(kept & ~owned)
    start = len(others) * own // len(placement.nodes)
    parts = (np.flatnonzero(kept & owned), others[start:], others[:start])
    return np.concatenate(parts).astype(np.uint32), len(others)
