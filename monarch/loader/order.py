"""The order of the Records of an epoch: a pure function of seed and epoch.

The order is that of the whole job. Ranks take their slices of its global batches, so it
does not change with the number of ranks or nodes. Any place in it is found without the
places before it, so a job resumes in the middle of an epoch without delay.

`group` is a shuffle of two levels, as in CorgiPile (arXiv 2206.05830): the Groups are
shuffled, and the Records of each Group are dealt at random to as many turns as Groups
are mixed with each other. An epoch consists of turns. Each turn adds one more Group and
mixes parts of the last ones, so a Group is in memory for that many turns, and the first
batch needs few Groups. `global` shuffles all Records, which costs a read for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from monarch.errors import UsageError
from monarch.records.groups import Groups

Shuffle = Literal["global", "group", "none"]
Remainder = Literal["drop", "pad", "uneven"]
Array = npt.NDArray[Any]

_GROUPS: Final = 0
_RECORDS: Final = 1
_TURNS: Final = 2
"""The uses of a stream of random numbers."""
_TURNS_KEPT: Final = 4


class RecordOrder:
    """The orders of all epochs over some Groups.

    Args:
        seed: seed of the random numbers, not negative.
        window: number of Groups that are mixed with each other.

    Raises:
        UsageError: an argument is invalid.
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
        self.window = window if shuffle == "group" else 1
        self.counts = groups.record_counts()

    def __repr__(self) -> str:
        return f"<RecordOrder {self.shuffle}, seed {self.seed}, {self.groups!r}>"

    def __len__(self) -> int:
        """Return the number of Records of an epoch."""
        return len(self.groups.index)

    def epoch(self, number: int) -> EpochOrder:
        """Return the order of an epoch."""
        groups = np.arange(len(self.groups))
        if self.shuffle == "group":
            groups = self.random(number, _GROUPS, 0).permutation(groups)
        every = None
        if self.shuffle == "global":
            every = self.random(number, _RECORDS, 0).permutation(len(self))
        counts = self.counts[groups].astype(np.int64)
        return EpochOrder(self, number, groups, _turn_ends(counts, self.window), every)

    def random(self, epoch: int, use: int, number: int) -> np.random.Generator:
        """Return the random numbers for one use in an epoch."""
        # Philox returns the same numbers on all machines (NumPy's stream guarantee).
        key = np.random.SeedSequence((self.seed, epoch, use, number))
        return np.random.Generator(np.random.Philox(key))


class Rows(NamedTuple):
    """The places of Records.

    Attributes:
        positions: positions of their Groups in the order of the epoch.
        rows: numbers of the Records in their Groups, by object and offset.
    """

    positions: Array
    rows: Array


@dataclass(frozen=True, slots=True, eq=False)
class EpochOrder:
    """The order of one epoch.

    Attributes:
        groups: the Groups, in the order of the epoch.
        ends: cumulative number of Records at the end of each turn.
        every: the Records themselves, if all are shuffled; else None.
    """

    order: RecordOrder
    number: int
    groups: Array
    ends: Array
    every: Array | None
    _dealt: dict[int, Array] = field(default_factory=dict)
    _turns: dict[int, Rows] = field(default_factory=dict)

    def records(self, first: int, end: int) -> Array:
        """Return the Records at the places `first` to `end` (exclusive)."""
        end = min(end, len(self.order))
        if self.every is not None:
            return self.every[first:end]
        found = self.rows(first, end)
        records = np.empty(len(found.rows), np.int64)
        for position in np.unique(found.positions):
            where = found.positions == position
            of_group = self.order.groups.records(int(self.groups[position]))
            records[where] = of_group[found.rows[where]]
        return records

    def rows(self, first: int, end: int) -> Rows:
        """Return the Groups and rows of the Records at the places `first` to `end`.

        Not for an order in which all Records are shuffled: it has no Groups.
        """
        end = min(end, len(self.order))
        positions = [np.empty(0, np.int64)]
        rows = [np.empty(0, np.int64)]
        while first < end:
            turn = self.turn_at(first)
            begin = self._begin(turn)
            found = self._kept_turn(turn)
            stop = min(end, int(self.ends[turn]))
            positions.append(found.positions[first - begin : stop - begin])
            rows.append(found.rows[first - begin : stop - begin])
            first = stop
        return Rows(np.concatenate(positions), np.concatenate(rows))

    def turn_at(self, place: int) -> int:
        """Return the turn of a place."""
        return int(np.searchsorted(self.ends, place, "right"))

    def first_position(self, place: int) -> int:
        """Return the position of the first Group used at a place or after it."""
        return max(0, self.turn_at(place) - self.order.window + 1)

    def end_position(self, place: int) -> int:
        """Return the position after the last Group that is used before a place."""
        turn = self.turn_at(place - 1) if place else -1
        return min(len(self.groups), turn + 1)

    def _begin(self, turn: int) -> int:
        return int(self.ends[turn - 1]) if turn else 0

    def _kept_turn(self, turn: int) -> Rows:
        """Return a turn; a few are kept, because batches are parts of them."""
        if turn not in self._turns:
            if len(self._turns) >= _TURNS_KEPT:
                self._turns.pop(min(self._turns))
            self._turns[turn] = self._turn(turn)
        return self._turns[turn]

    def _turn(self, turn: int) -> Rows:
        """Return the Records of a turn, in the order of the epoch."""
        window = self.order.window
        first = max(0, turn - window + 1)
        positions = range(first, min(turn + 1, len(self.groups)))
        parts = [self._part(position, turn - position) for position in positions]
        counts = [len(part) for part in parts]
        found = Rows(np.repeat(positions, counts), np.concatenate(parts))
        for old in [position for position in self._dealt if position < first]:
            self._dealt.pop(old, None)
        if self.order.shuffle != "group":
            return found
        mixed = self.order.random(self.number, _TURNS, turn).permutation(sum(counts))
        return Rows(found.positions[mixed], found.rows[mixed])

    def _part(self, position: int, number: int) -> Array:
        """Return the Records of a Group that are dealt to one of its turns."""
        dealt = self._dealt.get(position)
        if dealt is None:
            count = int(self.order.counts[self.groups[position]])
            dealt = np.arange(count)
            if self.order.shuffle == "group":
                random = self.order.random(self.number, _RECORDS, position)
                dealt = random.permutation(count)
            self._dealt[position] = dealt
        window = self.order.window
        count = len(dealt)
        return dealt[count * number // window : count * (number + 1) // window]


def _turn_ends(counts: Array, window: int) -> Array:
    """Return the cumulative number of Records at the end of each turn.

    Args:
        counts: number of Records of each Group, in the order of the epoch.
    """
    turns = np.zeros(len(counts) + window - 1 if len(counts) else 0, np.int64)
    for part in range(window if len(counts) else 0):
        dealt = counts * (part + 1) // window - counts * part // window
        turns[part : part + len(counts)] += dealt
    return np.cumsum(turns)


# -- batches ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batches:
    """The distribution of the Records of an epoch to ranks.

    Global batch `k` has `batch_size * world_size` Records; rank `r` takes the `r`-th
    part of it. All ranks have equally many batches.

    Args:
        records: number of Records of an epoch.
        batch_size: number of Records in a batch of one rank.
        remainder: treatment of the last Records, if they fill no global batch: `drop`
            leaves them out of this epoch, `pad` fills it with the first ones, `uneven`
            deals them as evenly as possible.
        start: the place of the first batch, if an epoch is resumed.

    Raises:
        UsageError: an argument is invalid.
    """

    records: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    remainder: Remainder = "drop"
    start: int = 0

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
        """Return the number of batches of each rank from the start on."""
        whole, rest = divmod(max(0, self.records - self.start), self.global_size)
        return whole + (rest > 0 and self.remainder != "drop")

    @property
    def global_size(self) -> int:
        """Return the number of Records of a global batch."""
        return self.batch_size * self.world_size

    def begin(self, batch: int) -> int:
        """Return the place at which a global batch begins."""
        return self.start + batch * self.global_size

    def places(self, batch: int) -> Array:
        """Return the places in the epoch of the Records of a batch of this rank."""
        start = self.begin(batch)
        left = self.records - start
        if left >= self.global_size or self.remainder == "pad":
            first = start + self.rank * self.batch_size
            return np.arange(first, first + self.batch_size) % max(1, self.records)
        first = start + left * self.rank // self.world_size
        return np.arange(first, start + left * (self.rank + 1) // self.world_size)
