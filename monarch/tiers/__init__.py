"""The node-local media of a job: their directories, capacities and leftovers."""

from monarch.tiers.tier import (
    Device,
    RamTier,
    SsdTier,
    Tier,
    TierSettings,
    check_places,
    measure,
    open_pool,
    open_tier,
)

__all__ = [
    "Device",
    "RamTier",
    "SsdTier",
    "Tier",
    "TierSettings",
    "check_places",
    "measure",
    "open_pool",
    "open_tier",
]
