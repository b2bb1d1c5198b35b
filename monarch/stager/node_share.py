"""A node's share of the Files: what it is to keep, what is ready, and what it lacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monarch.native import Reason
from monarch.stager.policy import Policy
from monarch.stager.replicas import Replicas

# What is absent for one of these may still come.
_PASSING = (Reason.NONE, Reason.BUSY)


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What a node keeps by its Policy, at one moment.

    Attributes:
        kept: the Files that it is to keep.
        ready: those that are in its Tiers, whether it is to keep them or not.
        unplaced: the Files that no node has room for.
        lacking: the kept Files that are not ready, by the Reason.
    """

    kept: npt.NDArray[np.intp]
    ready: npt.NDArray[np.intp]
    unplaced: npt.NDArray[np.intp]
    lacking: dict[Reason, npt.NDArray[np.intp]]

    @classmethod
    def of(cls, replicas: Replicas, policy: Policy, tiers: int) -> Share:
        """Return the share of a node now.

        Args:
            tiers: how many Tiers it has.
        """
        kept = policy.kept
        ready = [replicas.ready_in(tier) for tier in range(tiers)]
        lacking = {reason: _among(kept, replicas.absent(reason)) for reason in Reason}
        return cls(
            kept=np.flatnonzero(kept),
            ready=np.sort(np.concatenate(ready)),
            unplaced=np.flatnonzero(~policy.placed),
            lacking={reason: files for reason, files in lacking.items() if len(files)},
        )

    @property
    def may_come(self) -> bool:
        """Whether a File that is lacking may still be staged."""
        return any(reason in self.lacking for reason in _PASSING)


def _among(
    kept: npt.NDArray[np.bool_], files: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    found: npt.NDArray[np.intp] = files[kept[files]]
    return found
