"""The space and reads that running jobs of this node save for a planned job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from monarch.report.format import many
from monarch.units import format_size

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from monarch.catalog.inventory import MappedRoot
    from monarch.cli.plan_simulation import TierRoom
    from monarch.config import Config
    from monarch.tiers import Tier
    from monarch.tiers.live_jobs import LiveJob, Mask


@dataclass(frozen=True, slots=True)
class SharingJob:
    """A running job, and how much of the dataset can be linked from it."""

    name: str
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedSharing:
    """The READY Files of a dataset in running jobs, where the Tiers of the plan are.

    Attributes:
        files: how many Files some of the jobs have.
        tier_bytes: the capacity of each Tier here, with the space of these Files.
    """

    jobs: tuple[SharingJob, ...]
    files: int
    size_bytes: int
    tier_bytes: tuple[int, ...]

    def rooms(self, tiers: Sequence[TierRoom]) -> list[TierRoom]:
        """Return the Tiers of a node with these capacities, where they are larger."""
        return [
            replace(tier, capacity_bytes=max(tier.capacity_bytes, room))
            for tier, room in zip(tiers, self.tier_bytes, strict=True)
        ]

    def describe(self, plan: dict[str, Any]) -> None:
        """Add the jobs to a plan, and subtract the bytes that it does not read."""
        plan["sharing"] = {
            "files": self.files,
            "bytes": self.size_bytes,
            "jobs": [
                {"job": job.name, "files": job.files, "bytes": job.size_bytes}
                for job in self.jobs
            ],
        }
        for job in self.jobs:
            plan["notes"].append(
                f"{many(job.files, 'files')}, {format_size(job.size_bytes)}, can be "
                f"linked from {job.name}, which runs on this node"
            )
        left = plan["left_at_origin"]
        if left["files"] or plan["partly_held_files"]:
            return  # it is not known which of the linked Files would be left
        for row in ("sharded", "everything"):
            plan["origin"][row]["bytes"] -= self.size_bytes


def planned_sharing(
    config: Config,
    roots: Sequence[MappedRoot],
    sizes: npt.NDArray[np.uint64],
    large_above: int,
) -> PlannedSharing | None:
    """Return the Files of datasets in running jobs; None: no Files."""
    from monarch.catalog.presence import large_files
    from monarch.cli.status import running_agents
    from monarch.stager.capacity import footprints
    from monarch.tiers.live_jobs import linkable_files, live_jobs, ready_files

    jobs = live_jobs(running_agents(None))
    large = large_files(sizes, large_above)
    may = linkable_files(roots, large, links_large=config.retain == "job")
    tiers, rooms = _tiers(config), footprints(sizes)

    def linkable(some: Sequence[LiveJob]) -> Mask:
        found = may & False
        ready = ready_files(some, roots)
        for dev, files in ready.items():
            if dev in {dev for _, dev in tiers}:
                found |= files & may
        return found

    parts = [(job, linkable([job])) for job in jobs]
    found = [
        SharingJob(job.name, int(files.sum()), int(sizes[files].sum()))
        for job, files in parts
        if files.any()
    ]
    if not found:
        return None
    held = {
        dev: int(rooms[m & may].sum()) for dev, m in ready_files(jobs, roots).items()
    }
    files = linkable(jobs)
    return PlannedSharing(
        tuple(found),
        int(files.sum()),
        int(sizes[files].sum()),
        tuple(_capacities(tiers, held, int(rooms.sum()))),
    )


def _capacities(
    tiers: Sequence[tuple[Tier, int | None]], held: dict[int, int], needed_bytes: int
) -> Iterator[int]:
    """Yield each Tier's capacity; the first on a file system includes linkable Files.

    Args:
        held: by file system, the space of the linkable Files there.
        needed_bytes: the space of all Files.
    """
    for tier, dev in tiers:
        shared = held.pop(dev, 0) if dev is not None else 0
        if shared:
            tier.add_shared(shared, needed_bytes)
        yield tier.capacity_bytes


def _tiers(config: Config) -> list[tuple[Tier, int | None]]:
    """Return the Tiers with their file systems; None: nothing can be linked there."""
    from monarch.errors import UsageError
    from monarch.tiers import TierSettings, open_tier
    from monarch.tiers.memory import read_memory

    found: list[tuple[Tier, int | None]] = []
    for number, section in enumerate(config.used_tiers):
        tier = open_tier(TierSettings.of(number, section), "plan")
        dev = None
        if tier.can_link(len(read_memory())):
            try:
                tier.resolve()
                dev = os.stat(section.path).st_dev
            except (UsageError, OSError):
                dev = None  # it is not a tier of this machine
        found.append((tier, dev))
    return found
