"""A first epoch that begins before the index is complete: `start="early"`.

Its shards are taken in a shuffled order, in *legs* of one, two, four and so on. A leg
is a separate epoch over the Records of its shards. Records that fill no global batch
are moved to the next leg: the number of batches is the same as without legs, and each
Record is in one. The order depends on the shards and the seed, not on the speed of
indexing. Later epochs are as in any loader.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.errors import UsageError
from monarch.records.index import UNIT, Progress, RecordIndex, joined
from monarch.records.opening import Making
from monarch.records.shards import is_alone

Array = npt.NDArray[Any]

_LEGS: Final = 3
"""The use of the random order of the shards, see `order`."""


def legs_of(count: int, seed: int) -> list[list[int]]:
    """Return the numbers of the shards of each leg."""
    key = np.random.SeedSequence((seed, 0, _LEGS, 0))
    order = np.random.Generator(np.random.Philox(key)).permutation(count).tolist()
    legs, size = [], 1
    while order:
        legs.append(order[:size])
        order, size = order[size:], 2 * size
    return legs


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """A part of the first epoch.

    Attributes:
        number: number of the leg.
        index: index of its Records.
        ids: number of each Record, as in batches.
        known: number of new Records in this leg and all earlier ones.
        is_last: no leg follows.
    """

    number: int
    index: RecordIndex
    ids: Array
    known: int
    is_last: bool

    def next(self, shards: Sequence[RecordIndex], rest: Array, is_last: bool) -> Leg:
        """Return the next leg.

        Args:
            shards: the indexes of its shards.
            rest: the Records of this leg that are moved to it.
        """
        index = joined(shards) if len(shards) > 1 else shards[0]
        known = self.known + len(index)
        ids = np.arange(self.known, known)
        if len(rest):
            old = replace(self.index, units=self.index.units[rest])
            index = joined([old, index])
            ids = np.concatenate([self.ids[rest], ids])
        return Leg(self.number + 1, index, ids, known, is_last)


NO_LEG: Final = Leg(
    number=-1,
    index=RecordIndex("", (), np.empty(0, UNIT)),
    ids=np.empty(0, np.int64),
    known=0,
    is_last=False,
)


class ShardIndexes:
    """Makes the index of each shard, beginning with the first leg.

    Args:
        names: names of the shards.
        legs: the shards of each leg.
        progress: called with the number of indexes made so far.
    """

    def __init__(
        self, names: Sequence[str], legs: Sequence[Sequence[int]], progress: Progress
    ) -> None:
        self._names = names
        self._progress = progress
        self._legs = legs
        self._found: list[Future[list[RecordIndex]]] = [Future() for _ in legs]
        self._may_go_on = threading.Event()
        self._stopped = threading.Event()
        threading.Thread(target=self._work, name="index", daemon=True).start()

    def __repr__(self) -> str:
        done = sum(map(self.is_made, range(len(self._legs))))
        return f"<ShardIndexes, {done} of {len(self._legs)} legs>"

    @property
    def are_known(self) -> bool:
        """Whether all indexes are made."""
        return all(map(self.is_made, range(len(self._legs))))

    def is_made(self, number: int) -> bool:
        """Return whether the indexes of a leg are made."""
        found = self._found[number]
        return found.done() and not found.exception()

    def of_leg(self, number: int) -> list[RecordIndex]:
        """Wait for the indexes of the shards of a leg, and return them.

        Raises:
            RecordsError: one cannot be made.
        """
        if number:
            self.go_on()
        return self._found[number].result()

    def whole(self) -> RecordIndex:
        """Wait for the index of all shards, in the order of their names.

        Raises:
            RecordsError: it cannot be made.
        """
        of_shard: dict[int, RecordIndex] = {}
        for number, leg in enumerate(self._legs):
            of_shard |= zip(leg, self.of_leg(number), strict=True)
        return joined([of_shard[number] for number in range(len(self._names))])

    def go_on(self) -> None:
        """Index further legs, for which the first batch does not wait."""
        self._may_go_on.set()

    def stop(self) -> None:
        """Begin no further leg."""
        self._stopped.set()
        self._may_go_on.set()

    def _work(self) -> None:
        done = 0
        for leg, found in zip(self._legs, self._found, strict=True):
            if self._stopped.is_set():
                found.set_exception(UsageError("the loader is closed"))
                continue
            making = Making(
                are_read=True,
                are_awaited=not done,  # the first batch waits for the first leg
                stopped=self._stopped,
                progress=partial(self._tell, done),
            )
            try:
                names = [self._names[number] for number in leg]
                made = making.each(names, is_alone(os.environ))
                found.set_result([index for index, _ in made])
            except Exception as error:  # otherwise the waiting loader would hang
                found.set_exception(error)
            done += len(leg)
            self._may_go_on.wait()

    def _tell(self, before: int, step: str, done: int, _: int) -> None:
        """Report how many of all shards are done."""
        self._progress(step, before + done, len(self._names))
