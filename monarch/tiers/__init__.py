"""The node-local media of a job: their directories, capacities and leftovers."""

from monarch.tiers.doubts import doubts_about
from monarch.tiers.kinds import RamTier, SsdTier, open_tier
from monarch.tiers.pool import (
    divide,
    give_to_pool,
    make_pool,
    open_pool,
    pool_bytes,
    wanted_pool,
)
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
    "divide",
    "doubts_about",
    "give_to_pool",
    "make_pool",
    "measure",
    "open_pool",
    "open_tier",
    "pool_bytes",
    "wanted_pool",
]
