"""The kinds of Tiers: in memory and on a local disk."""

from typing import ClassVar

from monarch.errors import UsageError
from monarch.tiers.memory import Memory, read_memory, tightest
from monarch.tiers.tier import Device, Tier, TierSettings
from monarch.units import SizeKind


class RamTier(Tier):
    """A Tier on tmpfs; a share means a share of the job's memory limit."""

    kind: ClassVar[str] = "ram"

    def __init__(
        self, settings: TierSettings, job_node: str, memory: Memory | None = None
    ) -> None:
        super().__init__(settings, job_node)
        self._memory = memory or tightest(read_memory())

    def wanted_bytes(self, device: Device) -> int:
        """Return the capacity, by default from the memory limit and the free memory.

        By default it is a quarter of the limit, but at most half of the free memory.
        The other half is for the program and the workers of its loader, which use
        shared memory too and start later.
        """
        memory, capacity = self._memory, self.settings.capacity
        if capacity.kind is SizeKind.AUTO:
            free = memory.free_bytes
            if device.free_bytes is not None:
                free = min(free, device.free_bytes)
            return min(memory.limit_bytes // 4, free // 2)
        return capacity.of(memory.limit_bytes)

    def subtract(self, used_bytes: int) -> None:
        """Subtract other memory use, unless the capacity is configured in bytes."""
        if self.settings.capacity.kind is not SizeKind.BYTES:
            self.capacity_bytes = max(0, self.capacity_bytes - used_bytes)

    def limit_bytes(self, device: Device) -> int | None:
        """Return the smaller of the memory limit and the size of the file system."""
        limit = self._memory.limit_bytes
        return limit if device.total_bytes is None else min(limit, device.total_bytes)


class SsdTier(Tier):
    """A Tier on a local disk; a share means a share of the whole file system."""

    kind: ClassVar[str] = "ssd"

    def wanted_bytes(self, device: Device) -> int:
        """Return the capacity: by default four fifths of the free space."""
        capacity = self.settings.capacity
        if capacity.kind is SizeKind.BYTES:
            return capacity.of(0)
        if device.total_bytes is None or device.free_bytes is None:
            raise UsageError(
                f"{self.settings.key}.capacity: {self.settings.path} does not report "
                "its size; give the capacity in bytes"
            )
        if capacity.kind is SizeKind.AUTO:
            return device.free_bytes * 4 // 5
        return capacity.of(device.total_bytes)

    def limit_bytes(self, device: Device) -> int | None:
        """Return the size of the file system."""
        return device.total_bytes


def open_tier(settings: TierSettings, job_node: str) -> Tier:
    """Return the Tier of these settings, without touching its device."""
    kinds: dict[str, type[Tier]] = {"ram": RamTier, "ssd": SsdTier}
    return kinds[settings.kind](settings, job_node)
