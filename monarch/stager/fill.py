"""Background fill and hints: the Files that the data plane stages without a request."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from monarch.stager.behind import NOTHING_BEHIND, Behind
from monarch.stager.capacity import Storage, footprints
from monarch.stager.eviction import Eviction
from monarch.stager.policy import Files, Policy
from monarch.stager.replicas import Replicas
from monarch.stager.transfer import Engine
from monarch.tiers import divide

_NONE: Final = np.zeros(0, np.uint32)
_VAIN_MAX: Final = 8
_DOUBLED_MAX: Final = 20

log = logging.getLogger("monarch.stager")


@dataclass(frozen=True, slots=True)
class StagerSettings:
    """The settings of staging that a user may change.

    Args:
        fill: whether Files are staged in the background.
        urgent_bytes_max: a larger File is copied in the background even if a program
            requests it, because no program waits for it.
        clock: monotonic seconds.
        behind: Files that fill does not stage until a program requests one of them.
    """

    fill: bool
    urgent_bytes_max: int
    clock: Callable[[], float] = time.monotonic
    behind: Behind = NOTHING_BEHIND

    def is_large(self, size_bytes: int) -> bool:
        """Return whether no program waits for a File of this size."""
        return size_bytes > self.urgent_bytes_max


class Fill:
    """Passes the Files of background fill to the data plane, in their order.

    Two lists are processed side by side: the Files to read from the Origin, and the
    Files to fetch from peers.
    """

    def __init__(self, engine: Engine, settings: StagerSettings) -> None:
        self._engine = engine
        self._enabled = settings.fill
        self._behind = settings.behind
        self._news = 0
        self._passed_over = 0
        self._crowded = self._packed = 0
        self._again = self._packed_before = self._vain = 0

    def __repr__(self) -> str:
        left = sum(self._engine.fill_left())
        return f"<Fill {left} to look at>"

    @property
    def is_done(self) -> bool:
        """Whether fill has gone through all Files."""
        return not any(self._engine.fill_left())

    def start(self, policy: Policy, offered: Files) -> None:
        """Process every File that the Policy selects for fill.

        Args:
            offered: Files with Replicas of earlier jobs, which are verified first,
                even if fill is disabled.
        """
        if self._enabled:
            self._fill(policy.to_read, policy.to_fetch, offered)
        elif len(offered):
            self._engine.fill(offered, _NONE)

    def check_news(self, policy: Policy, news: int, passed_over: int) -> None:
        """Process the Files of peers again, if some that were skipped may be available.

        Args:
            news: changes with each change of the usable peers.
            passed_over: the number of Files that fill has skipped since the start.
        """
        if news == self._news or not self.is_done:
            return
        missed, self._passed_over = passed_over > self._passed_over, passed_over
        self._news = news
        if missed and self._enabled:
            self._fill(policy.to_read_in_part, policy.to_fetch)

    def check_room(self, policy: Policy, crowded: int, packed: int) -> None:
        """Process Files that did not fit again, if frames were smaller than expected.

        Args:
            crowded: the number of Files that did not fit since the start, while frames
                were in flight.
            packed: the number of Files packed since then.
        """
        if crowded == self._crowded or packed == self._packed or not self.is_done:
            return
        self._crowded, self._packed = crowded, packed
        if self._enabled:
            self._fill(policy.to_read, policy.to_fetch)

    def check_again(self, policy: Policy, again: int, packed: int) -> None:
        """Process Files again that it may have skipped while they were refused.

        A full Tier gains nothing by that: after some passes without success, each
        further one waits for twice as many Files.

        Args:
            again: the number of Files to be packed that were refused for a while,
                because the Pool was full, and may be requested again.
            packed: the number of Files packed since the start.
        """
        vain = self._vain if packed == self._packed_before else 0
        wanted = 1 << min(max(vain - _VAIN_MAX, 0), _DOUBLED_MAX)
        if again - self._again < wanted or not self.is_done:
            return
        self._again, self._packed_before, self._vain = again, packed, vain + 1
        if self._enabled:
            self._fill(policy.to_read, policy.to_fetch)

    def _fill(self, to_read: Files, to_fetch: Files, offered: Files = _NONE) -> None:
        order = self._behind.order
        self._engine.fill(np.concatenate([offered, order(to_read)]), order(to_fetch))


class ReadingAhead:
    """Passes the orders in which programs will open Files to the data plane.

    Attributes:
        has_pool: whether the Pool has been opened for that.
    """

    def __init__(
        self, engine: Engine, storage: Storage, replicas: Replicas, eviction: Eviction
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._eviction = eviction
        self._need_bytes = int(footprints(replicas.sizes).sum())
        self.has_pool = False

    def __repr__(self) -> str:
        return f"<ReadingAhead pool {self._storage.pool.capacity_bytes}>"

    def hint(self, program: int, files: Files) -> None:
        """Stage the Files that a program opens next, in order, before all others.

        Args:
            program: its number; its earlier hints are replaced.
            files: each as often as it will be opened; empty: no more hints.

        Raises:
            OSError: too many programs send hints.
        """
        if len(files):
            self._open_pool()
        self._engine.hint(program, files)

    def _open_pool(self) -> None:
        """Open the Pool if it has no capacity and the Tiers cannot hold all Files."""
        storage = self._storage
        tiers = [storage.ledger.limit(tier) for tier in range(len(storage.tiers))]
        if storage.pool.capacity_bytes or self._need_bytes <= sum(tiers):
            return
        size_bytes = storage.pool_wanted_bytes
        ram = [n for n, tier in enumerate(storage.tiers) if tier.kind == "ram"]
        parts = divide(size_bytes, (tiers[number] for number in ram))
        for number, part in zip(ram, parts, strict=True):
            self._eviction.yield_room(number, part)
        size_bytes = sum(parts) if ram else size_bytes
        storage.open_pool(size_bytes)
        self.has_pool = True
        log.info("pool for hints bytes=%d", size_bytes)
