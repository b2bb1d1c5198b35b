"""A Tier on tmpfs, whose bytes count against the memory of the job."""

from typing import ClassVar

from monarch.tiers.memory import Memory, read_memory, tightest
from monarch.tiers.tier import Device, Tier, TierSettings
from monarch.units import SizeKind


class RamTier(Tier):
    """Replicas in memory; a share means a share of the job's memory limit."""

    kind: ClassVar[str] = "ram"

    def __init__(
        self, settings: TierSettings, job_node: str, memory: Memory | None = None
    ) -> None:
        super().__init__(settings, job_node)
        self._memory = memory or tightest(read_memory())

    def wanted_bytes(self, device: Device) -> int:
        """Return the capacity: by default a quarter of the limit, half of what is free.

        Half must stay free because the program and its loader's workers, which use
        shared memory too, come after us.
        """
        memory, capacity = self._memory, self.settings.capacity
        if capacity.kind is SizeKind.AUTO:
            free = memory.free_bytes
            if device.free_bytes is not None:
                free = min(free, device.free_bytes)
            return min(memory.limit_bytes // 4, free // 2)
        return capacity.of(memory.limit_bytes)

    def count_out(self, segments_bytes: int) -> None:
        """Count the shared segments in a share of memory, which they take too."""
        if self.settings.capacity.kind is not SizeKind.BYTES:
            self.capacity_bytes = max(0, self.capacity_bytes - segments_bytes)

    def limit_bytes(self, device: Device) -> int | None:
        """Return the smaller of the memory limit and the file system."""
        limit = self._memory.limit_bytes
        return limit if device.total_bytes is None else min(limit, device.total_bytes)
