"""Background fill: which Files it orders next, and how many at once."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.stager.policy import Files, Policy
from monarch.stager.transfer import Transfer

LOOKED_AT_MAX: Final = 64
LOOK_AHEAD: Final = 2
FETCHES_AHEAD: Final = 128
"""Ends of Fetches come in batches, and some wait until owners have read the Files."""
FETCHED_BYTES_AHEAD: Final = 8 << 20
FETCHED_BYTES_BUSY: Final = 1 << 20
"""Requests of programs queue behind these bytes: fewer while they keep asking."""
BUSY_S: Final = 0.5
"""Programs that asked this recently are expected to ask again."""
BEHIND_PART: Final = 0.05
"""How far this node's own reading is ahead of its fetching, as a part of each order."""


@dataclass(frozen=True, slots=True)
class StagerSettings:
    """What a user may set of staging.

    Args:
        fill: whether Files are staged in the background.
        concurrency: how many background Transfers run at once.
        urgent_bytes_max: a larger File is copied in the background even if a program
            asks for it, because no program waits for it.
        clock: seconds that never go back.
    """

    fill: bool
    concurrency: int
    urgent_bytes_max: int
    clock: Callable[[], float] = time.monotonic

    def is_large(self, size_bytes: int) -> bool:
        """Return whether no program waits for a File of this size."""
        return size_bytes > self.urgent_bytes_max


class FillOrder:
    """Files in the order of background fill; each is passed once."""

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
        """Return how many Files before this part have not been looked at."""
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


class Fill:
    """Counts background Transfers, and chooses which come next.

    Two orders are gone through side by side: what this node reads from the Origin, and
    what it fetches from peers. The second stays a little behind the first, because
    peers go on as fast with what they read.

    Attributes:
        paused: nothing is fetched from peers.
        stuck: how many Transfers hang at an origin, of both classes and of background:
            they take no room.
    """

    def __init__(self, settings: StagerSettings, sizes: npt.NDArray[np.uint64]) -> None:
        self.paused = False
        self.stuck = (0, 0)
        self._settings = settings
        self._sizes = sizes
        self._mean_bytes = max(1, int(sizes.mean())) if len(sizes) else 1
        self._to_read = self._to_fetch = FillOrder(range(0))
        self._count = 0
        self._fetched: set[int] = set()
        self._fetched_bytes = 0
        self._asked_s = -math.inf

    def __repr__(self) -> str:
        left = self._to_read.remaining + self._to_fetch.remaining
        return f"<Fill {self._count} in flight, {left} to look at>"

    @property
    def is_done(self) -> bool:
        """Whether fill has looked at every File, or is not wanted."""
        left = self._to_read.remaining or self._to_fetch.remaining
        return not (self._settings.fill and left)

    def start(self, policy: Policy) -> None:
        """Look at every File that the Policy has fill stage."""
        self._to_read = FillOrder(policy.to_read)
        self._to_fetch = FillOrder(policy.to_fetch)

    def start_fetching(self, policy: Policy) -> None:
        """Look again at the Files that come from peers, and at no others."""
        self._to_read = FillOrder(range(0))
        self._to_fetch = FillOrder(policy.to_fetch)

    def begin(self, transfer: Transfer) -> None:
        """Count a Transfer that begins."""
        if not transfer.is_background:
            self._asked_s = self._settings.clock()
            return
        self._count += 1
        if transfer.peer is not None:
            self._fetched.add(transfer.file)
            self._fetched_bytes += int(self._sizes[transfer.file])

    def end(self, transfer: Transfer) -> None:
        """Count a Transfer that has ended."""
        if not transfer.is_background:
            return
        self._count -= 1
        if transfer.file in self._fetched:
            self._fetched.remove(transfer.file)
            self._fetched_bytes -= int(self._sizes[transfer.file])

    def next(self, in_flight: int) -> tuple[FillOrder, int]:
        """Return the order from which to take the next Files, and how many may begin.

        Args:
            in_flight: all Transfers that are under way.
        """
        room = self.room(in_flight)
        if self._to_read.remaining and room > 0:
            return self._to_read, room
        return self._to_fetch, self._fetch_room()

    def room(self, in_flight: int) -> int:
        """Return how many more may begin to read the Origin.

        Half of all while programs wait for others.
        """
        most = LOOK_AHEAD * self._settings.concurrency
        if in_flight - self.stuck[0] > self._count - self.stuck[1]:
            most = max(1, most // 2)
        return most - (self._count - self.stuck[1] - len(self._fetched))

    def _fetch_room(self) -> int:
        """Return how many more may be fetched: they share connections with demand."""
        behind = self._to_fetch.before(self._to_read.part - BEHIND_PART)
        reading = self._to_read.remaining
        if self.paused or not (behind or not reading):
            return 0
        busy = self._settings.clock() - self._asked_s < BUSY_S
        left = FETCHED_BYTES_BUSY if busy else FETCHED_BYTES_AHEAD
        left -= self._fetched_bytes
        if left <= 0:
            return 0
        most = LOOK_AHEAD * self._settings.concurrency if busy else FETCHES_AHEAD
        most = min(most - len(self._fetched), 1 + left // self._mean_bytes)
        return min(most, behind) if reading else most
