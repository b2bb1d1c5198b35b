"""Plans and writes the catalog, flags and inodes segments of a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monarch import native
from monarch.catalog.block import Bytes, Records, aligned
from monarch.catalog.inventory import MappedRoot, Prefix, catalog_digest, prefixes_of
from monarch.catalog.presence import PresencePlan, large_above, plan_presence
from monarch.errors import UsageError, shown

BYTES_PER_FILE = 176
"""The memory budget of all segments together for one File."""
INODE_SLOTS_MIN = 1024


@dataclass(frozen=True, slots=True)
class TierPlace:
    """The directory of the Replicas of one Tier; ``kind`` is 0 for ram, 1 for ssd."""

    kind: int
    path: bytes
    dev: int


@dataclass(frozen=True, slots=True)
class OpenPolicy:
    """The policy of the Shim for cold opens, and the programs in which it is inert.

    Attributes:
        cold_wait_max_whole_bytes: the largest File whose opens wait for all of it.
        inner_mounts: something is mounted on a catalogued name of the agent's.
        notes_use: it records when each File was opened last.
    """

    cold_mode: int
    cold_wait_max_bytes: int
    cold_timeout_ns: int
    programs_excluded: tuple[str, ...] = ()
    inner_mounts: bool = False
    cold_wait_max_whole_bytes: int = 0
    notes_use: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """Offsets and lengths of the parts of a catalog segment."""

    blocks: tuple[int, ...]
    states: int
    prefixes: int
    strings: int
    above: int
    length: int


@dataclass(frozen=True, slots=True)
class CatalogPlan:
    """A catalog with all offsets computed, ready to be written into a mapping."""

    roots: tuple[MappedRoot, ...]
    tiers: tuple[TierPlace, ...]
    policy: OpenPolicy
    prefixes: tuple[Prefix, ...]
    strings: bytes
    places: Places
    file_bases: tuple[int, ...]
    directory_bases: tuple[int, ...]
    presence: PresencePlan

    @property
    def file_count(self) -> int:
        """Return the number of Files of all roots."""
        return sum(root.block.file_count for root in self.roots)

    @property
    def directory_count(self) -> int:
        """Return the number of directories of all roots."""
        return sum(root.block.directory_count for root in self.roots)

    @property
    def length(self) -> int:
        """Return the bytes of the catalog segment."""
        return self.places.length

    @property
    def flags_length(self) -> int:
        """Return the bytes of the flags segment."""
        notes = self.file_count if self.policy.notes_use else 0
        return self.recency_place + 4 * notes

    @property
    def whole_place(self) -> int:
        """Return the offset, in the flags segment, of the flags for whole Replicas.

        It is 0 if no File can have such a flag.
        """
        return self.presence.end if len(self.presence.files) else 0

    @property
    def opened_place(self) -> int:
        """Return the offset, in the flags segment, of the counts of opens."""
        return _opened_place(self.file_count, self.directory_count)

    @property
    def checked_place(self) -> int:
        """Return the offset, in the flags segment, of directories' check times."""
        files = self.file_count if self.whole_place else 0
        return aligned(self.presence.end + files)

    @property
    def recency_place(self) -> int:
        """Return the offset, in the flags segment, of the last opens of Files."""
        return self.checked_place + 4 * self.directory_count

    @property
    def inode_slots(self) -> int:
        """Return the number of inode slots that the memory budget allows.

        A half-empty table needs one probe; with long paths only a thirteenth is empty,
        which costs a few probes and stays in the budget.
        """
        files = self.file_count
        header = native.DTYPES["inodes"].itemsize
        left = BYTES_PER_FILE * files - self.length - self.flags_length - header
        slots = left // native.DTYPES["inode"].itemsize
        return max(min(max(slots, files * 13 // 12), files * 2), INODE_SLOTS_MIN)

    @property
    def inodes_length(self) -> int:
        """Return the bytes of the inodes segment."""
        slots = self.inode_slots * native.DTYPES["inode"].itemsize
        return native.DTYPES["inodes"].itemsize + slots

    def write_into(self, memory: Bytes, generation: int) -> None:
        """Write the catalog segment into zeroed memory, with every File absent."""
        _write_header(self, memory, generation)
        for place, root in zip(self.places.blocks, self.roots, strict=True):
            memory[place : place + len(root.block.memory)] = root.block.memory
        strings = np.frombuffer(self.strings, np.uint8)
        start = self.places.strings
        memory[start : start + len(strings)] = strings
        self._write_prefixes(memory)
        self._write_above(memory)

    def _write_prefixes(self, memory: Bytes) -> None:
        dtype = native.DTYPES["prefix"]
        start, count = self.places.prefixes, len(self.prefixes)
        prefixes = memory[start : start + count * dtype.itemsize].view(dtype)
        for record, prefix in zip(prefixes, self.prefixes, strict=True):
            record["path"] = self.reference(prefix.path)
            record["root"] = prefix.root

    def _write_above(self, memory: Bytes) -> None:
        dtype = native.DTYPES["above"]
        start, found = self.places.above, above_of(self.roots)
        records = memory[start : start + len(found) * dtype.itemsize].view(dtype)
        for record, (number, dev, ino) in zip(records, found, strict=True):
            record["root"], record["dev"], record["ino"] = number, dev, ino

    def reference(self, path: bytes) -> int:
        """Return the reference of a path in the segment: its offset and length."""
        return self.strings.index(path + b"\0") << 16 | len(path)

    def write_flags(self, memory: Bytes, generation: int) -> None:
        """Write the header of the flags segment, without any mark."""
        record = _segment(memory, "flags", generation)
        record["count"] = self.file_count + self.directory_count
        record["opened"] = self.opened_place
        if len(self.presence.files):
            record["presence"] = self.presence.start
            self.presence.write(memory)
        record["whole"] = self.whole_place
        record["checked"] = self.checked_place
        record["tick"] = 1  # Files that were never opened are older
        if self.policy.notes_use:
            record["recency"] = self.recency_place

    def write_inodes(self, memory: Bytes, generation: int) -> None:
        """Write the header of the inodes segment, without any inode."""
        record = _segment(memory, "inodes", generation)
        record["slot_count"] = self.inode_slots


def plan_catalog(
    roots: Sequence[MappedRoot],
    tiers: Sequence[TierPlace],
    policy: OpenPolicy,
) -> CatalogPlan:
    """Compute the offsets of all parts of a job's catalog.

    Raises:
        UsageError: too many roots, Tiers or program names, a root is inside another, or
            two roots share a name.
    """
    _check_counts(len(roots), len(tiers), len(policy.programs_excluded))
    _check_lengths(tiers, policy)
    prefixes = prefixes_of(roots)
    paths = dict.fromkeys([p.path for p in prefixes] + [root.path for root in roots])
    strings = b"".join(path + b"\0" for path in paths)
    files = [root.block.file_count for root in roots]
    directories = [root.block.directory_count for root in roots]
    return CatalogPlan(
        roots=tuple(roots),
        tiers=tuple(tiers),
        policy=policy,
        prefixes=prefixes,
        strings=strings,
        places=_places(roots, len(prefixes), len(strings)),
        file_bases=tuple(np.cumsum([0, *files])[:-1].tolist()),
        # In the flags, the marks of directories follow those of all Files.
        directory_bases=tuple(np.cumsum([sum(files), *directories])[:-1].tolist()),
        presence=_plan_presence(roots, policy),
    )


def _opened_place(files: int, directories: int) -> int:
    return int(native.DTYPES["flags"].itemsize) + files + directories


def _plan_presence(roots: Sequence[MappedRoot], policy: OpenPolicy) -> PresencePlan:
    sizes = np.concatenate([np.empty(0, np.uint64), *(r.block.sizes() for r in roots)])
    directories = sum(root.block.directory_count for root in roots)
    files = sum(root.block.file_count for root in roots)
    end = _opened_place(files, directories) + files
    above_bytes = large_above(
        native.ColdMode(policy.cold_mode), policy.cold_wait_max_bytes
    )
    return plan_presence(sizes, above_bytes, end)


def _places(roots: Sequence[MappedRoot], prefixes: int, strings: int) -> Places:
    end = aligned(native.DTYPES["catalog"].itemsize)
    blocks = []
    for root in roots:
        blocks.append(end)
        end = aligned(end + len(root.block.memory))
    states = end
    end = aligned(end + 4 * sum(root.block.file_count for root in roots))
    start = end
    end = aligned(end + prefixes * native.DTYPES["prefix"].itemsize)
    above = aligned(end + strings)
    length = above + len(above_of(roots)) * native.DTYPES["above"].itemsize
    return Places(tuple(blocks), states, start, end, above, aligned(length))


def above_of(roots: Sequence[MappedRoot]) -> list[tuple[int, int, int]]:
    """Return root numbers with the identities of directories and links above them."""
    return [
        (number, dev, ino)
        for number, root in enumerate(roots)
        for dev, ino in root.above
    ]


def _check_counts(roots: int, tiers: int, names: int) -> None:
    for what, count, limit in (
        ("datasets", roots, "ROOTS_MAX"),
        ("tiers", tiers, "TIERS_MAX"),
        ("excluded programs", names, "FILTER_NAMES_MAX"),
    ):
        if count > native.CONSTANTS[limit]:
            most = native.CONSTANTS[limit]
            raise UsageError(f"{count} {what} are too many; the limit is {most}")


def _check_lengths(tiers: Sequence[TierPlace], policy: OpenPolicy) -> None:
    for tier in tiers:
        if len(tier.path) >= native.CONSTANTS["TIER_PATH_MAX"]:
            raise UsageError(f"tier path {shown(tier.path)} is too long")
    for name in policy.programs_excluded:
        if len(os.fsencode(name)) >= native.CONSTANTS["FILTER_NAME_BYTES"]:
            raise UsageError(f"program name {name} is too long")


def _segment(memory: Bytes, name: str, generation: int) -> Records:
    """Write the common header and return the segment's own header."""
    dtype = native.DTYPES[name]
    record: Records = memory[: dtype.itemsize].view(dtype)
    seg = record["seg"]
    seg["magic"] = b"MONARCH"
    seg["version"] = native.CONSTANTS["LAYOUT_VERSION"]
    seg["kind"] = native.SegmentKind[name.upper()]
    seg["length"] = len(memory)
    seg["generation"] = generation
    return record


def _write_header(plan: CatalogPlan, memory: Bytes, generation: int) -> None:
    record = _segment(memory, "catalog", generation)
    record["digest"] = catalog_digest(plan.roots)
    record["file_count"] = plan.file_count
    record["dir_count"] = plan.directory_count
    record["states"] = plan.places.states
    record["prefixes"] = plan.places.prefixes
    record["strings"] = plan.places.strings
    record["strings_bytes"] = len(plan.strings)
    record["root_count"] = len(plan.roots)
    record["prefix_count"] = len(plan.prefixes)
    record["above"] = plan.places.above
    record["above_count"] = len(above_of(plan.roots))
    record["cold_mode"] = plan.policy.cold_mode
    record["inner_mounts"] = plan.policy.inner_mounts
    record["cold_wait_max_bytes"] = plan.policy.cold_wait_max_bytes
    record["cold_wait_max_whole_bytes"] = plan.policy.cold_wait_max_whole_bytes
    record["cold_timeout_ns"] = plan.policy.cold_timeout_ns
    _write_roots(plan, record["roots"][0])
    record["tier_count"] = len(plan.tiers)
    for slot, tier in zip(record["tiers"][0], plan.tiers, strict=False):
        slot["dev"], slot["kind"] = tier.dev, tier.kind
        slot["path_bytes"], slot["path"] = len(tier.path), tier.path
    record["filter_count"] = len(plan.policy.programs_excluded)
    names = [os.fsencode(name) for name in plan.policy.programs_excluded]
    record["filter"][0][: len(names)] = names


def _write_roots(plan: CatalogPlan, slots: Records) -> None:
    for number, root in enumerate(plan.roots):
        slot = slots[number]
        slot["dev"] = root.block.header["root_dev"]
        slot["ino"] = root.block.header["root_ino"]
        slot["block"] = plan.places.blocks[number]
        slot["file_base"] = plan.file_bases[number]
        slot["dir_base"] = plan.directory_bases[number]
        slot["path"] = plan.reference(root.path)
        slot["path_hash"] = native.hash64(root.path)
        slot["unstable"] = root.unstable
        slot["provisional"] = root.provisional
        slot["inside"], slot["chosen"] = root.inside, root.chosen
