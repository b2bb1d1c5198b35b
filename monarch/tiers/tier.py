"""One node-local medium with a capacity: its directory and its room."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from monarch.errors import UsageError
from monarch.native import home
from monarch.tiers.directory_lock import (
    hold_private,
    lack_of_directory,
    make_private,
    remove_tree,
)
from monarch.units import Size, SizeKind, format_size

PATH_BYTES_MAX = 191


@dataclass(frozen=True, slots=True)
class TierSettings:
    """A Tier as it was asked for.

    Args:
        key: the configuration key, which error messages name.
    """

    key: str
    name: str
    kind: str
    path: Path
    capacity: Size
    headroom: Size


@dataclass(frozen=True, slots=True)
class Device:
    """What a file system says of itself; None where it does not say."""

    total_bytes: int | None
    free_bytes: int | None
    dev: int


def measure(path: Path) -> Device:
    """Return the size of the file system below `path`.

    Some file systems answer zeros: that means unknown, not full.
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
        self._lock: int | None = None
        self._owned = False

    def __repr__(self) -> str:
        size = format_size(self.capacity_bytes)
        return f"<Tier {self.settings.name} {size} at {self.directory}>"

    # Not looked for before the Tier is known to answer.
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
    def name(self) -> str:
        """The name that reports use."""
        return self.settings.name

    def resolve(self) -> None:
        """Check the device and set the capacity; UsageError if it cannot be meant."""
        settings = self.settings
        self.check_path()
        device = measure(settings.path)
        self._check_capacity(device)
        headroom = _part(settings.headroom, device.total_bytes)
        self._wanted_bytes = room = max(0, self.wanted_bytes(device))
        if device.free_bytes is not None:
            room = min(room, device.free_bytes - headroom)
        self.capacity_bytes = max(0, room)

    def count_in(self, held_bytes: int) -> None:
        """Count what the Tier holds from an earlier job as room: it was not free."""
        self.capacity_bytes = min(self._wanted_bytes, self.capacity_bytes + held_bytes)

    def prepare(self, held: Path) -> None:
        """Make the directory and lock it against collectors of leftovers.

        Args:
            held: the run directory, whose own lock the agent holds already.
        """
        make_private(self.home)
        if self.job_directory == held:
            make_private(self.job_directory)
        elif self._lock is None:
            self._lock = hold_private(self.job_directory)
            if self._lock is None:
                raise UsageError(
                    f"{self.settings.key}: {self.job_directory} is in use by another "
                    "agent; choose another --job or another path"
                )
        self._owned = True
        # A dead agent of the same job may have left Replicas that nobody accounts for.
        remove_tree(self.directory)
        make_private(self.directory)

    def remove(self, held: Path) -> None:
        """Remove the directory with all Replicas, if it is ours."""
        if not self._owned:
            return
        self._owned = False
        remove_tree(self.directory)
        if self.job_directory != held:
            remove_tree(self.job_directory)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @abstractmethod
    def wanted_bytes(self, device: Device) -> int:
        """Return the capacity that the settings ask for on this device."""

    @abstractmethod
    def limit_bytes(self, device: Device) -> int | None:
        """Return what a capacity cannot exceed; None if that is unknown."""

    def check_path(self) -> None:
        """Refuse a path that cannot hold the Tier."""
        path, key = self.settings.path, self.settings.key
        if lack := lack_of_directory(path):
            raise UsageError(
                f"{key}.path: {path} {lack}; name a directory that is there"
            )
        if not os.access(path, os.W_OK | os.X_OK):
            raise UsageError(f"{key}.path: {path} cannot be written; choose another")
        if len(os.fsencode(self.directory)) > PATH_BYTES_MAX - 33:
            raise UsageError(f"{key}.path: {path} is too long; choose a shorter one")

    def _check_capacity(self, device: Device) -> None:
        """Refuse a capacity in bytes that the device cannot have, even empty."""
        limit, capacity = self.limit_bytes(device), self.settings.capacity
        if limit is None or capacity.kind is not SizeKind.BYTES:
            return
        if capacity.of(0) > limit:
            raise UsageError(
                f"{self.settings.key}.capacity: {capacity} is larger than "
                f"{self.settings.path} ({format_size(limit)}); choose less, or a "
                "share such as 80%"
            )


def _part(size: Size, total_bytes: int | None) -> int:
    """Return a size in bytes where the total may be unknown."""
    if size.kind is SizeKind.BYTES:
        return size.of(0)
    return size.of(total_bytes or 0)
