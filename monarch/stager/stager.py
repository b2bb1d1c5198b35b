"""Turns requests into Transfers and their ends into states: decides by the Ledger."""

import errno
import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from monarch.admission import Ledger, Outcome, Room, Verdict
from monarch.metrics import Tally
from monarch.native import (
    Completion,
    Order,
    OrderKind,
    Reason,
    ReplicaState,
    Step,
    state_word,
)
from monarch.placement import FillOrder
from monarch.stager.adoption import Adoption
from monarch.stager.shelf import Shelf
from monarch.stager.table import ABSENT, READY, TIER_UNIT, FileTable
from monarch.tiers import Tier

LOST_MAX = 2
LOOK_AHEAD = 2

_AT_TIER = frozenset({Step.CREATE, Step.WRITE, Step.VERIFY, Step.PUBLISH})
_NO_ROOM = state_word(ReplicaState.ABSENT, reason=Reason.NO_ROOM)

log = logging.getLogger("monarch.stager")


class Engine(Protocol):
    """What the Stager needs of the native copy engine."""

    def requests(self) -> list[int]:
        """Return Files that programs asked for since the last call."""

    def submit(self, orders: Iterable[Order]) -> int:
        """Take orders; return how many were taken, the first ones."""

    def completions(self) -> list[Completion]:
        """Return the Transfers that have ended since the last call."""

    def forget(self, tier: int, ino: int) -> None:
        """Recognise descriptors of this inode no more."""


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


class Stager:
    """Owns the Ledger and every state but READY; single flight by the STAGING state."""

    def __init__(
        self,
        table: FileTable,
        engine: Engine,
        tiers: Sequence[Tier],
        fill: FillSettings,
        tally: Tally,
    ) -> None:
        self.table = table
        self.engine = engine
        self.tiers = tiers
        self.tally = tally
        self.ledger = Ledger([tier.capacity_bytes for tier in tiers])
        self.shelf = Shelf(table, engine, tiers, self.ledger, tally)
        self.adoption = Adoption()
        self.changed: list[int] = []
        self._fill_settings = fill
        self._fill = FillOrder(len(table.sizes))
        self._flying: dict[int, Order] = {}
        self._background = 0
        self._waiting: list[Order] = []
        self._lost: dict[int, int] = {}
        self._busy_since_ns = 0
        self._stopping = False

    def __repr__(self) -> str:
        return (
            f"<Stager {len(self._flying)} in flight, {self._background} of them "
            f"background, {self._fill.remaining} to look at>"
        )

    @property
    def in_flight(self) -> int:
        """How many Transfers run or wait in the engine."""
        return len(self._flying)

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do until a program asks."""
        filled = not self._fill_settings.enabled or self._fill.remaining == 0
        return filled and not self._flying and not self.adoption.tiers

    def turn(self) -> bool:
        """Take what the engine has to tell and order what follows from it.

        Returns:
            Whether there is more to do at once, without waiting for the engine.
        """
        for step in (self._end_transfers, self._serve_requests, self._fill_up):
            try:
                step()
            except Exception as error:
                self._survive("turn of the stager failed", error)
        self._submit()
        room = self._background_max() - self._background
        return room > 0 and self._fill.remaining > 0 and self._fills()

    def stop(self) -> None:
        """Order nothing more."""
        self._stopping = True
        self._waiting.clear()

    def abandon(self) -> None:
        """Tell all who wait that nothing will come; the engine has ended."""
        word = state_word(ReplicaState.ABSENT, reason=Reason.STOPPING)
        for file, (_, tier, kind) in list(self._flying.items()):
            if self.table.words[file] % TIER_UNIT == READY:
                self._note_published(file, tier, bool(kind & OrderKind.ADOPT))
                continue
            self.table.store(file, word)
            self.ledger.release(tier, int(self.table.sizes[file]))
        self._flying.clear()
        self._note_busy()

    # -- requests ---------------------------------------------------------------

    def _serve_requests(self) -> None:
        if self._stopping:
            return
        words = self.table.words
        for file in self.engine.requests():
            try:
                self._serve(file, int(words[file]))
            except Exception as error:
                self._survive(f"request failed file={file}", error)
        self._submit()

    def _serve(self, file: int, word: int) -> None:
        if word == ABSENT:
            large = self.table.sizes[file] > self._fill_settings.urgent_bytes_max
            self._order(file, OrderKind.BACKGROUND if large else OrderKind.DEMAND)
        elif word % TIER_UNIT == READY:
            self._check_lost(file, word // TIER_UNIT % 256)

    def _order(self, file: int, kind: OrderKind) -> None:
        """Reserve room and give the File to the engine, or say why not."""
        if file in self._flying:
            return
        table = self.table
        if table.written[file]:
            table.store(file, state_word(ReplicaState.ABSENT, reason=Reason.CHANGED))
            return
        size = int(table.sizes[file])
        tier = self.adoption.take(file)
        if tier is not None:
            kind = OrderKind(kind | OrderKind.ADOPT)
        else:
            tier = self.ledger.reserve(size)
        if tier is None:
            table.store(file, _NO_ROOM)
            return
        # Nobody needs to be woken: those who wait go on waiting for READY.
        table.words[file] = state_word(ReplicaState.STAGING, tier)
        if not self._flying:
            self._busy_since_ns = time.monotonic_ns()
        order = Order(file, tier, kind)
        self._flying[file] = order
        self._waiting.append(order)
        if kind & OrderKind.BACKGROUND:
            self._background += 1
            self.tally.background_transfers += 1
        else:
            self.tally.demand_transfers += 1

    def _submit(self) -> None:
        if self._waiting:
            taken = self.engine.submit(self._waiting)
            del self._waiting[:taken]

    # -- background fill --------------------------------------------------------

    def _fills(self) -> bool:
        return self._fill_settings.enabled and not self._stopping

    def _background_max(self) -> int:
        """Background orders in flight; half of them while programs wait for others."""
        wanted = LOOK_AHEAD * self._fill_settings.concurrency
        demanded = len(self._flying) > self._background
        return max(1, wanted // 2) if demanded else wanted

    def _fill_up(self) -> None:
        wanted = self._background_max() - self._background
        if wanted <= 0 or self._stopping:
            return
        while wanted and (file := self.adoption.any()) is not None:
            self._order(file, OrderKind.BACKGROUND)
            self.adoption.take(file)
            wanted -= 1
        if wanted and self._fills() and self._fill.remaining:
            for file in self._fill.take(wanted, self.table.is_due):
                self._order(file, OrderKind.BACKGROUND)

    # -- ends of Transfers ------------------------------------------------------

    def _end_transfers(self) -> None:
        for completion in self.engine.completions():
            try:
                self._end(completion)
            except Exception as error:
                self._survive(f"end failed file={completion.file}", error)
        self._note_busy()

    def _end(self, done: Completion) -> None:
        file, tier = done.file, done.tier
        self._flying.pop(file)
        if done.kind & OrderKind.BACKGROUND:
            self._background -= 1
        self.tally.origin_read_bytes += done.bytes
        self.tally.transfer_ns += done.ns
        adoption = bool(done.kind & OrderKind.ADOPT)
        taken = done.status == -errno.EEXIST
        at_tier = done.step in _AT_TIER or (adoption and done.step != Step.STAT)
        outcome = Outcome(done.status, at_tier and not taken, adoption)
        verdict, room = self.ledger.judge(file, tier, outcome)
        if verdict is Verdict.PUBLISHED:
            self._note_published(file, tier, adoption)
            return
        self._note_failed(done, adoption)
        self.ledger.release(tier, int(self.table.sizes[file]))
        if adoption or taken:
            self.shelf.unlink(file, tier)
        self._mend_tier(tier, room)
        self._mark_failed(file, done.kind, verdict)

    def _note_published(self, file: int, tier: int, adoption: bool) -> None:
        size, tally = int(self.table.sizes[file]), self.tally
        self.ledger.settle(tier, size)
        if adoption:
            tally.adopted_files += 1
            tally.adopted_bytes += size
        else:
            tally.staged_files += 1
            tally.staged_bytes += size

    def _note_failed(self, done: Completion, adoption: bool) -> None:
        self.tally.transfers_failed += 1
        if adoption:
            self.tally.adoptions_refused += 1
        elif done.status == -errno.EBADMSG:
            self.tally.copies_refused += 1
        log.warning(
            "transfer failed file=%d tier=%s step=%s error=%s",
            done.file,
            self.tiers[done.tier].name,
            done.step.name.lower(),
            os.strerror(-done.status),
        )

    def _mend_tier(self, tier: int, room: Room) -> None:
        if room is Room.SHRUNK:
            self.tally.tiers_full += 1
            self.ledger.shrink(tier)
            log.warning("tier is full tier=%s", self.tiers[tier].name)
        elif room is Room.LOST:
            self._retire(tier)

    def _mark_failed(self, file: int, kind: OrderKind, verdict: Verdict) -> None:
        reason = Reason.NONE
        if verdict is Verdict.CHANGED:
            reason = Reason.CHANGED
            self.table.written[file] = 1
            self.tally.files_changed += 1
            self.changed.append(file)
        elif verdict is Verdict.GIVEN_UP:
            reason = Reason.ERROR
        if verdict is Verdict.ANEW and not self._stopping:
            self.table.words[file] = ABSENT
            self._order(file, OrderKind(kind & OrderKind.BACKGROUND))
            return
        self.table.store(file, state_word(ReplicaState.ABSENT, reason=reason))

    def _note_busy(self) -> None:
        if self._busy_since_ns and not self._flying:
            self.tally.busy_ns += time.monotonic_ns() - self._busy_since_ns
            self._busy_since_ns = 0

    # -- losses -------------------------------------------------------------------

    def _check_lost(self, file: int, tier: int) -> None:
        """A program could not open a ready Replica: its own fault, or a lost one."""
        if self.shelf.holds(file, tier):
            return
        if self.shelf.is_gone(tier):
            self._retire(tier)
        else:
            self.shelf.forget(file, tier)
        count = self._lost[file] = self._lost.get(file, 0) + 1
        if count > LOST_MAX:
            self.table.store(file, state_word(ReplicaState.ABSENT, reason=Reason.ERROR))
        else:
            self._order(file, OrderKind.DEMAND)

    def _retire(self, tier: int) -> None:
        """Files of a lost Tier are worth staging into another one."""
        if self.shelf.retire(tier):
            self._fill = FillOrder(len(self.table.sizes))

    def _survive(self, what: str, error: Exception) -> None:
        """Log and count what must not stop the agent."""
        self.tally.agent_errors += 1
        log.error("%s", what, exc_info=error)
