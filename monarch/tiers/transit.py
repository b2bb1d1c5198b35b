"""The Tier of the transit pool: room for Files that a node does not keep."""

from pathlib import Path
from typing import ClassVar, Final

from monarch.tiers.directory_lock import make_private, remove_tree
from monarch.tiers.memory import Memory, read_memory, tightest
from monarch.tiers.tier import Device, Tier, TierSettings
from monarch.units import Size, SizeKind

NAME: Final = "transit"
FREE_PARTS: Final = 8
"""The pool takes one part of so many: a RAM Tier may take half of what is free."""


class TransitTier(Tier):
    """A part of the run directory, and thus of memory."""

    kind: ClassVar[str] = "ram"

    def __init__(
        self, settings: TierSettings, run: Path, memory: Memory | None = None
    ) -> None:
        super().__init__(settings, run.name)
        self._memory = memory or tightest(read_memory())
        self.home, self.job_directory = run.parent, run
        self.directory = run / NAME

    def prepare(self, held: Path) -> None:
        """Make the directory; the lock of the run directory is its lock too."""
        assert held == self.job_directory
        self._owned = True
        remove_tree(self.directory)
        make_private(self.directory)

    def wanted_bytes(self, device: Device) -> int:
        """Return the capacity that was asked for, or a part of what is free if less."""
        free = self._memory.free_bytes
        if device.free_bytes is not None:
            free = min(free, device.free_bytes)
        return min(self.settings.capacity.of(0), free // FREE_PARTS)

    def limit_bytes(self, device: Device) -> int | None:
        """Return no limit: a pool that is too large is made smaller, not refused."""
        return None


def open_transit(run: Path, capacity_bytes: int) -> Tier:
    """Return the Tier of the transit pool, without touching its device.

    Args:
        run: the run directory, which the agent holds.
    """
    settings = TierSettings(
        key=f"peers.{NAME}",
        name=NAME,
        kind=TransitTier.kind,
        path=run.parent,
        capacity=Size(SizeKind.BYTES, capacity_bytes),
        headroom=Size(SizeKind.BYTES, 0),
    )
    return TransitTier(settings, run)
