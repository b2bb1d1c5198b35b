"""The order of the Records of an epoch: a pure function of seed and epoch.

The order is that of the whole job. Ranks take their slices of its global batches, so it
does not change with the number of ranks or nodes, and any place in it is found without
what came before: a job goes on in the middle of an epoch at once.

`group` is the shuffle of two levels: the Groups are shuffled, and then the Records of
each window of some Groups (CorgiPile, arXiv 2206.05830). Only the Groups of a window
are in memory at once. `global` shuffles all Records, which costs a read for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from monarch.errors import UsageError
from monarch.records.groups import Groups

Shuffle = Literal["global", "group", "none"]
Remainder = Literal["drop", "pad", "uneven"]
Array = npt.NDArray[Any]

_GROUPS: Final = 0
_RECORDS: Final = 1
"""What a stream of random numbers is for."""


class RecordOrder:
    """The orders of all epochs over some Groups.

    Args:
        seed: not negative.
        window: how many Groups are mixed with each other.

    Raises:
        UsageError: an argument cannot be.
    """

    def __init__(
        self, groups: Groups, *, seed: int = 0, shuffle: Shuffle, window: int
    ) -> None:
        if shuffle not in get_args(Shuffle):
            known = ", ".join(get_args(Shuffle))
            raise UsageError(f"shuffle={shuffle!r} is not valid; use one of {known}")
        if seed < 0:
            raise UsageError(f"seed={seed} is negative")
        if window < 1:
            raise UsageError(f"groups_in_flight={window} is less than 1")
        self.groups = groups
        self.seed = seed
        self.shuffle = shuffle
        self.window = window
        self._counts = groups.record_counts()

    def __repr__(self) -> str:
        return f"<RecordOrder {self.shuffle}, seed {self.seed}, {self.groups!r}>"

    def __len__(self) -> int:
        """Return how many Records an epoch has."""
        return len(self.groups.index)

    def epoch(self, number: int) -> EpochOrder:
        """Return the order of an epoch."""
        groups = np.arange(len(self.groups))
        if self.shuffle == "group":
            groups = self._random(number, _GROUPS, 0).permutation(groups)
        every = None
        if self.shuffle == "global":
            every = self._random(number, _RECORDS, 0).permutation(len(self))
        ends = np.cumsum(self._counts[groups], dtype=np.int64)
        return EpochOrder(self, number, groups, ends, every)

    def mixed(self, epoch: int, window: int, count: int) -> Array:
        """Return the places of the Records of a window, in the order of an epoch."""
        if self.shuffle != "group":
            return np.arange(count)
        return self._random(epoch, _RECORDS, window).permutation(count)

    def _random(self, epoch: int, use: int, number: int) -> np.random.Generator:
        # Philox gives the same numbers on all machines (NumPy's stream guarantee).
        key = np.random.SeedSequence((self.seed, epoch, use, number))
        return np.random.Generator(np.random.Philox(key))


@dataclass(frozen=True, slots=True, eq=False)
class EpochOrder:
    """The order of one epoch.

    Attributes:
        groups: the Groups, in the order of the epoch.
        ends: how many Records the Groups have together, up to each.
        every: the Records themselves, if all are shuffled; else None.
    """

    order: RecordOrder
    number: int
    groups: Array
    ends: Array
    every: Array | None

    def records(self, first: int, end: int) -> Array:
        """Return the Records at the places `first` to `end` of the epoch."""
        end = min(end, len(self.order))
        if self.every is not None:
            return self.every[first:end]
        parts = [np.empty(0, np.int64)]
        while first < end:
            window, begin, stop = self.window_at(first)
            places = self.order.mixed(self.number, window, stop - begin)
            wanted = places[first - begin : min(end, stop) - begin]
            parts.append(self._window_records(window)[wanted])
            first = min(end, stop)
        return np.concatenate(parts)

    def window_at(self, place: int) -> tuple[int, int, int]:
        """Return the window of a place, and the first place and the end of it."""
        group = int(np.searchsorted(self.ends, place, "right"))
        window = group // self.order.window
        first = window * self.order.window
        last = min(first + self.order.window, len(self.groups)) - 1
        begin = int(self.ends[first - 1]) if first else 0
        return window, begin, int(self.ends[last])

    def window_groups(self, window: int) -> Array:
        """Return the Groups of a window."""
        first = window * self.order.window
        return self.groups[first : first + self.order.window]

    def _window_records(self, window: int) -> Array:
        groups = self.order.groups
        return np.concatenate([groups.records(g) for g in self.window_groups(window)])


# -- batches ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batches:
    """How the Records of an epoch are dealt to ranks.

    Global batch `k` has `batch_size * world_size` Records; rank `r` takes the `r`-th
    part of it. All ranks have equally many batches.

    Args:
        records: of an epoch.
        batch_size: of one rank.
        remainder: what becomes of the last Records, if they fill no global batch:
            `drop` leaves them out of this epoch, `pad` fills it with the first ones,
            `uneven` deals them as evenly as possible.

    Raises:
        UsageError: an argument cannot be.
    """

    records: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    remainder: Remainder = "drop"

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name, least in (("batch_size", 1), ("world_size", 1), ("rank", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)} is less than {least}")
        if self.rank >= self.world_size:
            raise UsageError(f"rank={self.rank} of world_size={self.world_size}")
        if self.remainder not in get_args(Remainder):
            known = ", ".join(get_args(Remainder))
            text = f"remainder={self.remainder!r} is not valid; use one of {known}"
            raise UsageError(text)

    def __len__(self) -> int:
        """Return how many batches each rank has in an epoch."""
        whole, rest = divmod(self.records, self.global_size)
        return whole + (rest > 0 and self.remainder != "drop")

    @property
    def global_size(self) -> int:
        """Return the Records of a global batch."""
        return self.batch_size * self.world_size

    def places(self, batch: int) -> Array:
        """Return the places in the epoch of the Records of a batch of this rank."""
        start = batch * self.global_size
        left = self.records - start
        if left >= self.global_size or self.remainder == "pad":
            first = start + self.rank * self.batch_size
            return np.arange(first, first + self.batch_size) % max(1, self.records)
        first = start + left * self.rank // self.world_size
        return np.arange(first, start + left * (self.rank + 1) // self.world_size)
