"""Eviction: which RAM Replicas are removed when memory is short, and how.

Files that do not fit a Tier are not staged into it
(`dataplane/extents/staging_table.c`). Eviction from the Pool is in
`dataplane/extents/pool.c`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from monarch.metrics import AgentCounters
from monarch.native import Reason
from monarch.stager.capacity import Storage, footprint
from monarch.stager.removal import Removal
from monarch.stager.replicas import Event, Replicas

VICTIMS_MAX: Final = 512
"""How many Replicas are evicted from a Tier in one step."""


# -- decisions ------------------------------------------------------------------------


def bytes_to_free(used_bytes: int, limit_bytes: int) -> int:
    """Return the bytes that RAM Replicas must release to leave a tenth free."""
    return max(0, -room_left(used_bytes, limit_bytes))


def room_left(used_bytes: int, limit_bytes: int) -> int:
    """Return the bytes that RAM Replicas may still take; negative: the excess."""
    return limit_bytes * 9 // 10 - used_bytes


def choose_victims(
    files: Sequence[int], size_of: Callable[[int], int], need_bytes: int
) -> list[int]:
    """Return Files, from the last one on, whose footprints add up to the need."""
    victims: list[int] = []
    freed = 0
    for file in reversed(files):
        if freed >= need_bytes:
            break
        victims.append(file)
        freed += footprint(size_of(file))
    return victims


# -- effects --------------------------------------------------------------------------


class PartialReplicas(Protocol):
    """The holder of partly staged large Files, and of packed Files."""

    def drop_partial(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Remove some from a Tier; return the bytes that they held."""

    def drop_packed(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Empty pack files of a Tier; return the bytes that they held."""


class Eviction:
    """Evicts RAM Replicas."""

    def __init__(
        self,
        replicas: Replicas,
        storage: Storage,
        removal: Removal,
        partial: PartialReplicas,
        counters: AgentCounters,
    ) -> None:
        self._replicas = replicas
        self._partial = partial
        self._storage = storage
        self._ledger = storage.ledger
        self._removal = removal
        self._counters = counters

    def __repr__(self) -> str:
        return f"<Eviction {self._counters.evicted_files} evicted>"

    def relieve(self, used_bytes: int, limit_bytes: int, reason: Reason) -> int:
        """Evict some RAM Replicas if memory is short; return the bytes freed.

        Args:
            reason: why their Files are absent from then on.
        """
        need, freed = bytes_to_free(used_bytes, limit_bytes), 0
        for number, tier in enumerate(self._storage.tiers):
            if tier.kind == "ram" and freed < need:
                victims = self._evict_from(number, need - freed, reason)
                size_bytes = sum(map(self._replicas.size_of, victims))
                self._counters.evicted_files += len(victims)
                self._counters.evicted_bytes += size_bytes
                freed += size_bytes
                if freed < need:
                    freed += self._drop(number, need - freed, reason)
        return freed

    def _drop(self, tier: int, need_bytes: int, reason: Reason) -> int:
        """Drop partial Replicas, then packed Files; return the bytes freed."""
        freed = self._partial.drop_partial(tier, need_bytes, reason)
        if freed < need_bytes:
            freed += self._partial.drop_packed(tier, need_bytes - freed, reason)
        self._counters.evicted_bytes += freed
        if freed:
            self._ledger.shrink(tier)
        return freed

    def admit(self, room_bytes: int) -> None:
        """Let RAM Replicas take this much more until the next call."""
        tiers = enumerate(self._storage.tiers)
        ram = [number for number, tier in tiers if tier.kind == "ram"]
        self._ledger.admit(ram, room_bytes)

    def yield_room(self, tier: int, size_bytes: int) -> None:
        """Move capacity from a Tier to the Pool; evict some Replicas if needed."""
        account = self._ledger.account(tier)
        smaller_bytes = max(0, self._ledger.limit(tier) - size_bytes)
        while (taken := account.used_bytes + account.reserved_bytes) > smaller_bytes:
            if not self._evict_from(tier, taken - smaller_bytes, Reason.NONE):
                break
            account = self._ledger.account(tier)
        self._ledger.set_limit(tier, smaller_bytes)
        self._storage.tiers[tier].reduce(size_bytes)

    def _evict_from(self, tier: int, need_bytes: int, reason: Reason) -> list[int]:
        ready = self._replicas.ready_in(tier)[-VICTIMS_MAX:].tolist()
        chosen = choose_victims(ready, self._replicas.size_of, need_bytes)
        victims = [file for file in chosen if self._evict(file, tier, reason)]
        if victims:
            self._removal.keep_inodes(victims, tier)
            # The freed space must not be filled again.
            self._ledger.shrink(tier)
        return victims

    def _evict(self, file: int, tier: int, reason: Reason) -> bool:
        if not self._replicas.change(file, Event.EVICTED, tier=tier):
            return False
        self._removal.unlink(file, tier)
        self._replicas.change(file, Event.REMOVED, reason=reason)
        self._ledger.free(file, tier)
        return True
