"""The order in which a node fetches its Files unasked."""

from collections.abc import Callable
from itertools import islice


class FillOrder:
    """The Files of this node in the order of background fill: that of the Catalog.

    A node alone holds every File; the cursor passes each of them once.
    """

    def __init__(self, file_count: int) -> None:
        self._files = iter(range(file_count))
        self.remaining = file_count

    def __repr__(self) -> str:
        return f"<FillOrder {self.remaining} remaining>"

    def take(self, wanted: int, is_due: Callable[[int], bool]) -> list[int]:
        """Return up to `wanted` next Files that are due, passing over the others.

        At most 64 Files are looked at for each that is wanted, so that one call stays
        short even where everything is staged already.
        """
        due: list[int] = []
        for file in islice(self._files, 64 * wanted):
            self.remaining -= 1
            if is_due(file):
                due.append(file)
                if len(due) == wanted:
                    break
        return due
