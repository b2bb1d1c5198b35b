"""The Namespace of a job: its datasets indexed, laid out and published."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from monarch import native
from monarch.agent.mark_table import MarkTable
from monarch.agent.segments import Segments
from monarch.agent.setup import Setup
from monarch.catalog.block import Block
from monarch.catalog.inventory import Inventory
from monarch.catalog.segment import (
    CatalogPlan,
    MappedRoot,
    OpenPolicy,
    TierPlace,
    catalog_digest,
    plan_catalog,
)
from monarch.catalog.unmanaged import shown
from monarch.origins.index import Indexed
from monarch.origins.layout import LAYOUT
from monarch.stager import FileTable, Replicas, WrittenMarks
from monarch.stager.capacity import footprints
from monarch.tiers import Tier


class Namespace:
    """The published Files of a job, by number."""

    def __init__(self, plan: CatalogPlan, segments: Segments) -> None:
        self.segments = segments
        self.roots = _mapped(plan, segments)
        self.inventory = Inventory(self.roots, native.CONSTANTS["EXTENT_BYTES"])
        # What all Files take of Tiers, each of them whole pages.
        self.room_bytes = int(footprints(self.inventory.sizes).sum())
        self.bases = plan.file_bases
        self.digest = catalog_digest(plan.roots, native.hash64)
        self.written = WrittenMarks(*segments.marks(), segments.note_marks)
        self._mark_bases = (*plan.file_bases, *plan.directory_bases)
        self._first = [root.block.first_entry for root in self.roots]

    def __repr__(self) -> str:
        return f"<Namespace {len(self.inventory)} files in {len(self.roots)} roots>"

    def name_of(self, file: int) -> str:
        """Return the name of a File's Replica."""
        number = self.inventory.root_of(file)
        entry = int(self._first[number][file - self.bases[number]])
        root = self.roots[number]
        return native.replica_name(root.block.memory, root.path, entry)

    def replicas(self) -> Replicas:
        """Return the Files with their states, as the Stager sees and changes them."""
        catalog = self.segments.memory["catalog"]
        return Replicas(
            FileTable(
                sizes=self.inventory.sizes,
                words=self.segments.words(len(self.inventory)),
                marks=self.written,
                publish=lambda file, word: native.state_store(catalog, file, word),
                name_of=self.name_of,
                inodes_of=self.segments.inodes_of,
                inodes_in=self.segments.inodes_in,
                bases=self.bases,
            )
        )

    def marks(self) -> MarkTable:
        """Return the marks that programs and other nodes set."""
        return MarkTable(self.written, self._mark_bases)

    def path(self, file: int) -> str:
        """Return the path of a File on its Origin, for people."""
        return shown(self.inventory.path(file))


def publish(setup: Setup, indexed: list[Indexed], segments: Segments) -> Namespace:
    """Write the segments that programs look for; the catalog is the last of them."""
    plan = plan_catalog(
        LAYOUT,
        [one.mapped() for one in indexed],
        [_place(tier) for tier in (*setup.tiers, *filter(None, [setup.transit]))],
        _policy(setup, indexed),
    )
    generation = segments.generation
    segments.create(
        "flags", plan.flags_length, lambda _, m: plan.write_flags(m, generation)
    )
    segments.create(
        "inodes", plan.inodes_length, lambda _, m: plan.write_inodes(m, generation)
    )
    segments.create(
        "catalog",
        plan.length,
        lambda _, m: plan.write_into(m, generation, native.hash64),
    )
    return Namespace(plan, segments)


def _mapped(plan: CatalogPlan, segments: Segments) -> list[MappedRoot]:
    """Return the roots with the blocks in shared memory; the others can be freed."""
    memory = segments.memory["catalog"]
    mapped = []
    for place, root in zip(plan.places.blocks, plan.roots, strict=True):
        block = Block(memory[place : place + len(root.block.memory)], LAYOUT)
        mapped.append(replace(root, block=block))
    return mapped


def _policy(setup: Setup, indexed: list[Indexed]) -> OpenPolicy:
    cold = setup.config.cold_open
    return OpenPolicy(
        cold_mode=native.ColdMode[cold.mode.upper()],
        cold_wait_max_bytes=cold.wait_max,
        cold_timeout_ns=int(cold.timeout * 1e9),
        inner_mounts=any(
            native.mounts_cover(one.index.block.memory, one.root.path)
            for one in indexed
        ),
        programs_excluded=setup.config.programs.exclude,
    )


def _place(tier: Tier) -> TierPlace:
    kinds = {"ram": 0, "ssd": 1}
    return TierPlace(
        kinds[tier.kind], os.fsencode(tier.directory), device_of_files(tier.directory)
    )


def device_of_files(directory: Path) -> int:
    """Return the device of a new file, which overlays report unlike the directory's."""
    probe = directory / ".probe"
    fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
        os.unlink(probe)


def extent_arrays(namespace: Namespace) -> "tuple[np.ndarray, np.ndarray]":
    """Return room for the checksums of all Extents, and where each File's begin."""
    first = namespace.inventory.extent_first
    return np.zeros(int(first[-1]), np.uint64), first
