"""The ends of Transfers: classification of failures, and the following actions."""

import errno
import logging
import os
from typing import Final

from monarch.metrics import AgentCounters
from monarch.native import Completion, Reason, Step, Table, generation
from monarch.stager.capacity import FileOutcome, Storage, TierOutcome, TransferEnd
from monarch.stager.dispatch import Dispatch
from monarch.stager.fetches import FetchOutcome
from monarch.stager.postponed import Postponed
from monarch.stager.removal import Losses, Removal
from monarch.stager.replicas import Replicas
from monarch.stager.transfer import Transfer

FAILURES_MAX: Final = 10
_AT_TIER: Final = frozenset({Step.CREATE, Step.WRITE, Step.VERIFY, Step.PUBLISH})

log = logging.getLogger("monarch.stager")


class Ends:
    """Judges and counts the failures of Transfers.

    Attributes:
        failures: the errors of the first Files that failed, by number.
        errors: how often each errno ended a step, and the first such File.
        changed: Files whose Origin differs from the Catalog.
    """

    def __init__(
        self,
        replicas: Replicas,
        storage: Storage,
        table: Table,
        removal: Removal,
        counters: AgentCounters,
    ) -> None:
        self._replicas = replicas
        self._ledger = storage.ledger
        self._table = table
        self._removal = removal
        self._counters = counters
        self.failures: dict[int, str] = {}
        self.errors: dict[tuple[int, Step], tuple[int, int]] = {}
        self.changed: list[int] = []

    def __repr__(self) -> str:
        return f"<Ends {self._counters.transfers_failed} failed>"

    def judge(self, done: Completion) -> tuple[FileOutcome, TierOutcome]:
        """Count a failure, and return the actions on its File and Tier.

        The File stays STAGING: the caller carries out the actions.
        """
        order, status = done.order, done.status
        taken = status == -errno.EEXIST
        at_tier = done.step in _AT_TIER or (
            order.is_adoption and done.step != Step.STAT
        )
        # A program has written to the File: the Tier has no fault.
        foreign = taken or (status == -errno.ESTALE and not order.is_adoption)
        end = TransferEnd(status, at_tier and not foreign, order.is_adoption)
        outcomes = self._ledger.classify(order.file, generation(order.word), end)
        if not (at_tier and status == -errno.ECANCELED):  # else it was not needed
            self._count_failed(done)
        if order.is_adoption or taken:
            self._removal.unlink(order.file, order.tier)
        if outcomes[1] is TierOutcome.FULL:
            self._counters.tiers_full += 1
            log.warning("tier is full tier=%s", self._removal.name_of(order.tier))
        return outcomes

    def drop(
        self, transfer: Transfer, reason: Reason, *, promise: bool = False
    ) -> None:
        """End a Transfer that does not continue; its File is absent for the Reason."""
        self._table.fail(transfer.order, reason, promise=promise)

    def refuse(self, transfer: Transfer, outcome: FileOutcome) -> None:
        """Set the File of a failed Transfer absent, for the Reason of the outcome."""
        file, reason = transfer.file, Reason.NONE
        if outcome is FileOutcome.CHANGED:
            reason = Reason.CHANGED
            self._replicas.mark_written(file)
            self._counters.files_changed += 1
            self.changed.append(file)
        elif outcome is FileOutcome.GIVE_UP:
            reason = Reason.ERROR
        elif outcome is FileOutcome.DENIED:
            reason = Reason.DENIED
        self.drop(transfer, reason, promise=reason is Reason.NONE)

    def shrink(self, tier: int) -> None:
        """Limit a full Tier to its current contents."""
        self._ledger.shrink(tier)

    def _count_failed(self, done: Completion) -> None:
        self._counters.transfers_failed += 1
        count, example = self.errors.get((-done.status, done.step), (0, done.file))
        self.errors[-done.status, done.step] = count + 1, example
        if len(self.failures) < FAILURES_MAX:
            self.failures.setdefault(done.file, os.strerror(-done.status))
        if done.order.is_adoption:
            self._counters.adoptions_refused += 1
        elif done.status == -errno.EBADMSG:
            self._counters.copies_refused += 1
        log.warning(
            "transfer failed file=%d tier=%s step=%s error=%s",
            done.file,
            self._removal.name_of(done.tier),
            done.step.name.lower(),
            os.strerror(-done.status),
        )


class Outcomes:
    """Carries out the actions that follow the ends of Transfers."""

    def __init__(
        self,
        ends: Ends,
        replicas: Replicas,
        losses: Losses,
        postponed: Postponed,
        dispatch: Dispatch,
    ) -> None:
        self._ends = ends
        self._replicas = replicas
        self._losses = losses
        self._postponed = postponed
        self._dispatch = dispatch
        self._stopping = False

    def __repr__(self) -> str:
        return f"<Outcomes {self._ends!r}>"

    def end(self, done: Completion) -> None:
        """Handle the end of an order of the engine."""
        if done.alone:
            self._judge_tier(done)
            return
        transfer = self._dispatch.end(done)
        if done.status:
            self._failed(transfer, done)
        self._retry_if_expired(done)

    def end_fetch(self, arrival: Completion) -> None:
        """Handle the end of an order of the receiver."""
        transfer = self._dispatch.end(arrival)
        outcome = self._dispatch.classify(transfer, arrival)
        if arrival.pages and outcome is not FetchOutcome.OWN_FAULT:
            return  # the data plane has requested these Pages from the next Source
        if outcome is FetchOutcome.OWN_FAULT:
            self._failed(transfer, arrival)
        elif outcome is FetchOutcome.PUBLISHED or arrival.expired:
            pass
        elif self._stopping:
            self._ends.drop(transfer, Reason.STOPPING)
        elif outcome is FetchOutcome.ABANDON:
            # Programs that wait for it by now are woken, and request it themselves.
            self._ends.drop(transfer, Reason.NONE, promise=True)
        else:
            self._dispatch.go_on(transfer, outcome)
        self._retry_if_expired(arrival)

    def stop(self, transfers: list[Transfer]) -> None:
        """Order nothing more, and end these Transfers at once: they have not begun."""
        self._stopping = True
        for transfer in transfers:
            self._ends.drop(transfer, Reason.STOPPING)

    def _judge_tier(self, done: Completion) -> None:
        """Handle a Tier error that does not affect the File."""
        _, tier_outcome = self._ends.judge(done)
        if tier_outcome is TierOutcome.FAILED:
            self._losses.withdraw(done.tier, os.strerror(-done.status))
        elif tier_outcome is TierOutcome.FULL:
            self._ends.shrink(done.tier)

    def _failed(self, transfer: Transfer, done: Completion) -> None:
        outcome, tier_outcome = self._ends.judge(done)
        if tier_outcome is TierOutcome.FAILED:
            self._losses.withdraw(done.tier, os.strerror(-done.status))
        if outcome is FileOutcome.POSTPONE and not self._stopping:
            self._ends.drop(transfer, Reason.BUSY, promise=True)
            self._postponed.postpone(transfer.file, generation(done.word))
        elif outcome is FileOutcome.RESTART and not self._stopping:
            self._restart(transfer, tier_outcome)
        else:
            self._ends.refuse(transfer, outcome)

    def _restart(self, transfer: Transfer, tier_outcome: TierOutcome) -> None:
        full = tier_outcome is TierOutcome.FULL
        if full and self._replicas.is_in_pieces(transfer.file):
            # Otherwise it would fill the Tier and fail repeatedly.
            self._ends.drop(transfer, Reason.NO_ROOM)
            self._ends.shrink(transfer.order.tier)
            return
        self._ends.drop(transfer, Reason.NONE, promise=True)
        if tier_outcome is TierOutcome.FULL:
            # Only now: reserved bytes count as contents.
            self._ends.shrink(transfer.order.tier)
        if not transfer.partly:  # otherwise programs request their Pages again
            self._dispatch.order(transfer.file, asked=transfer.asked)

    def _retry_if_expired(self, done: Completion) -> None:
        """Allow requests again for a File that is absent because Python was late."""
        if done.expired and not self._stopping:
            self._replicas.retry(done.file, Reason.BUSY)
