"""The ends of Transfers: their room is booked, their Replicas published or removed."""

import errno
import logging
import os
from typing import Final

from monarch.metrics import AgentCounters
from monarch.native import Reason, Step
from monarch.stager.capacity import FileOutcome, Storage, TierOutcome, TransferEnd
from monarch.stager.removal import Removal
from monarch.stager.replicas import Event, Replicas
from monarch.stager.transfer import InFlight, Transfer

FAILURES_MAX: Final = 10
_AT_TIER: Final = frozenset({Step.CREATE, Step.WRITE, Step.VERIFY, Step.PUBLISH})

log = logging.getLogger("monarch.stager")


class Ends:
    """Books and counts Transfers that have ended.

    Attributes:
        failures: what went wrong with the first Files that failed, by number.
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

    def __repr__(self) -> str:
        return f"<Ends {self._counters.transfers_failed} failed>"

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
