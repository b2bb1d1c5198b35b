"""Packed Tiers that outlive their job: retained by one, adopted by the next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from monarch.agent.namespace import Namespace
from monarch.agent.packed_tiers import PackedTier, PlainTier, plain_facts
from monarch.agent.rechecking import unconfirmed
from monarch.agent.staging import Staging
from monarch.metrics import AgentCounters
from monarch.native import NO_FILE, PackIndex, names_of, read_index
from monarch.report.format import many
from monarch.tiers import Tier
from monarch.tiers.packed import Packs, configuration, segments_in
from monarch.tiers.retained import (
    RETAINED,
    Manifest,
    namespace_digest,
    read_manifest,
)

if TYPE_CHECKING:
    from monarch.catalog.inventory import Inventory

log = logging.getLogger("monarch.agent")


def packs_of(
    tier: Tier, packing: PackedTier | PlainTier, inventory: Inventory
) -> Packs | None:
    """Return the packs of a Tier after its engine has ended; None: no packs.

    Of a Tier that `auto` has left plain they say only that, and for which Files.
    """
    if isinstance(packing, PlainTier):
        about = configuration(tier.settings, plain_facts(tier, inventory))
        return Packs((), about, (), packing.ratio, packing.why)
    about = configuration(tier.settings)
    segments = tuple(segments_in(tier.directory))
    if not segments:
        return None
    return Packs(segments, about, packing.packings, packing.ratio, packing.why)


def left_packs(
    tiers: Sequence[Tier], roots: Sequence[bytes], retain: str | float
) -> dict[int, Packs]:
    """Return the packs that earlier jobs left in Tiers, before these are claimed."""
    if retain == "job":
        return {}
    digest = namespace_digest(roots)
    manifests = {
        number: read_manifest(tier.home / f"{RETAINED}{digest}")
        for number, tier in enumerate(tiers)
    }
    return packs_in(manifests)


def packs_in(manifests: Mapping[int, Manifest | None]) -> dict[int, Packs]:
    """Return the packs of retained Tiers, by the number of the Tier."""
    return {
        number: manifest.packs
        for number, manifest in manifests.items()
        if manifest is not None and manifest.packs is not None
    }


def adopt_packs(
    staging: Staging,
    manifests: Mapping[int, Manifest],
    counters: AgentCounters,
    warn: Callable[[str], None],
) -> None:
    """Let the engine adopt the pack files of earlier jobs, and remove the others.

    Frames of Files that have changed since have the names of the old versions, and are
    discarded; frames of another codec than this job's are discarded and reported in one
    line.

    Args:
        warn: called with frames of unchanged Files that cannot be used.
    """
    left = {n: packs for n, packs in packs_in(manifests).items() if packs.segments}
    if not left:
        return
    namespace = staging.namespace
    files = {
        bytes.fromhex(namespace.name_of(file)): file
        for file in range(len(namespace.inventory))
    }
    for number, packs in left.items():
        tier, adopted, refused = staging.stager.storage.tiers[number], 0, 0
        for segment in packs.segments:
            path = tier.directory / segment.name
            index = read_index(path)
            wanted = np.zeros(0, np.uint32)
            if index is not None:
                wanted = _wanted(index, files, namespace)
            numbers = wanted[wanted != NO_FILE]
            staging.stager.replicas.confirm(numbers.astype(np.int64))
            found = 0
            if len(numbers):
                found = staging.engine.adopt_pack(number, segment.name, wanted)
            if not found:
                path.unlink(missing_ok=True)
            adopted, refused = adopted + found, refused + len(numbers) - found
        counters.adoptions_refused += refused
        log.info(
            "packs adopted tier=%s frames=%d refused=%d", tier.name, adopted, refused
        )
        if refused:
            warn(
                f"tier {tier.name}: {many(refused, 'packed copies')} of an earlier job "
                "cannot be used: damaged, without room, or of another codec"
            )


def _wanted(
    index: PackIndex, files: Mapping[bytes, int], namespace: Namespace
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return for each frame the File of this job, or NO_FILE."""
    found = [files.get(name, NO_FILE) for name in names_of(index)]
    doubted = unconfirmed(namespace, [file for file in found if file != NO_FILE])
    kept = [NO_FILE if file in doubted else file for file in found]
    return np.array(kept, np.uint32)
