"""The Replicas that lie ready in the Tiers, and the ways in which they go."""

import logging
from collections.abc import Container, Sequence
from typing import Protocol

from monarch.metrics import Tally
from monarch.native import Reason
from monarch.stager.capacity import Ledger, bytes_to_free, choose_victims
from monarch.stager.replicas import Event, Replicas
from monarch.tiers import Tier
from monarch.tiers.probe import Finding, inspect

VICTIMS_MAX = 512

log = logging.getLogger("monarch.stager")


class Recogniser(Protocol):
    """What knows descriptors of staged files by their inodes."""

    def forget(self, tier: int, ino: int) -> None:
        """Recognise descriptors of this inode no more."""

    def keep(self, tier: int, ino: int) -> None:
        """Recognise descriptors of a Replica that has gone as long as there is room."""


class Shelf:
    """Removes Replicas: lost ones, wrong ones, and those whose memory is needed.

    Attributes:
        places: the Tiers and, behind them, the transit pool if there is one.
        flying: Files with a Transfer; that one may be READY before we are told, and its
            room is only promised until then.
    """

    def __init__(
        self,
        replicas: Replicas,
        recogniser: Recogniser,
        tiers: Sequence[Tier],
        ledger: Ledger,
        tally: Tally,
    ) -> None:
        self.replicas = replicas
        self.recogniser = recogniser
        self.tiers = tiers
        self.places = list(tiers)
        self.flying: Container[int] = ()
        self.ledger = ledger
        self.tally = tally

    def look_for(self, file: int, tier: int) -> Finding:
        """Look for the Replica of a File; it may take as long as the medium does.

        Raises:
            OSError: the medium has failed.
        """
        path = self.places[tier].directory / self.replicas.name_of(file)
        return inspect(path, self._size_of(file))

    def forget(self, file: int, tier: int) -> None:
        """Remove a Replica that is lost; programs may still have it open."""
        self.replicas.change(file, Event.LOST)
        self._keep([file], tier)
        self.unlink(file, tier)
        self.ledger.drop(tier, self.replicas.size_of(file))
        self.tally.replicas_lost += 1
        log.warning("replica lost file=%d tier=%s", file, self.places[tier].name)

    def leave(self, file: int, tier: int) -> None:
        """Serve no Replica that has come into a Tier which was given up meanwhile."""
        self.replicas.change(file, Event.LOST)
        self._keep([file], tier)
        self.ledger.drop(tier, self._size_of(file))

    def retire(self, tier: int) -> bool:
        """Take a Tier that has gone out of service; False if it is so already."""
        account = self.ledger.account(tier)
        if not account.in_service:
            return False
        self.ledger.retire(tier)
        self.tally.tiers_lost += 1
        ready = self.replicas.ready_in(tier)
        lost = ready[[file not in self.flying for file in ready.tolist()]]
        self.replicas.change_all(lost, Event.LOST)
        for ino in self.replicas.inodes_in(tier):
            self.recogniser.keep(tier, ino)
        account.used_bytes = 0
        self.tally.replicas_lost += len(lost)
        log.error("tier lost tier=%s replicas=%d", self.places[tier].name, len(lost))
        return True

    def relieve(self, used_bytes: int, limit_bytes: int) -> int:
        """Evict some RAM Replicas if memory is short; return the bytes given back."""
        need, freed = bytes_to_free(used_bytes, limit_bytes), 0
        for number, tier in enumerate(self.tiers):
            if tier.kind == "ram" and freed < need:
                freed += self._evict_from(number, need - freed)
        return freed

    def _evict_from(self, tier: int, need_bytes: int) -> int:
        last = self.replicas.ready_in(tier)[-VICTIMS_MAX:].tolist()
        ready = [file for file in last if file not in self.flying]
        victims = choose_victims(ready, self._size_of, need_bytes)
        for file in victims:
            self._evict(file, tier)
        if victims:
            self._keep(victims, tier)
            # What is given back must not be filled again.
            self.ledger.shrink(tier)
        return sum(self._size_of(file) for file in victims)

    def _evict(self, file: int, tier: int) -> None:
        # What other nodes hold too may still pass through the pool, which is small.
        reason = Reason.MEMORY if self.ledger.transit is None else Reason.NONE
        self.replicas.change(file, Event.EVICTED, tier=tier)
        self.unlink(file, tier)
        self.replicas.change(file, Event.REMOVED, reason=reason)
        self.ledger.drop(tier, self._size_of(file))
        self.tally.evicted_files += 1
        self.tally.evicted_bytes += self._size_of(file)

    def _keep(self, files: Sequence[int], tier: int) -> None:
        for ino in self.replicas.inodes_of(files, tier):
            self.recogniser.keep(tier, ino)

    def unlink(self, file: int, tier: int) -> None:
        """Remove the name of a Replica, if it is there."""
        try:
            (self.places[tier].directory / self.replicas.name_of(file)).unlink()
        except OSError as error:
            log.debug("unlink failed file=%d error=%s", file, error)

    def _size_of(self, file: int) -> int:
        return self.replicas.size_of(file)
