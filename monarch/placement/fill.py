"""The order in which a node fetches its Files unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from monarch.placement.placement import Placement

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
    def part(self) -> float:
        """How much of it has been looked at: 1 is all of it."""
        return self._passed / len(self._files) if len(self._files) else 1.0

    def before(self, part: float) -> int:
        """Return how many Files lie before this part that were not looked at yet."""
        return max(0, int(part * len(self._files)) - self._passed)

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
) -> tuple[Files, Files]:
    """Return the Files that a node owns, and the others that it keeps.

    Both are in the order of the Catalog: so owners have those of the others that come
    first when they are asked for.
    """
    owned = placement.owners == own
    mine, others = np.flatnonzero(kept & owned), np.flatnonzero(kept & ~owned)
    return mine.astype(np.uint32), others.astype(np.uint32)
