"""Tiers that outlive the job: taken over at its start, set aside at its end."""

import logging
import math
import time
from collections.abc import Sequence

from monarch.agent.namespace import Namespace
from monarch.stager import ExtentDigests, Stager, describe, footprint, match
from monarch.tiers import Tier
from monarch.tiers.retained import (
    Manifest,
    claim,
    namespace_digest,
    retain_directory,
)

log = logging.getLogger("monarch.agent")


def expiry_s(retain: str | float, now_s: float) -> float:
    """Return when what is retained now may go: at a time, or never by itself."""
    return now_s + retain if isinstance(retain, int | float) else math.inf


def claim_all(tiers: Sequence[Tier], roots: Sequence[bytes]) -> dict[int, Manifest]:
    """Take over what earlier jobs over these roots have left, by Tier number."""
    digest, found = namespace_digest(roots), {}
    for number, tier in enumerate(tiers):
        manifest = claim(tier.directory, tier.home, digest)
        if manifest is None:
            continue
        tier.add_retained(sum(map(footprint, manifest.sizes.tolist())))
        found[number] = manifest
        log.info("retained claimed tier=%s files=%d", tier.name, len(manifest.names))
    return found


def offer(
    stager: Stager,
    namespace: Namespace,
    manifests: dict[int, Manifest],
    extents: ExtentDigests,
) -> None:
    """Let the Stager adopt what the manifests hold, and remove what nobody wants."""
    names = [
        (file, namespace.name_of(file)) for file in range(len(namespace.inventory))
    ]
    for number, manifest in manifests.items():
        tier = stager.storage.tiers[number]
        files, strangers = match(manifest, names, stager.replicas.sizes, extents)
        for file in files:
            known = file in stager.adoption.tiers
            if known or not stager.offer(file, number):
                strangers.add(namespace.name_of(file))
        for name in strangers:
            (tier.directory / name).unlink(missing_ok=True)


def retain_all(
    stager: Stager, namespace: Namespace, extents: ExtentDigests, retain: str | float
) -> None:
    """Set every Tier aside with a manifest of its ready Replicas."""
    digest = namespace_digest([root.path for root in namespace.roots])
    expires_s = expiry_s(retain, time.time())
    sizes = stager.replicas.sizes
    for number, tier in enumerate(stager.storage.tiers):
        files = stager.replicas.unwritten(stager.replicas.ready_in(number))
        if not len(files) or not tier.directory.is_dir():
            continue
        manifest = describe(files, namespace.name_of, sizes, extents, expires_s)
        retain_directory(tier.directory, tier.home, digest, manifest)
        log.info("tier retained tier=%s files=%d", tier.name, len(files))
