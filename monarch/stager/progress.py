"""The progress and rate of staging: cheap enough for a request every second."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from monarch.native import Reason
from monarch.stager.node_share import kept_page_bytes, missing_pieces, unit_bytes

if TYPE_CHECKING:
    from monarch.stager.policy import Mask, Policy
    from monarch.stager.stager import Stager

# Files absent for one of these are not staged in this job, unless space is freed.
_FINAL: Final = (
    *(Reason.NO_ROOM, Reason.CHANGED, Reason.ERROR, Reason.DENIED, Reason.MEMORY),
    Reason.STOPPING,
)


WINDOW_S: Final = 10.0
"""The time over which growth is measured."""
PERIOD_S: Final = 1.0
"""The interval between samples."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The part of the kept Files that a node already has.

    Attributes:
        files: the Files that are ready, of `kept_files`.
        bytes: the bytes present, including Pages of large Files that are not whole.
        kept_files: the Files that the node is to keep, whole or in part.
        coming_bytes: the missing bytes that are not known to stay absent, as far as
            they fit the Tiers.
    """

    files: int = 0
    bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    coming_bytes: int = 0

    @property
    def share(self) -> float | None:
        """The part of the bytes that is present; None if nothing is to be kept."""
        return self.bytes / self.kept_bytes if self.kept_bytes else None


class ProgressMeter:
    """Measures the progress of a Stager; sums up the kept bytes once per Policy."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._some: Mask = np.zeros(0, np.bool_)
        self._kept_bytes = 0

    def __repr__(self) -> str:
        return f"<ProgressMeter of {self._policy!r}>"

    def measure(self, stager: Stager) -> Progress:
        """Return the current progress."""
        replicas, policy = stager.replicas, stager.policy
        if policy is not self._policy:
            self._policy = policy
            self._some = policy.units.any_of(policy.kept)
            sizes = unit_bytes(replicas, policy.units, policy.kept, self._some)
            self._kept_bytes = sizes
        tiers = range(len(stager.storage.tiers))
        packed = stager.storage.packed_in()
        ready = np.concatenate([packed, *(replicas.ready_in(tier) for tier in tiers)])
        ready = ready[self._some[ready]]
        whole = np.zeros(len(replicas.sizes), np.bool_)
        whole[ready] = True
        found = int(replicas.sizes[ready].sum())
        found += kept_page_bytes(replicas, policy, whole)
        found = min(found, self._kept_bytes)  # a File may be whole, but kept in part
        return Progress(
            files=len(ready),
            bytes=found,
            kept_files=int(np.count_nonzero(self._some)),
            kept_bytes=self._kept_bytes,
            coming_bytes=self._coming(stager, found),
        )

    def _coming(self, stager: Stager, found: int) -> int:
        replicas, left = stager.replicas, self._kept_bytes - found
        for reason in _FINAL:
            absent = replicas.absent(reason)
            left -= int(replicas.sizes[absent[self._some[absent]]].sum())
        left -= missing_pieces(replicas, stager.policy)
        room = sum(
            account.capacity_bytes - account.used_bytes
            for account in stager.storage.ledger.accounts
            if account.in_service
        )
        return max(0, min(left, room))


class Rates:
    """The growth per second of some counts.

    Args:
        window_s: the time over which it is measured.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, Mapping[str, float]]] = deque()

    def __repr__(self) -> str:
        return f"<Rates of {len(self._samples)} samples>"

    def is_due(self, now_s: float) -> bool:
        """Return whether the last sample is old enough for the next one."""
        return not self._samples or now_s - self._samples[-1][0] >= PERIOD_S

    def note(self, now_s: float, counts: Mapping[str, float]) -> None:
        """Take a sample of the counts, whose names never change."""
        self._samples.append((now_s, counts))
        while now_s - self._samples[0][0] > self._window_s:
            self._samples.popleft()

    def per_s(self) -> dict[str, float]:
        """Return the growth of each count per second; nothing before two samples.

        The growth of a count that has decreased is 0.
        """
        if len(self._samples) < 2:
            return {}
        (began_s, before), (ended_s, after) = self._samples[0], self._samples[-1]
        seconds = ended_s - began_s
        return {
            name: max(0.0, (count - before[name]) / seconds)
            for name, count in after.items()
        }

    def left_s(self, name: str, amount: float) -> float | None:
        """Return how long an amount takes at the rate of a count; None: unknown."""
        rate = self.per_s().get(name, 0.0)
        if not amount:
            return 0.0
        return amount / rate if rate else None
