"""Doubts about the place of a Tier: it works, but may not be intended.

`monarch doctor` checks more; these checks are cheap enough for the start of each job.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from monarch.native import file_system_traits
from monarch.tiers.tier import TierSettings


def doubts_about(tiers: Sequence[TierSettings], roots: Iterable[Path]) -> list[str]:
    """Return at most one sentence for each Tier, with advice.

    A path that cannot be examined raises no doubt: its user reports the fault.

    Args:
        roots: the datasets.
    """
    devices = {root: dev for root in roots if (dev := _device(root)) is not None}
    found = (_doubt(tier, devices) for tier in tiers)
    return [doubt for doubt in found if doubt is not None]


def _doubt(tier: TierSettings, devices: Mapping[Path, int]) -> str | None:
    """Compare the kind and the place of a Tier with the file system there."""
    path, name = tier.path, tier.name
    traits = file_system_traits(path)
    if traits is None:
        return None
    if traits.is_remote:
        return (
            f"tier {name} ({path}) is on a network file system: it may be as "
            "slow as the dataset; use a disk of this node, or memory"
        )
    if tier.kind == "ram" and not traits.in_memory:
        return (
            f"tier {name} is of kind ram, but {path} is not in memory; use kind ssd, "
            "or a path below /dev/shm"
        )
    if tier.kind == "ssd" and traits.in_memory:
        return (
            f"tier {name} is of kind ssd, but {path} is in memory and counts against "
            "the job's limit; use kind ram, or a path on a disk"
        )
    # Two directories in memory are equally fast, so this is no mistake.
    dev = None if traits.in_memory else _device(path)
    for root, other in devices.items():
        if other == dev:
            return (
                f"tier {name} ({path}) is on the same file system as the dataset "
                f"{root}: copies gain little there; use another disk, or memory"
            )
    return None


def _device(path: Path) -> int | None:
    """Return the device of a path; None if it cannot be examined."""
    try:
        return os.stat(path).st_dev
    except OSError:
        return None
