"""The node-local media of a job: their directories, capacities and leftovers."""

from monarch.tiers.doubts import doubts_about
from monarch.tiers.kinds import RamTier, SsdTier, open_pool, open_tier
from monarch.tiers.tier import (
    Device,
    Tier,
    TierSettings,
    check_places,
    check_root,
    measure,
)

__all__ = [
    "Device",
    "RamTier",
    "SsdTier",
    "Tier",
    "TierSettings",
    "check_places",
    "check_root",
    "doubts_about",
    "measure",
    "open_pool",
    "open_tier",
]
