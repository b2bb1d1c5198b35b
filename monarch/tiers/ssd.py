"""A Tier in a directory of a local disk."""

from typing import ClassVar

from monarch.errors import UsageError
from monarch.tiers.tier import Device, Tier
from monarch.units import SizeKind


class SsdTier(Tier):
    """Replicas on a local disk; a share means a share of the whole file system."""

    kind: ClassVar[str] = "ssd"

    def wanted_bytes(self, device: Device) -> int:
        """Return the capacity: by default four fifths of what is free."""
        capacity = self.settings.capacity
        if capacity.kind is SizeKind.BYTES:
            return capacity.of(0)
        if device.total_bytes is None or device.free_bytes is None:
            raise UsageError(
                f"{self.settings.key}.capacity: {self.settings.path} does not tell its "
                "size; give the capacity in bytes"
            )
        if capacity.kind is SizeKind.AUTO:
            return device.free_bytes * 4 // 5
        return capacity.of(device.total_bytes)

    def limit_bytes(self, device: Device) -> int | None:
        """Return the size of the file system."""
        return device.total_bytes
