"""The ends of Transfers: what they mean, how they are booked, and what follows."""

import errno
import logging
import os
from collections.abc import Iterable
from typing import Final

from monarch.metrics import AgentCounters
from monarch.native import Arrival, Completion, Reason, Step
from monarch.stager.capacity import FileOutcome, Storage, TierOutcome, TransferEnd
from monarch.stager.dispatch import Dispatch
from monarch.stager.fetches import FetchOutcome
from monarch.stager.pool import Pool
from monarch.stager.postponed import Postponed
from monarch.stager.removal import Losses, Removal
from monarch.stager.replicas import Event, Replicas
from monarch.stager.transfer import InFlight, Transfer

FAILURES_MAX: Final = 10
_AT_TIER: Final = frozenset({Step.CREATE, Step.WRITE, Step.VERIFY, Step.PUBLISH})

log = logging.getLogger("monarch.stager")


class Ends:
    """Books and counts Transfers that have ended.

    Attributes:
        failures: what went wrong with the first Files that failed, by number.
        changed: Files whose Origin differs from the Catalog.
    """

    def __init__(
        self,
        replicas: Replicas,
        storage: Storage,
        removal: Removal,
        in_flight: InFlight,
        counters: AgentCounters,
    ) -> None:
        self._replicas = replicas
        self._ledger = storage.ledger
        self._removal = removal
        self._in_flight = in_flight
        self._counters = counters
        self.failures: dict[int, str] = {}
        self.changed: list[int] = []

    def __repr__(self) -> str:
        return f"<Ends {self._counters.transfers_failed} failed>"

    def find(self, file: int, ns: int, origin_bytes: int = 0) -> Transfer:
        """Return the Transfer of a File that has ended, and count what it took."""
        self._counters.origin_read_bytes += origin_bytes
        self._counters.transfer_ns += ns
        return self._in_flight[file]

    def published(self, transfer: Transfer) -> bool:
        """Book a Transfer whose Replica is ready; False: its Tier is not used."""
        self._in_flight.end(transfer)
        file, tier = transfer.file, transfer.tier
        size_bytes = self._replicas.size_of(file)
        self._ledger.forget_failures(file)
        self._ledger.commit(tier, size_bytes)
        if not self._ledger.account(tier).in_service:
            self._removal.drop_unusable(file, tier)
            return False
        self._count_published(transfer, size_bytes)
        return True

    def failed(
        self, transfer: Transfer, step: Step, status: int
    ) -> tuple[FileOutcome, TierOutcome]:
        """Book a Transfer that has failed; return what it means.

        The File stays STAGING: the caller decides what happens to it.
        """
        self._in_flight.end(transfer)
        adoption, file, tier = transfer.is_adoption, transfer.file, transfer.tier
        taken = status == -errno.EEXIST
        at_tier = step in _AT_TIER or (adoption and step != Step.STAT)
        # A program has written to the File: nothing is wrong with the Tier.
        foreign = taken or (status == -errno.ESTALE and not adoption)
        end = TransferEnd(status, at_tier and not foreign, adoption)
        outcomes = self._ledger.classify(file, tier, end)
        self._count_failed(transfer, step, status)
        self._ledger.release(tier, self._replicas.size_of(file))
        if adoption or taken:
            self._removal.unlink(file, tier)
        if outcomes[1] is TierOutcome.FULL:
            self._counters.tiers_full += 1
            self._ledger.shrink(tier)
            log.warning("tier is full tier=%s", self._removal.name_of(tier))
        return outcomes

    def drop(self, transfer: Transfer, reason: Reason) -> None:
        """End a Transfer that does not go on; its File is absent for the Reason."""
        self._in_flight.end(transfer)
        self._replicas.change(transfer.file, Event.FAILED, reason=reason)
        self._ledger.release(transfer.tier, self._replicas.size_of(transfer.file))

    def refuse(self, file: int, outcome: FileOutcome) -> None:
        """Set a File absent whose Transfer has failed, for the Reason that follows."""
        reason = Reason.NONE
        if outcome is FileOutcome.CHANGED:
            reason = Reason.CHANGED
            self._replicas.mark_written(file)
            self._counters.files_changed += 1
            self.changed.append(file)
        elif outcome is FileOutcome.GIVE_UP:
            reason = Reason.ERROR
        self._replicas.change(file, Event.FAILED, reason=reason)

    def _count_published(self, transfer: Transfer, size_bytes: int) -> None:
        counters = self._counters
        if transfer.is_adoption:
            counters.adopted_files += 1
            counters.adopted_bytes += size_bytes
        elif transfer.peer is not None:
            counters.peer_files += 1
            counters.peer_bytes += size_bytes
        else:
            counters.staged_files += 1
            counters.staged_bytes += size_bytes

    def _count_failed(self, transfer: Transfer, step: Step, status: int) -> None:
        self._counters.transfers_failed += 1
        if len(self.failures) < FAILURES_MAX:
            self.failures.setdefault(transfer.file, os.strerror(-status))
        if transfer.is_adoption:
            self._counters.adoptions_refused += 1
        elif status == -errno.EBADMSG:
            self._counters.copies_refused += 1
        log.warning(
            "transfer failed file=%d tier=%s step=%s error=%s",
            transfer.file,
            self._removal.name_of(transfer.tier),
            step.name.lower(),
            os.strerror(-status),
        )


class Outcomes:
    """Carries out what follows from the ends of Transfers."""

    def __init__(
        self,
        ends: Ends,
        losses: Losses,
        postponed: Postponed,
        pool: Pool,
        dispatch: Dispatch,
    ) -> None:
        self._ends = ends
        self._losses = losses
        self._postponed = postponed
        self._pool = pool
        self._dispatch = dispatch
        self._stopping = False

    def __repr__(self) -> str:
        return f"<Outcomes {self._ends!r}>"

    def end(self, done: Completion) -> None:
        """Handle the end of an order of the engine."""
        transfer = self._ends.find(done.file, done.ns, done.bytes)
        if done.status == 0:
            self.published(transfer)
        else:
            self._failed(transfer, done.step, done.status)

    def end_fetch(self, arrival: Arrival) -> None:
        """Handle the end of an order of the receiver."""
        transfer = self._ends.find(arrival.file, arrival.ns)
        outcome = self._dispatch.classify(transfer, arrival)
        if outcome is FetchOutcome.PUBLISHED:
            self.published(transfer)
        elif outcome is FetchOutcome.OWN_FAULT:
            self._failed(transfer, arrival.step, arrival.status)
        elif self._stopping:
            self._ends.drop(transfer, Reason.STOPPING)
        elif outcome is FetchOutcome.ABANDON:
            # Programs that have begun to wait for it are woken, and ask themselves.
            self._ends.drop(transfer, Reason.NONE)
            self._dispatch.promise(transfer.file)
        else:
            self._dispatch.go_on(transfer, outcome)

    def published(self, transfer: Transfer) -> None:
        """Handle a Transfer whose Replica is ready."""
        self._postponed.succeeded(transfer.file)
        usable = self._ends.published(transfer)
        if usable and transfer.tier == self._pool.number:
            self._pool.published(transfer.file)

    def stop(self, transfers: Iterable[Transfer]) -> None:
        """Order nothing more, and end these at once: they have not begun."""
        self._stopping = True
        for transfer in transfers:
            self._ends.drop(transfer, Reason.STOPPING)

    def _failed(self, transfer: Transfer, step: Step, status: int) -> None:
        outcome, tier_outcome = self._ends.failed(transfer, step, status)
        if tier_outcome is TierOutcome.FAILED:
            self._losses.withdraw(transfer.tier, os.strerror(-status))
        file = transfer.file
        if outcome not in (FileOutcome.CHANGED, FileOutcome.GIVE_UP):
            self._dispatch.promise(file)
        if outcome is FileOutcome.POSTPONE and not self._stopping:
            self._postponed.postpone(file)
        elif outcome is FileOutcome.RESTART and not self._stopping:
            self._dispatch.restart(transfer)
        else:
            self._ends.refuse(file, outcome)
