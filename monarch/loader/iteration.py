"""One epoch of a rank: its requests to the reader, and its batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.loader.batch import Batch, Form, Place
from monarch.loader.figures import LoaderCounts
from monarch.loader.link import ReaderLink
from monarch.loader.options import depth
from monarch.loader.order import Batches, EpochOrder
from monarch.loader.portions import EVERYBODY, Key, Portions
from monarch.loader.progress import Backlog, OrderLog
from monarch.loader.wire import LoaderError

Array = npt.NDArray[Any]
Spans = list[list[int]]

_NEXT_EPOCH_MIN: Final = 4
"""Groups of the next epoch that are read before this one ends: its first batches need
no more, and after the last epoch such reads are wasted."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far ahead of a batch a rank requests portions.

    Attributes:
        positions: maximum portions at once, as they fit into memory.
        batches: maximum batches ahead; None: as many as fit.
        slow_start: see `Options`.
        next_epoch: request the start of the next epoch near the end of this one.
    """

    positions: int
    batches: int | None
    slow_start: int
    next_epoch: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tools:
    """The objects that an epoch uses."""

    link: ReaderLink
    portions: Portions
    counts: LoaderCounts
    form: Form
    timeout_s: float
    log: OrderLog | None = None
    replay: Mapping[tuple[int, int], list[int]] | None = None


class Iteration:
    """The batches of one epoch, from a place on.

    Args:
        backlog: the Records that may be delivered next.
    """

    def __init__(
        self,
        tools: Tools,
        order: EpochOrder,
        batches: Batches,
        backlog: Backlog,
        reach: Reach,
    ) -> None:
        self.backlog = backlog
        self.batches = batches
        self._tools = tools
        self._order = order
        self._reach = reach
        self._last: tuple[Batch, int] | None = None
        self._held: list[tuple[Batch, int]] = []

    def __repr__(self) -> str:
        return f"<Iteration of epoch {self._order.number}, batch {self.backlog.batch}>"

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches."""
        while self.backlog.batch < len(self.batches):
            self._release()
            batch = self._next()
            given_s = time.monotonic()
            yield batch
            self._tools.counts.busy_s += time.monotonic() - given_s
        self._release()

    def _next(self) -> Batch:
        """Wait for a batch.

        Raises:
            LoaderError: it cannot be read in time.
        """
        began_s = time.monotonic()
        number = self.backlog.batch
        ahead = self._ahead()
        low_position = self._position(self.backlog.ask(ahead))
        self._tools.link.need(self._spans(ahead))
        chosen, where = self._wait()
        if self._tools.log is not None:
            self._tools.log.add(self._order.number, number, chosen)
        self._tools.counts.late_records += self.backlog.give(chosen)
        batch = self._batch(chosen, where)
        self._last = batch, low_position
        counts = self._tools.counts
        counts.add_wait(time.monotonic() - began_s)
        groups = len(self._order.groups) if self._tools.portions.is_shared else 0
        counts.add_batch(len(batch), batch.nbytes, batch.portions, groups)
        return batch

    # -- requests ----------------------------------------------------------------------

    def _ahead(self) -> int:
        """Return how many batches after the next one to request."""
        reach = self._reach
        most = len(self.batches) if reach.batches is None else reach.batches
        if reach.slow_start and reach.batches is None:
            most = max(1, self.backlog.window)
        return depth(self._tools.counts.batches, most, reach.slow_start)

    def _place(self, record: int) -> int:
        """Return the place in the epoch of a Record of the rank's sequence."""
        return int(self._places([record])[0])

    def _places(self, chosen: Sequence[int]) -> Array:
        """Return the places in the epoch of Records of the rank's sequence."""
        ends = self.backlog.ends
        found = np.empty(len(chosen), np.int64)
        numbers = np.searchsorted(ends, chosen, "right")
        for number in np.unique(numbers):
            begin = ends[number - 1] if number else 0
            where = numbers == number
            rows = np.asarray(chosen, np.int64)[where] - begin
            found[where] = self.batches.places(int(number))[rows]
        return found

    def _position(self, record: int) -> int:
        """Return the first position that a Record and all later ones need."""
        if record >= (self.backlog.ends[-1] if len(self.backlog.ends) else 0):
            return self._positions()
        if not self._tools.portions.is_shared:
            return int(np.searchsorted(self.backlog.ends, record, "right"))
        batch = int(np.searchsorted(self.backlog.ends, record, "right"))
        first = self._place(record)
        wrapped = first < self.batches.begin(batch)
        return self._order.first_position(
            self.batches.begin(batch) if wrapped else first
        )

    def _positions(self) -> int:
        if self._tools.portions.is_shared:
            return len(self._order.groups)
        return len(self.batches)

    def _spans(self, ahead: int) -> Spans:
        """Return the needed positions of this epoch, and perhaps of the next one.

        First the portions of late Records, then those of the next batch, and then as
        many more as fit.
        """
        number, start = self._order.number, self.batches.start
        batch = self.backlog.batch
        frontier = self.backlog.frontier
        late = [record for record in self.backlog.open if record < frontier]
        first = min([self._position(frontier), *(low for _, low in self._held)])
        alone = [key.position for key, _, _ in self._where(late)] if late else []
        spans = [[number, one, one + 1, start] for one in alone if one < first]
        room = first + max(1, self._reach.positions - len(spans))
        upto = min(len(self.batches), batch + 1 + max(ahead, self.backlog.window))
        if not self._tools.portions.is_shared:
            high = max(min(upto, room), batch + 1)
            spans.append([number, first, high, start])
            return [*spans, *self._next_epoch_alone(ahead, high, room)]
        wish = self._end_position(upto)
        high = max(self._end_position(batch + 1), min(wish, room))
        spans.append([number, first, high, start])
        over = self.batches.begin(batch + 1) - self.batches.records
        if over > 0 and self.batches.remainder == "pad":
            places = min(over, self.batches.records)
            spans.append([number, 0, self._order.end_position(places), start])
        is_last = wish == len(self._order.groups) and self._reach.batches is None
        if self._reach.next_epoch and is_last and room > high:
            few = max(_NEXT_EPOCH_MIN, self._order.order.window // 2)
            few = min(few, room - high, len(self._order.groups))
            spans.append([number + 1, 0, few, 0])
        return spans

    def _next_epoch_alone(self, ahead: int, high: int, room: int) -> Spans:
        """Return the first batches of the next epoch, if all Records are shuffled.

        Args:
            high: the batch up to which this epoch is requested.
        """
        over = self.backlog.batch + 1 + ahead - len(self.batches)
        most = min(over, room - high, self._whole_epoch())
        if not self._reach.next_epoch or high < len(self.batches) or most < 1:
            return []
        return [[self._order.number + 1, 0, most, 0]]

    def _whole_epoch(self) -> int:
        """Return the number of batches of an epoch that is not resumed."""
        return len(replace(self.batches, start=0))

    def _end_position(self, batch: int) -> int:
        """Return the position after all that the batches before this one may need."""
        place = min(self.batches.begin(batch), self.batches.records)
        return self._order.end_position(place)

    # -- deliveries --------------------------------------------------------------------

    def _wait(self) -> tuple[list[int], list[tuple[Key, Array, Array]]]:
        """Wait for the Records of the next batch; return them and their places."""
        backlog, link = self.backlog, self._tools.link
        wanted = self._wanted()
        places = self._where(wanted)
        chosen: list[list[int]] = []

        def is_enough() -> bool:
            ready = np.zeros(len(wanted), bool)
            for key, rows, where in places:
                part = link.part(key)
                if part is not None:
                    ready[where] = part.are_ready(rows)
            if not backlog.window or self._tools.replay is not None:
                found = wanted if ready.all() else None
            else:
                found = backlog.choose(ready)
            if found is not None:
                chosen.append(found)
            return found is not None

        rows = {key: of_key for key, of_key, _ in places}
        may_yield = not self._held
        link.wait(is_enough, rows, self._tools.timeout_s, may_yield=may_yield)
        if chosen[0] is wanted:
            return wanted, places
        return chosen[0], self._where(chosen[0])

    def _wanted(self) -> list[int]:
        """Return the Records from which the next batch is made."""
        backlog = self.backlog
        if self._tools.replay is not None:
            name = self._order.number, backlog.batch
            found = self._tools.replay.get(name)
            if found is None or not set(found) <= set(backlog.open):
                raise LoaderError(f"replay: the log has no such batch: {name}")
            return found
        return backlog.open if backlog.window else backlog.open[: backlog.size]

    def _where(self, chosen: Sequence[int]) -> list[tuple[Key, Array, Array]]:
        """Return the portions of some Records, with their rows and positions."""
        number = self._order.number
        if not self._tools.portions.is_shared:
            return self._where_alone(chosen)
        places = self._places(chosen)
        positions = np.empty(len(places), np.int64)
        rows = np.empty(len(places), np.int64)
        for first, end in _runs(places):
            found = self._order.rows(int(places[first]), int(places[end - 1]) + 1)
            positions[first:end], rows[first:end] = found.positions, found.rows
        result = []
        for position in np.unique(positions):
            where = np.flatnonzero(positions == position)
            result.append((Key(number, int(position), EVERYBODY), rows[where], where))
        return result

    def _where_alone(self, chosen: Sequence[int]) -> list[tuple[Key, Array, Array]]:
        """Return the same if all Records are shuffled: a portion is a batch."""
        every = self._order.every
        assert every is not None
        numbers = np.searchsorted(self.backlog.ends, chosen, "right")
        records = every[self._places(chosen)]
        result = []
        for number in np.unique(numbers):
            where = np.flatnonzero(numbers == number)
            rank, start = self.batches.rank, self.batches.start
            key = Key(self._order.number, int(number), rank, start)
            lying = self._tools.portions.find(key).records
            by_number = np.argsort(lying)
            rows = by_number[np.searchsorted(lying, records[where], sorter=by_number)]
            result.append((key, rows, where))
        return result

    def _batch(
        self, chosen: Sequence[int], where: Sequence[tuple[Key, Array, Array]]
    ) -> Batch:
        ids = np.empty(len(chosen), np.int64)
        places = []
        for key, rows, of_batch in where:
            part = self._tools.link.part(key)
            assert part is not None
            places.append(Place(part, rows, of_batch))
            ids[of_batch] = self._tools.portions.find(key).records[rows]
        return Batch(ids, places, self._tools.form)

    def _release(self) -> None:
        """Release the last batch, and earlier ones whose views were still held."""
        if self._last is not None:
            self._held.append(self._last)
            self._last = None
        self._held = [one for one in self._held if not one[0].release()]


def _runs(places: Array) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers."""
    if not len(places):
        return []
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    edges = [0, *cuts.tolist(), len(places)]
    return list(pairwise(edges))
