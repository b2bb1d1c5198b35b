"""What is sent for although no program waits: in which order, how much at once."""

import math
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.placement import FillOrder
from monarch.stager.flight import Flight

LOOK_AHEAD: Final = 2
FETCHES_AHEAD: Final = 128
"""Arrivals are told in batches, and some wait until their owners have read them."""
FETCHED_BYTES_AHEAD: Final = 8 << 20
FETCHED_BYTES_BUSY: Final = 1 << 20
"""What programs ask for comes behind these bytes; less where they keep asking."""
BUSY_S: Final = 0.5
"""Programs that asked this lately will ask again."""


@dataclass(frozen=True, slots=True)
class FillSettings:
    """Background staging: whether, and how many Transfers at once.

    Args:
        urgent_bytes_max: a larger File is copied in the background even if a program
            asks for it, because no program waits for it.
    """

    enabled: bool
    concurrency: int
    urgent_bytes_max: int


class Background:
    """Counts the Transfers that yield to others, and knows which come next.

    Attributes:
        clock: seconds that never go back.
        order: the Files that fill has not come to.
        count: how many Transfers are under way.
        rests: nothing is fetched from other nodes.
    """

    def __init__(self, settings: FillSettings, sizes: npt.NDArray[np.uint64]) -> None:
        self.settings = settings
        self.order = FillOrder(range(len(sizes)))
        self.count = 0
        self.rests = False
        self.clock = time.monotonic
        self._sizes = sizes
        self._mean_bytes = max(1, int(sizes.mean())) if len(sizes) else 1
        self._bytes = 0
        self._remote = 0
        self._asked_s = -math.inf

    def __repr__(self) -> str:
        return f"{self.count} of them background, {self.order.remaining} to look at"

    @property
    def is_done(self) -> bool:
        """Whether fill has looked at every File, or is not wanted."""
        return not self.settings.enabled or self.order.remaining == 0

    def begin_with(self, order: FillOrder, remote: int = 0) -> None:
        """Begin with another order.

        Args:
            remote: so many of the last Files come from other nodes.
        """
        self.order, self._remote = order, remote

    def is_large(self, file: int) -> bool:
        """Return whether no program waits for a File even if it asks for it."""
        return bool(self._sizes[file] > self.settings.urgent_bytes_max)

    def begin(self, flight: Flight) -> None:
        """A Transfer begins."""
        if flight.is_background:
            self.count += 1
            self._bytes += int(self._sizes[flight.file])
        else:
            self._asked_s = self.clock()

    def end(self, flight: Flight) -> None:
        """A Transfer has ended."""
        if flight.is_background:
            self.count -= 1
            self._bytes -= int(self._sizes[flight.file])

    def room(self, in_flight: int) -> int:
        """Return how many more may begin; half of all while programs wait for others.

        Args:
            in_flight: all Transfers that are under way.
        """
        most = LOOK_AHEAD * self.settings.concurrency
        if self._remote and self.order.remaining <= self._remote:
            return self._fetches_room(most)
        if in_flight > self.count:
            most = max(1, most // 2)
        return most - self.count

    def _fetches_room(self, busy_max: int) -> int:
        """Return how many more may be fetched: they share the way of demand."""
        if self.rests:
            return 0
        busy = self.clock() - self._asked_s < BUSY_S
        left = (FETCHED_BYTES_BUSY if busy else FETCHED_BYTES_AHEAD) - self._bytes
        if left <= 0:
            return 0
        most = busy_max if busy else FETCHES_AHEAD
        return min(most - self.count, 1 + left // self._mean_bytes)
