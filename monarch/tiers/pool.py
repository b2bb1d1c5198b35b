"""The Pool of a node: a part of its ram Tiers, in the run directory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from monarch.tiers.directory_lock import make_private, remove_tree
from monarch.tiers.memory import Memory, read_memory, tightest
from monarch.tiers.tier import Device, Tier, TierSettings
from monarch.units import Size, SizeKind

POOL_NAME: Final = "transit"
POOL_BYTES_MAX: Final = 256 << 20
"""The largest size of an automatic Pool."""
TIER_PARTS: Final = 8
"""An automatic Pool takes at most 1 / TIER_PARTS of the ram Tiers."""
FREE_PARTS: Final = 8
"""Any Pool takes at most 1 / FREE_PARTS of the free memory."""


def pool_bytes(wanted: Size, ram_bytes: Sequence[int]) -> int:
    """Return the size of the Pool.

    Args:
        wanted: the configured size.
        ram_bytes: the capacity of each ram Tier; if empty, the Pool takes its memory
            beside the Tiers.
    """
    is_auto, room = wanted.kind is SizeKind.AUTO, sum(ram_bytes)
    size = POOL_BYTES_MAX if is_auto else wanted.of(0)
    if not ram_bytes:
        return size
    return min(size, room // TIER_PARTS if is_auto else room)


def divide(size_bytes: int, ram_bytes: Iterable[int]) -> list[int]:
    """Return each ram Tier's part of the Pool: the first provides as much as it can."""
    parts = []
    for room in ram_bytes:
        parts.append(min(size_bytes, room))
        size_bytes -= parts[-1]
    return parts


class PoolTier(Tier):
    """The place of the Pool: a part of the run directory, and thus of memory."""

    kind: ClassVar[str] = "ram"

    def __init__(
        self, settings: TierSettings, run: Path, memory: Memory | None = None
    ) -> None:
        super().__init__(settings, run.name)
        self._memory = memory or tightest(read_memory())
        self.home, self.job_directory = run.parent, run
        self.directory = run / POOL_NAME

    def prepare(self, locked: Path) -> None:
        """Make the directory, which the lock of the run directory covers."""
        assert locked == self.job_directory
        self._owned = True
        remove_tree(self.directory)
        make_private(self.directory)

    def wanted_bytes(self, device: Device) -> int:
        """Return its configured size, but at most a part of the free memory."""
        free = self._memory.free_bytes
        if device.free_bytes is not None:
            free = min(free, device.free_bytes)
        return min(self.settings.capacity.of(0), free // FREE_PARTS)

    def limit_bytes(self, device: Device) -> int | None:
        """Return None for no limit: too large a Pool is made smaller, not refused."""
        return None


def open_pool(run: Path, capacity_bytes: int) -> Tier:
    """Return the place of the Pool in a run directory, without touching its device."""
    settings = TierSettings(
        key=f"peers.{POOL_NAME}",
        name=POOL_NAME,
        kind=PoolTier.kind,
        path=run.parent,
        capacity=Size(SizeKind.BYTES, capacity_bytes),
        headroom=Size(SizeKind.BYTES, 0),
    )
    return PoolTier(settings, run)


def wanted_pool(wanted: Size, tiers: Iterable[Tier]) -> int:
    """Return the size of the Pool beside these resolved Tiers."""
    ram = [tier.granted_bytes for tier in tiers if tier.kind == "ram"]
    return pool_bytes(wanted, ram)


def make_pool(run: Path, wanted: Size, tiers: Sequence[Tier]) -> Tier:
    """Return the Pool, with its capacity limited by the free memory."""
    pool = open_pool(run, wanted_pool(wanted, tiers))
    pool.resolve()
    return pool


def give_to_pool(size_bytes: int, tiers: Iterable[Tier]) -> None:
    """Take the capacity of the Pool from the ram Tiers, beginning with the first."""
    ram = [tier for tier in tiers if tier.kind == "ram"]
    parts = divide(size_bytes, (tier.granted_bytes for tier in ram))
    for tier, part in zip(ram, parts, strict=True):
        tier.give_to_pool(part)
