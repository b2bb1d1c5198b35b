"""What is sent for although no program waits: in which order, how much at once."""

import math
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.placement import FillOrder
from monarch.stager.transfer import Flight

LOOK_AHEAD: Final = 2
FETCHES_AHEAD: Final = 128
"""Arrivals are told in batches, and some wait until their owners have read them."""
FETCHED_BYTES_AHEAD: Final = 8 << 20
FETCHED_BYTES_BUSY: Final = 1 << 20
"""What programs ask for comes behind these bytes; less where they keep asking."""
BUSY_S: Final = 0.5
"""Programs that asked this lately will ask again."""
BEHIND_PART: Final = 0.05
"""So much of its own a node is ahead with when it fetches what others own."""


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

    Two orders are gone through side by side: what this node reads from the Origin, and
    what it fetches from peers, a little behind, because they go on as fast with theirs.

    Attributes:
        clock: seconds that never go back.
        order: the Files to be read from the Origin that fill has not come to.
        others: those to be fetched.
        count: how many Transfers are under way.
        rests: nothing is fetched from other nodes.
        stuck: Transfers that hang at an origin, of both classes and of background:
            they take no room.
    """

    def __init__(self, settings: FillSettings, sizes: npt.NDArray[np.uint64]) -> None:
        self.settings = settings
        self.order = FillOrder(range(len(sizes)))
        self.others = FillOrder(range(0))
        self.count = 0
        self.rests = False
        self.stuck = (0, 0)
        self.clock = time.monotonic
        self._sizes = sizes
        self._mean_bytes = max(1, int(sizes.mean())) if len(sizes) else 1
        self._fetched: set[int] = set()
        self._bytes = 0
        self._asked_s = -math.inf

    def __repr__(self) -> str:
        left = self.order.remaining + self.others.remaining
        return f"{self.count} of them background, {left} to look at"

    @property
    def is_done(self) -> bool:
        """Whether fill has looked at every File, or is not wanted."""
        left = self.order.remaining or self.others.remaining
        return not (self.settings.enabled and left)

    def begin_with(self, order: FillOrder, others: FillOrder) -> None:
        """Begin with other orders."""
        self.order, self.others = order, others

    def is_large(self, file: int) -> bool:
        """Return whether no program waits for a File even if it asks for it."""
        return bool(self._sizes[file] > self.settings.urgent_bytes_max)

    def begin(self, flight: Flight) -> None:
        """A Transfer begins."""
        if not flight.is_background:
            self._asked_s = self.clock()
            return
        self.count += 1
        if flight.peer is not None:
            self._fetched.add(flight.file)
            self._bytes += int(self._sizes[flight.file])

    def end(self, flight: Flight) -> None:
        """A Transfer has ended."""
        if not flight.is_background:
            return
        self.count -= 1
        if flight.file in self._fetched:
            self._fetched.remove(flight.file)
            self._bytes -= int(self._sizes[flight.file])

    def next(self, in_flight: int) -> tuple[FillOrder, int]:
        """Return where the next Files are to be taken from, and how many may begin.

        Args:
            in_flight: all Transfers that are under way.
        """
        room = self.room(in_flight)
        if self.order.remaining and room > 0:
            return self.order, room
        return self.others, self._fetches_room()

    def room(self, in_flight: int) -> int:
        """Return how many more may begin to read the Origin.

        Half of all while programs wait for others.
        """
        most = LOOK_AHEAD * self.settings.concurrency
        if in_flight - self.stuck[0] > self.count - self.stuck[1]:
            most = max(1, most // 2)
        return most - (self.count - self.stuck[1] - len(self._fetched))

    def _fetches_room(self) -> int:
        """Return how many more may be fetched: they share the way of demand."""
        behind = self.others.before(self.order.part - BEHIND_PART)
        if self.rests or not (behind or not self.order.remaining):
            return 0
        busy = self.clock() - self._asked_s < BUSY_S
        left = (FETCHED_BYTES_BUSY if busy else FETCHED_BYTES_AHEAD) - self._bytes
        if left <= 0:
            return 0
        most = LOOK_AHEAD * self.settings.concurrency if busy else FETCHES_AHEAD
        most = min(most - len(self._fetched), 1 + left // self._mean_bytes)
        return min(most, behind) if self.order.remaining else most
