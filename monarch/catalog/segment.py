"""The catalog, flags and inodes segments of a job, planned and written."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from monarch.catalog.block import Block
from monarch.catalog.layout import Bytes, Hash, Layout, Records, aligned
from monarch.catalog.unmanaged import shown
from monarch.errors import UsageError

BYTES_PER_FILE = 176
"""What all segments together may take for one File."""
INODE_SLOTS_MIN = 1024


@dataclass(frozen=True, slots=True)
class MappedRoot:
    """One dataset root: where it is, how programs may spell it, and its index.

    Attributes:
        path: the realpath, by which the agent reads the Origin.
        spellings: other absolute names: as the user wrote it, and aliases.
        unstable: files there may get other inode numbers where they are.
    """

    path: bytes
    spellings: tuple[bytes, ...]
    block: Block
    unstable: bool = False


@dataclass(frozen=True, slots=True)
class TierPlace:
    """Where programs find the Replicas of one Tier; ``kind`` is 0 ram, 1 ssd."""

    kind: int
    path: bytes
    dev: int


@dataclass(frozen=True, slots=True)
class OpenPolicy:
    """What the Shim does at a cold open, and which programs it leaves alone.

    Attributes:
        inner_mounts: the agent sees something mounted on catalogued names.
    """

    cold_mode: int
    cold_wait_max_bytes: int
    cold_timeout_ns: int
    programs_excluded: tuple[str, ...] = ()
    inner_mounts: bool = False


@dataclass(frozen=True, slots=True)
class _Prefix:
    path: bytes
    root: int


@dataclass(frozen=True, slots=True)
class Places:
    """Offsets and lengths of the parts of a catalog segment."""

    blocks: tuple[int, ...]
    states: int
    prefixes: int
    strings: int
    length: int


@dataclass(frozen=True, slots=True)
class CatalogPlan:
    """A catalog whose every offset is known, ready to be written into a mapping."""

    layout: Layout
    roots: tuple[MappedRoot, ...]
    tiers: tuple[TierPlace, ...]
    policy: OpenPolicy
    prefixes: tuple[_Prefix, ...]
    strings: bytes
    places: Places
    file_bases: tuple[int, ...]
    directory_bases: tuple[int, ...]

    @property
    def file_count(self) -> int:
        """Return the Files of all roots."""
        return sum(root.block.file_count for root in self.roots)

    @property
    def directory_count(self) -> int:
        """Return the directories of all roots."""
        return sum(root.block.directory_count for root in self.roots)

    @property
    def length(self) -> int:
        """Return the bytes of the catalog segment."""
        return self.places.length

    @property
    def flags_length(self) -> int:
        """Return the bytes of the flags segment."""
        marks = self.file_count + self.directory_count
        return self.layout.dtypes["flags"].itemsize + marks

    @property
    def inode_slots(self) -> int:
        """Return how many inode slots the job gets: as many as its budget leaves.

        A table that is half empty answers in one probe; with long paths only a
        thirteenth is left empty, which costs some probes and keeps the budget.
        """
        files = self.file_count
        header = self.layout.dtypes["inodes"].itemsize
        left = BYTES_PER_FILE * files - self.length - self.flags_length - header
        slots = left // self.layout.dtypes["inode"].itemsize
        return max(min(max(slots, files * 13 // 12), files * 2), INODE_SLOTS_MIN)

    @property
    def inodes_length(self) -> int:
        """Return the bytes of the inodes segment."""
        slots = self.inode_slots * self.layout.dtypes["inode"].itemsize
        return self.layout.dtypes["inodes"].itemsize + slots

    def write_into(self, memory: Bytes, generation: int, hash64: Hash) -> None:
        """Write the catalog segment into zeroed memory; every File is absent."""
        _write_header(self, memory, generation, hash64)
        for place, root in zip(self.places.blocks, self.roots, strict=True):
            memory[place : place + len(root.block.memory)] = root.block.memory
        strings = np.frombuffer(self.strings, np.uint8)
        start = self.places.strings
        memory[start : start + len(strings)] = strings
        self._write_prefixes(memory)

    def _write_prefixes(self, memory: Bytes) -> None:
        dtype = self.layout.dtypes["prefix"]
        start, count = self.places.prefixes, len(self.prefixes)
        prefixes = memory[start : start + count * dtype.itemsize].view(dtype)
        for record, prefix in zip(prefixes, self.prefixes, strict=True):
            record["path"] = self.reference(prefix.path)
            record["root"] = prefix.root

    def reference(self, path: bytes) -> int:
        """Return a path as the segment names it: where it is, and how long."""
        return self.strings.index(path + b"\0") << 16 | len(path)

    def write_flags(self, memory: Bytes, generation: int) -> None:
        """Write the header of the flags segment; nothing is written to yet."""
        record = _segment(self.layout, memory, "flags", generation)
        record["count"] = self.file_count + self.directory_count

    def write_inodes(self, memory: Bytes, generation: int) -> None:
        """Write the header of the inodes segment; nothing is staged yet."""
        record = _segment(self.layout, memory, "inodes", generation)
        record["slot_count"] = self.inode_slots


def plan_catalog(
    layout: Layout,
    roots: Sequence[MappedRoot],
    tiers: Sequence[TierPlace],
    policy: OpenPolicy,
) -> CatalogPlan:
    """Give every part of a job's catalog its place.

    Raises:
        UsageError: too many roots, Tiers or program names, a root inside another, or a
            name that two roots share.
    """
    _check_counts(layout, len(roots), len(tiers), len(policy.programs_excluded))
    _check_apart(roots)
    _check_lengths(layout, tiers, policy)
    prefixes = _prefixes(roots)
    paths = dict.fromkeys([p.path for p in prefixes] + [root.path for root in roots])
    strings = b"".join(path + b"\0" for path in paths)
    files = [root.block.file_count for root in roots]
    directories = [root.block.directory_count for root in roots]
    return CatalogPlan(
        layout=layout,
        roots=tuple(roots),
        tiers=tuple(tiers),
        policy=policy,
        prefixes=prefixes,
        strings=strings,
        places=_places(layout, roots, len(prefixes), len(strings)),
        file_bases=tuple(np.cumsum([0, *files])[:-1].tolist()),
        # In the flags, the marks of directories stand behind those of all Files.
        directory_bases=tuple(np.cumsum([sum(files), *directories])[:-1].tolist()),
    )


def catalog_digest(roots: Sequence[MappedRoot], hash64: Hash) -> int:
    """Return what tells the Catalog of these roots from any other.

    Nodes that scan for themselves get the same, as long as nothing has changed.
    """
    identities = np.array([root.block.identity for root in roots], np.uint64)
    return hash64(identities.tobytes())


def _places(
    layout: Layout, roots: Sequence[MappedRoot], prefixes: int, strings: int
) -> Places:
    end = aligned(layout.dtypes["catalog"].itemsize)
    blocks = []
    for root in roots:
        blocks.append(end)
        end = aligned(end + len(root.block.memory))
    states = end
    end = aligned(end + 4 * sum(root.block.file_count for root in roots))
    start = end
    end = aligned(end + prefixes * layout.dtypes["prefix"].itemsize)
    return Places(tuple(blocks), states, start, end, aligned(end + strings))


def _prefixes(roots: Sequence[MappedRoot]) -> tuple[_Prefix, ...]:
    """Return all spellings, the longest first, so that the first match is the root."""
    owner: dict[bytes, int] = {}
    for number, root in enumerate(roots):
        for spelling in (root.path, *root.spellings):
            path = _normal(spelling)
            if owner.setdefault(path, number) != number:
                first = shown(roots[owner[path]].path)
                raise UsageError(
                    f"{shown(path)} names two datasets, {first} and "
                    f"{shown(root.path)}: leave it out of one"
                )
    ordered = sorted(owner.items(), key=lambda item: (-len(item[0]), item[0]))
    return tuple(_Prefix(path, number) for path, number in ordered)


def _normal(spelling: bytes) -> bytes:
    if not spelling.startswith(b"/"):
        raise UsageError(f"alias {shown(spelling)}: must be an absolute path")
    path = posixpath.normpath(spelling)
    path = path[1:] if path.startswith(b"//") else path
    if path == b"/":
        raise UsageError(f"alias {shown(spelling)}: is the root of all files")
    return path


def _check_apart(roots: Sequence[MappedRoot]) -> None:
    ordered = sorted(root.path for root in roots)
    for outer, inner in pairwise(ordered):
        if outer == inner:
            raise UsageError(f"dataset {shown(outer)} is listed twice")
    for outer in ordered:
        for inner in ordered:
            if inner.startswith(outer + b"/"):
                raise UsageError(
                    f"dataset {shown(inner)} lies inside {shown(outer)}: "
                    "list only one of them"
                )


def _check_counts(layout: Layout, roots: int, tiers: int, names: int) -> None:
    for what, count, limit in (
        ("datasets", roots, "ROOTS_MAX"),
        ("tiers", tiers, "TIERS_MAX"),
        ("program names to leave alone", names, "FILTER_NAMES_MAX"),
    ):
        if count > layout.constants[limit]:
            raise UsageError(f"{count} {what}: at most {layout.constants[limit]}")


def _check_lengths(
    layout: Layout, tiers: Sequence[TierPlace], policy: OpenPolicy
) -> None:
    for tier in tiers:
        if len(tier.path) >= layout.constants["TIER_PATH_MAX"]:
            raise UsageError(f"tier path {shown(tier.path)}: is too long")
    for name in policy.programs_excluded:
        if len(os.fsencode(name)) >= layout.constants["FILTER_NAME_BYTES"]:
            raise UsageError(f"program name {name}: is too long")


def _segment(layout: Layout, memory: Bytes, name: str, generation: int) -> Records:
    """Write the common header and return the segment's own struct."""
    dtype = layout.dtypes[name]
    record: Records = memory[: dtype.itemsize].view(dtype)
    seg = record["seg"]
    seg["magic"] = b"MONARCH"
    seg["version"] = layout.constants["LAYOUT_VERSION"]
    seg["kind"] = layout.segments[name.upper()]
    seg["length"] = len(memory)
    seg["generation"] = generation
    return record


def _write_header(
    plan: CatalogPlan, memory: Bytes, generation: int, hash64: Hash
) -> None:
    record = _segment(plan.layout, memory, "catalog", generation)
    record["digest"] = catalog_digest(plan.roots, hash64)
    record["file_count"] = plan.file_count
    record["dir_count"] = plan.directory_count
    record["states"] = plan.places.states
    record["prefixes"] = plan.places.prefixes
    record["strings"] = plan.places.strings
    record["strings_bytes"] = len(plan.strings)
    record["root_count"] = len(plan.roots)
    record["prefix_count"] = len(plan.prefixes)
    record["cold_mode"] = plan.policy.cold_mode
    record["inner_mounts"] = plan.policy.inner_mounts
    record["cold_wait_max_bytes"] = plan.policy.cold_wait_max_bytes
    record["cold_timeout_ns"] = plan.policy.cold_timeout_ns
    _write_roots(plan, record["roots"][0], hash64)
    record["tier_count"] = len(plan.tiers)
    for slot, tier in zip(record["tiers"][0], plan.tiers, strict=False):
        slot["dev"], slot["kind"] = tier.dev, tier.kind
        slot["path_bytes"], slot["path"] = len(tier.path), tier.path
    record["filter_count"] = len(plan.policy.programs_excluded)
    names = [os.fsencode(name) for name in plan.policy.programs_excluded]
    record["filter"][0][: len(names)] = names


def _write_roots(plan: CatalogPlan, slots: Records, hash64: Hash) -> None:
    for number, root in enumerate(plan.roots):
        slot = slots[number]
        slot["dev"] = root.block.header["root_dev"]
        slot["ino"] = root.block.header["root_ino"]
        slot["block"] = plan.places.blocks[number]
        slot["file_base"] = plan.file_bases[number]
        slot["dir_base"] = plan.directory_bases[number]
        slot["path"] = plan.reference(root.path)
        slot["path_hash"] = hash64(root.path)
        slot["unstable"] = root.unstable
