"""Removal of Replicas: lost ones, and those of failed Tiers."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from monarch.metrics import AgentCounters
from monarch.native import Reason
from monarch.stager.capacity import Storage
from monarch.stager.replicas import Event, Replicas
from monarch.tiers.probe import Finding, inspect

LOST_MAX: Final = 2
"""How often a File is staged again after its Replica was lost."""

log = logging.getLogger("monarch.stager")


class Recogniser(Protocol):
    """Recognises descriptors of staged files by their inodes."""

    def forget(self, tier: int, ino: int) -> None:
        """Stop recognising descriptors of this inode."""

    def keep(self, tier: int, ino: int) -> None:
        """Recognise descriptors of a removed Replica until its slot is needed."""


class Removal:
    """Removes lost and wrong Replicas."""

    def __init__(
        self,
        replicas: Replicas,
        storage: Storage,
        recogniser: Recogniser,
        counters: AgentCounters,
    ) -> None:
        self._replicas = replicas
        self._storage = storage
        self._ledger = storage.ledger
        self._recogniser = recogniser
        self._counters = counters

    def __repr__(self) -> str:
        return f"<Removal {self._counters.replicas_lost} lost>"

    def path(self, file: int, tier: int) -> Path:
        """Return the path of the Replica of a File."""
        return self._storage.places[tier].directory / self._replicas.name_of(file)

    def name_of(self, tier: int) -> str:
        """Return the name of a Tier, or of the Pool."""
        return self._storage.places[tier].name

    def drop_lost(self, file: int, tier: int) -> None:
        """Remove a Replica that is lost; programs may still have it open."""
        if not self._replicas.change_ready(np.array([file]), tier):
            return
        self.keep_inodes([file], tier)
        self.unlink(file, tier)
        self._ledger.free(file, tier)
        self._counters.replicas_lost += 1
        log.warning("replica lost file=%d tier=%s", file, self.name_of(tier))

    def retire(self, tier: int) -> bool:
        """Take a Tier out of service; return False if it already was."""
        packed = len(self._storage.packed_in(tier))
        if not self._ledger.retire(tier):
            return False
        self._counters.tiers_lost += 1
        ready = self._replicas.ready_in(tier)
        lost = packed + self._replicas.change_ready(ready, tier)
        for ino in self._replicas.inodes_in(tier):
            self._recogniser.keep(tier, ino)
        self._counters.replicas_lost += lost
        log.error("tier lost tier=%s replicas=%d", self.name_of(tier), lost)
        return True

    def unlink(self, file: int, tier: int) -> None:
        """Remove the name of a Replica, if it exists."""
        try:
            self.path(file, tier).unlink()
        except OSError as error:
            log.debug("unlink failed file=%d error=%s", file, error)

    def keep_inodes(self, files: Sequence[int], tier: int) -> None:
        """Recognise descriptors of removed Replicas until their slots are needed."""
        for ino in self._replicas.inodes_of(files, tier):
            self._recogniser.keep(tier, ino)


class Losses:
    """Handles Replicas that programs could not open, and Tiers that fail.

    A check of a Replica may take as long as a broken medium does. So the caller makes
    it elsewhere: it takes the doubtful Replicas, and reports its findings.

    Args:
        restage: called with a File whose Replica is lost, and whether to order it.
        refill: called with a Tier that was taken out of service.
    """

    def __init__(
        self,
        removal: Removal,
        replicas: Replicas,
        restage: Callable[[int, bool], None],
        refill: Callable[[int], None],
    ) -> None:
        self._removal = removal
        self._replicas = replicas
        self._restage = restage
        self._refill = refill
        self._doubtful: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<Losses of {len(self._counts)} files, {len(self._doubtful)} doubtful>"

    def look_for(self, file: int, tier: int) -> Finding:
        """Check the Replica of a File, which may take as long as the medium does.

        Raises:
            OSError: the medium has failed.
        """
        return inspect(self._removal.path(file, tier), self._replicas.size_of(file))

    def doubt(self, file: int, tier: int) -> None:
        """Note that a program could not open a ready Replica."""
        self._doubtful[file] = tier

    def take_doubtful(self) -> dict[int, int]:
        """Return the Files with doubtful Replicas and their Tiers, each once."""
        doubtful, self._doubtful = self._doubtful, {}
        return doubtful

    def take_warnings(self) -> list[str]:
        """Return the warnings for the user, each once."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def note_found(self, file: int, tier: int, finding: Finding) -> None:
        """Handle the finding about a Replica that a program could not open."""
        if finding is Finding.HELD or self._replicas.ready_tier(file) != tier:
            return
        if finding is Finding.TIER_GONE:
            self.withdraw(tier, "its directory was removed")
        if finding is not Finding.TIER_GONE:
            self._removal.drop_lost(file, tier)
        count = self._counts[file] = self._counts.get(file, 0) + 1
        self._restage(file, count <= LOST_MAX)
        if count > LOST_MAX:
            self._replicas.change(file, Event.REFUSED, reason=Reason.ERROR)

    def withdraw(self, tier: int, reason: str) -> None:
        """Take a Tier out of service; its Files can be staged into another one."""
        if self._removal.retire(tier):
            name = self._removal.name_of(tier)
            self._warnings.append(f"tier {name} is no longer used: {reason}")
            self._refill(tier)
