"""An engine and a receiver that execute a test's script on a real staging table."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from monarch.native import (
    CONSTANTS,
    NO_PEER,
    Completion,
    Health,
    Order,
    OrderKind,
    Reason,
    ReplicaState,
    Source,
    Step,
    Table,
    Verdict,
    state_change,
    state_word,
    word_parts,
)

FILL_MAX = 4
BUSY_S = 0.1


@dataclass
class PeerNotes:
    """What a staging table is told of peers, and has counted of them.

    Args:
        told: whether each may be asked, and whether it is gone.
    """

    told: dict[int, tuple[bool, bool]] = field(default_factory=dict)
    counted: dict[int, tuple[int, int]] = field(default_factory=dict)

    def set_peer(self, peer: int, *, usable: bool, gone: bool) -> None:
        """Note it."""
        self.told[peer] = usable, gone

    def fetched(self, peer: int) -> tuple[int, int]:
        """Return the number of Files and bytes received from a peer."""
        return self.counted.get(peer, (0, 0))

    def answer(self, peer: int, size_bytes: int) -> None:
        """Let a File arrive from a peer."""
        files, before = self.fetched(peer)
        self.counted[peer] = files + 1, before + size_bytes


@dataclass
class FakeReceiver:
    """Takes Fetches; ends them on command of the test."""

    table: Table
    fetches: list[Order] = field(default_factory=list)
    ended: list[Completion] = field(default_factory=list)
    room: int = 1000

    def submit(self, orders):
        """Take as many orders as there is room for."""
        taken = list(orders)[: self.room]
        self.fetches += taken
        self.room -= len(taken)
        return len(taken)

    def arrivals(self) -> list[Completion]:
        """Return failed transfers and those to be reported."""
        ended, self.ended = self.ended, []
        return ended

    def end(self, order: Order, status: int = 0, step: Step = Step.READ) -> int:
        """End a Fetch; a Replica from a peer is marked as such, as it is natively."""
        self.fetches.remove(order)
        if not status:
            step, status = Step.PUBLISH, self.table.publish(order, Source.PEER)
        self.ended += completed(order, step, status)
        return status


@dataclass
class FakeEngine:
    """Does the native engine's work by the staging table, on command of the test.

    Args:
        fill_max: how many Files fill begins at once.
        bases: the first File of each root.
        passing: the Files in the Pool, oldest first.
        is_awaited: whether somebody waits for a File and has not opened it.
        pool_waits: those that wait for room in it, and since when.
        busy: those that have waited too long, and since when they are refused.
    """

    table: Table
    receiver: FakeReceiver
    words: npt.NDArray[np.uint32]
    clock: Callable[[], float]
    bases: tuple[int, ...] = (0,)
    pool_number: int = 1
    fill_max: int = FILL_MAX
    asked: list[int] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    ended: list[Completion] = field(default_factory=list)
    passing: list[int] = field(default_factory=list)
    is_awaited: Callable[[int], bool] = lambda file: False
    pool_waits: dict[int, float] = field(default_factory=dict)
    busy: dict[int, float] = field(default_factory=dict)
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)
    partial: dict[int, int] = field(default_factory=dict)
    room: int = 1000
    found: Health = field(default_factory=lambda: Health(0, 0, 0))
    to_read: list[int] = field(default_factory=list)
    to_fetch: list[int] = field(default_factory=list)
    paused: bool = False
    hints: dict[int, list[int]] = field(default_factory=dict)

    def drop_packed(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Nothing is packed."""
        return 0

    def drop_partial(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Drop all partial Replicas of a Tier at once; return their bytes."""
        return self.partial.pop(tier, 0)

    def health(self) -> Health:
        """Return the value set by the test."""
        return self.found

    def requests(self) -> list[int]:
        """Return the requests that Python alone can judge."""
        asked, self.asked = self.asked, []
        return asked

    def demand(self, file: int, kind: int = OrderKind.ASKED) -> None:
        """Begin a request, as file_requests.c does."""
        verdict, order = self.table.begin(file, kind)
        if verdict is Verdict.BEGUN:
            self._begin(order)
        elif verdict in (Verdict.READY, Verdict.WRITTEN):
            self.asked.append(file)
        elif verdict is Verdict.POOL:
            self.pool_waits.setdefault(file, self.clock())
            self.serve_pool()

    def _begin(self, order: Order) -> None:
        if order.peer == NO_PEER and self._is_stalled(order.file):
            self.table.fail(order, Reason.BUSY, promise=True)
            self.asked.append(order.file)
            return
        taker = self if order.peer == NO_PEER else self.receiver
        if not taker.submit([order]):
            self.table.fail(order, Reason.NONE, promise=True)

    def _is_stalled(self, file: int) -> bool:
        return bool(self.found.stalled >> (bisect_right(self.bases, file) - 1) & 1)

    def serve_pool(self) -> None:
        """Make room for Files that wait, first in, first out, as pool_queue.c does."""
        self._end_busy()
        while self.pool_waits:
            file, since_s = next(iter(self.pool_waits.items()))
            verdict, order = self.table.begin(file, OrderKind.ASKED)
            if verdict is Verdict.POOL and self._evict_oldest():
                continue
            if verdict is Verdict.POOL and self.clock() - since_s < BUSY_S:
                return
            del self.pool_waits[file]
            if verdict is Verdict.BEGUN:
                self._begin(order)
            elif verdict is Verdict.POOL:
                self._set_absent(file, Reason.BUSY)
                self.busy[file] = self.clock()

    def _end_busy(self) -> None:
        for file, since_s in list(self.busy.items()):
            if self.clock() - since_s >= BUSY_S:
                del self.busy[file]
                self._set_absent(file, Reason.NONE)

    def _set_absent(self, file: int, reason: Reason) -> None:
        word = int(self.words[file])
        following = word & ~CONSTANTS["STATE_FIXED"]
        following |= state_word(ReplicaState.ABSENT, reason=reason)
        assert state_change(self.words, file, word, following, wake=False)

    def _evict_oldest(self) -> bool:
        """Evict the oldest Replica that no program waits for; False: none exists."""
        unused = [file for file in self.passing if not self.is_awaited(file)]
        if unused:
            self.passing.remove(unused[0])
            self._evict(unused[0])
        return bool(unused)

    def _evict(self, file: int) -> None:
        word = int(self.words[file])
        if word_parts(word)[:2] == (ReplicaState.READY, self.pool_number):
            self._set_absent(file, Reason.NONE)
            self.table.remove(file, self.pool_number)

    def published(self, order: Order) -> None:
        """A Replica has arrived: in the Pool it stays until its room is needed."""
        if order.tier == self.pool_number:
            self.passing.append(order.file)
        self.serve_pool()

    def fill(self, to_read, to_fetch) -> None:
        """Take the lists of background fill."""
        self.to_read, self.to_fetch = to_read.tolist(), to_fetch.tolist()
        self.fill_up()

    def fill_left(self) -> tuple[int, int]:
        """Return how many Files have not been looked at."""
        return len(self.to_read), len(self.to_fetch)

    def hint(self, program: int, files: npt.NDArray[np.uint32]) -> None:
        """Note the files that a program will open."""
        self.hints[program] = files.tolist()

    def pause_fetching(self, *, paused: bool) -> None:
        """Note it."""
        self.paused = paused
        self.fill_up()

    def fill_up(self) -> None:
        """Begin as many Files of fill as may be under way at once."""
        while self.to_read and self._unasked(self.orders) < self.fill_max:
            file = self.to_read.pop(0)
            if not self._is_stalled(file):
                self.demand(file, OrderKind.BACKGROUND)
        if self.to_read or self.paused:
            return
        while self.to_fetch and self._unasked(self.receiver.fetches) < self.fill_max:
            self.demand(self.to_fetch.pop(0), OrderKind.BACKGROUND)

    def _unasked(self, orders: list[Order]) -> int:
        return sum(not order.is_asked for order in orders)

    def submit(self, orders):
        """Take as many orders as there is room for."""
        taken = list(orders)[: self.room]
        self.orders += taken
        self.room -= len(taken)
        return len(taken)

    def completions(self) -> list[Completion]:
        """Return failed transfers and those to be reported."""
        ended, self.ended = self.ended, []
        return ended

    def forget(self, tier: int, ino: int) -> None:
        """Note the call."""
        self.forgotten.append((tier, ino))

    def keep(self, tier: int, ino: int) -> None:
        """Note the call."""
        self.kept.append((tier, ino))

    def end(self, order: Order, status: int = 0, step: Step = Step.PUBLISH) -> None:
        """End an order, of which 10 bytes were read."""
        self.orders.remove(order)
        if not status:
            step, status = Step.PUBLISH, self.table.publish(order)
        if not status:
            self.published(order)
        self.ended += completed(order, step, status)


def completed(order: Order, step: Step, status: int) -> list[Completion]:
    """Return the completions of an order for Python: none for most successes."""
    if not (status or order.kind & OrderKind.REPORT):
        return []
    file, tier, kind, peer, word = order
    done = Completion(file, tier, kind, step, peer, word, status, False, 10, 1000)
    return [done]
