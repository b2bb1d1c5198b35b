"""The Tiers of a node: directories on its media, with their capacities."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from monarch.codec import PLAIN
from monarch.errors import UsageError
from monarch.native import home
from monarch.tiers.directory_lock import (
    lock_directory,
    make_private,
    remove_tree,
    why_no_directory,
)
from monarch.units import Size, SizeKind, format_size

if TYPE_CHECKING:
    from monarch.config import Tier as TierSection

PATH_BYTES_MAX: Final = 191
PAGE_BYTES: Final = 4096
SEGMENT_PARTS: Final = 16
SEGMENT_BYTES_MIN: Final = 16 << 20
SEGMENT_BYTES_LRU: Final = 1 << 20
SEGMENT_BYTES_FULL: Final = (256 - 9) << 20
"""The least contents of a full segment of the largest size."""

LRU_ADVICE: Final = (
    "each epoch reads each file once, so eviction: lru removes most copies before they "
    "are read again; use eviction: none"
)
"""For a dataset that is larger than the Tiers."""


@dataclass(frozen=True, slots=True)
class TierSettings:
    """A Tier as it is configured, with its configuration key for error messages."""

    key: str
    name: str
    kind: str
    path: Path
    capacity: Size
    headroom: Size
    codec: str = PLAIN
    codecs: tuple[tuple[tuple[str, ...], str], ...] = ()
    """Patterns of names, and the codec of the Files that match."""
    evicts: bool = False
    """Requested Files evict Replicas, the least recently used first."""

    @classmethod
    def of(cls, number: int, tier: TierSection) -> Self:
        """Return the settings of a configured Tier with this number."""
        return cls(
            key=f"tiers[{number}]",
            name=tier.name,
            kind=tier.kind,
            path=Path(tier.path),
            capacity=tier.capacity,
            headroom=tier.headroom,
            codec=tier.codec,
            codecs=tuple((rule.files, rule.codec) for rule in tier.codecs),
            evicts=tier.eviction == "lru",
        )


@dataclass(frozen=True, slots=True)
class Device:
    """The size of a file system; None if not reported."""

    total_bytes: int | None
    free_bytes: int | None
    dev: int


def measure(path: Path) -> Device:
    """Return the size of the file system below `path`.

    Some file systems report zeros, which means unknown, not full.
    """
    found = os.statvfs(path)
    dev = os.stat(path).st_dev
    if found.f_blocks == 0:
        return Device(None, None, dev)
    unit = found.f_frsize or found.f_bsize
    return Device(found.f_blocks * unit, found.f_bavail * unit, dev)


class Tier(ABC):
    """A directory on one medium, private to one job on one node."""

    kind: ClassVar[str]

    def __init__(self, settings: TierSettings, job_node: str) -> None:
        self.settings = settings
        self._job_node = job_node
        self.capacity_bytes = 0
        self._wanted_bytes = 0
        self.pool_part_bytes = 0
        """What it has given to the Pool."""
        self._lock: int | None = None
        self._owned = False

    def __repr__(self) -> str:
        size = format_size(self.capacity_bytes)
        return f"<Tier {self.settings.name} {size} at {self.directory}>"

    # Not accessed before the Tier is known to answer.
    @cached_property
    def home(self) -> Path:
        """The directory of this user's jobs on the medium."""
        return home(self.settings.path)

    @cached_property
    def job_directory(self) -> Path:
        """The directory of this job and node."""
        return self.home / self._job_node

    @cached_property
    def directory(self) -> Path:
        """The directory of the Replicas."""
        return self.job_directory / self.settings.name

    @property
    def usable_bytes(self) -> int:
        """The bytes for copies: in a packed Tier without the last pages of segments."""
        return max(0, self.capacity_bytes - PAGE_BYTES * self.last_pages)

    @property
    def last_pages(self) -> int:
        """The partly filled pages of a packed Tier: the last page of each segment.

        As in pack_segments.c, a segment is a part of the Tier, but neither too small
        nor too large. One grows, and one may have been truncated by an earlier job.
        """
        if self.settings.codec == PLAIN:
            return 0
        size = max(0, self.capacity_bytes)
        least = SEGMENT_BYTES_LRU if self.settings.evicts else SEGMENT_BYTES_MIN
        return 2 + max(min(SEGMENT_PARTS, size // least), size // SEGMENT_BYTES_FULL)

    @property
    def name(self) -> str:
        """The name that reports use."""
        return self.settings.name

    def resolve(self) -> None:
        """Check the device and set the capacity.

        Raises:
            UsageError: the Tier cannot be created as configured.
        """
        settings = self.settings
        self.check_path()
        device = measure(settings.path)
        self._check_capacity(device)
        headroom = _part(settings.headroom, device.total_bytes)
        self._wanted_bytes = room = max(0, self.wanted_bytes(device))
        if device.free_bytes is not None:
            room = min(room, device.free_bytes - headroom)
        self.capacity_bytes = max(0, room)

    @property
    def granted_bytes(self) -> int:
        """The configured capacity, even if less is free now."""
        return self._wanted_bytes

    def give_to_pool(self, size_bytes: int) -> None:
        """Move a part of the capacity to the Pool, until it is taken back."""
        self.pool_part_bytes = size_bytes
        self.reduce(size_bytes)

    def reduce(self, size_bytes: int) -> None:
        """Reduce the capacity."""
        self._wanted_bytes = max(0, self._wanted_bytes - size_bytes)
        self.capacity_bytes = max(0, self.capacity_bytes - size_bytes)

    def take_from_pool(self) -> None:
        """Return what was given to the Pool to the capacity."""
        self._wanted_bytes += self.pool_part_bytes
        self.capacity_bytes += self.pool_part_bytes
        self.pool_part_bytes = 0

    def add_retained(self, held_bytes: int) -> None:
        """Add the retained bytes of an earlier job, which were not free."""
        self.capacity_bytes = min(self._wanted_bytes, self.capacity_bytes + held_bytes)

    def can_link(self, memory_limits: int) -> bool:
        """Return whether files of other jobs on its file system may be linked into it.

        Memory is charged to the job that wrote it: it is shared only if no job has a
        limit of its own.

        Args:
            memory_limits: the number of limits of this job; one: that of the machine.
        """
        is_plain = self.settings.codec == PLAIN and not self.settings.codecs
        return is_plain and (self.kind != "ram" or memory_limits == 1)

    def add_shared(self, held_bytes: int, needed_bytes: int) -> bool:
        """Add the bytes of files to be linked from other jobs, if the other files fit.

        Args:
            held_bytes: the bytes of linked files, whose space need not be free.
            needed_bytes: the space for all files.

        Returns:
            Whether it was added. If not, the capacity is at most the free space.
        """
        if needed_bytes - held_bytes > self.capacity_bytes:
            return False
        room = self.capacity_bytes + held_bytes
        is_part = self.settings.capacity.kind is SizeKind.AUTO  # of the free space
        self.capacity_bytes = room if is_part else min(self._wanted_bytes, room)
        return True

    def prepare(self, locked: Path) -> None:
        """Make the directory, and lock it against removal as a leftover.

        Args:
            locked: the run directory, which the agent has locked already.
        """
        make_private(self.home)
        if self.job_directory == locked:
            make_private(self.job_directory)
        elif self._lock is None:
            self._lock = lock_directory(self.job_directory)
            if self._lock is None:
                raise UsageError(
                    f"{self.settings.key}: {self.job_directory} is in use by another "
                    "agent; choose another --job or another path"
                )
        self._owned = True
        # A dead agent of the same job may have left Replicas there.
        remove_tree(self.directory)
        make_private(self.directory)

    def remove(self, locked: Path) -> None:
        """Remove the directory with all Replicas, if this object has made it."""
        if not self._owned:
            return
        self._owned = False
        remove_tree(self.directory)
        if self.job_directory != locked:
            remove_tree(self.job_directory)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @abstractmethod
    def wanted_bytes(self, device: Device) -> int:
        """Return the configured capacity on this device."""

    @abstractmethod
    def limit_bytes(self, device: Device) -> int | None:
        """Return the upper bound of a capacity; None if it is unknown."""

    def check_path(self) -> None:
        """Refuse a path that the Tier cannot use."""
        path, key = self.settings.path, self.settings.key
        if reason := why_no_directory(path):
            raise UsageError(
                f"{key}.path: {path} {reason}; choose an existing directory"
            )
        if not os.access(path, os.W_OK | os.X_OK):
            raise UsageError(f"{key}.path: {path} is not writable; choose another")
        if len(os.fsencode(self.directory)) > PATH_BYTES_MAX - 33:
            raise UsageError(f"{key}.path: {path} is too long; choose a shorter one")

    def _check_capacity(self, device: Device) -> None:
        """Refuse a capacity in bytes that is larger than the device."""
        limit, capacity = self.limit_bytes(device), self.settings.capacity
        if limit is None or capacity.kind is not SizeKind.BYTES:
            return
        if capacity.of(0) > limit:
            raise UsageError(
                f"{self.settings.key}.capacity: {capacity} is larger than "
                f"{self.settings.path} ({format_size(limit)}); choose less, or a "
                "share such as 80%"
            )


def check_places(roots: Mapping[str, Path], tiers: Sequence[Tier]) -> None:
    """Refuse Tiers inside datasets, datasets inside Tiers, and Tiers in one directory.

    Args:
        roots: the datasets by configuration key.
    """
    for key, root in roots.items():
        check_root(key, root)
    known: dict[Path, Tier] = {}
    for tier in tiers:
        tier.check_path()
        settings, place = tier.settings, tier.settings.path.resolve()
        if place in known:
            raise UsageError(
                f"{settings.key}.path: {settings.path} is already the directory of "
                f"tier {known[place].name!r}; give each tier its own"
            )
        known[place] = tier
        for key, root in roots.items():
            _check_apart(tier, key, root)


def check_root(key: str, root: Path) -> None:
    """Refuse a dataset that is not a directory, or cannot be read."""
    if reason := why_no_directory(root):
        raise UsageError(f"{key}: {root} {reason}; name the dataset's directory")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UsageError(f"{key}: {root} cannot be read by this user")


def _check_apart(tier: Tier, key: str, root: Path) -> None:
    dataset, settings = root.resolve(), tier.settings
    if settings.path.resolve().is_relative_to(dataset):
        raise UsageError(
            f"{settings.key}.path: {settings.path} is inside the dataset {root}; "
            "choose a directory outside"
        )
    own = tier.home if _is_shared(settings.path) else settings.path
    if dataset.is_relative_to(own.resolve()):
        raise UsageError(
            f"{key}: {root} is inside tier {tier.name!r} ({own}); "
            "choose another path for one of them"
        )


def _is_shared(path: Path) -> bool:
    """Return whether a directory is shared, as mount points and /dev/shm are."""
    return os.path.ismount(path) or bool(path.stat().st_mode & stat.S_ISVTX)


def _part(size: Size, total_bytes: int | None) -> int:
    """Return a size in bytes; the total may be unknown."""
    if size.kind is SizeKind.BYTES:
        return size.of(0)
    return size.of(total_bytes or 0)
