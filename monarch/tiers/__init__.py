"""The node-local media of a job: their directories, capacities and leftovers."""

from monarch.tiers.ram import RamTier
from monarch.tiers.ssd import SsdTier
from monarch.tiers.tier import Device, Tier, TierSettings, measure
from monarch.tiers.transit import open_transit

__all__ = [
    "Device",
    "RamTier",
    "SsdTier",
    "Tier",
    "TierSettings",
    "measure",
    "open_tier",
    "open_transit",
]


def open_tier(settings: TierSettings, job_node: str) -> Tier:
    """Return the Tier that the settings describe, without touching its device."""
    kinds: dict[str, type[Tier]] = {"ram": RamTier, "ssd": SsdTier}
    return kinds[settings.kind](settings, job_node)
