"""The staged Files of running jobs, as their Catalogs and Tiers show them.

A Catalog of another job is read, never mapped: its file may be truncated at any time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.catalog.inventory import MappedRoot
from monarch.tiers.directory_lock import is_locked
from monarch.tiers.pool import POOL_NAME

Mask = npt.NDArray[np.bool_]

_READY: Final = int(native.ReplicaState.READY)
_TIER_UNIT: Final = native.CONSTANTS["STATE_TIER_UNIT"]
_REASON_UNIT: Final = native.CONSTANTS["STATE_REASON_UNIT"]
_PLACE_BITS: Final = 16
"""The bits of the length in a string reference; its offset is shifted by them."""


@dataclass(frozen=True, slots=True)
class LiveTier:
    """A Tier of a running job.

    Attributes:
        path: the directory of its Replicas.
        dev: its file system.
    """

    path: Path
    dev: int


@dataclass(frozen=True, slots=True)
class LiveRoot:
    """A dataset of a running job.

    Attributes:
        key: root path, root device and digest of all Files: equal if the Files are.
        first: the number of its first File in the job.
    """

    path: bytes
    key: tuple[int, int, int]
    first: int


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A running job of this user on this node.

    Attributes:
        began_s: when its agent started, in seconds since the epoch.
        states: the state word of each of its Files, when the Catalog was read.
    """

    run: Path
    began_s: float
    tiers: tuple[LiveTier, ...]
    roots: tuple[LiveRoot, ...]
    states: npt.NDArray[np.uint32]

    @property
    def name(self) -> str:
        """The name of the job and its node, which is that of its run directory."""
        return self.run.name

    @classmethod
    def read(cls, run: Path) -> Self | None:
        """Return the job of a run directory; None if it has no Catalog of this version.

        Raises:
            OSError: the Catalog cannot be read.
        """
        fd = os.open(run / "catalog", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            head = _head(fd)
            if head is None:
                return None
            roots = [_root(fd, head, place) for place in head["roots"][: _roots(head)]]
            states = _read(fd, int(head["states"]), 4 * int(head["file_count"]))
            began_s = (run / "lock").stat().st_mtime
        finally:
            os.close(fd)
        if states is None or None in roots:
            return None
        found = tuple(root for root in roots if root is not None)
        return cls(
            run, began_s, _tiers(head, run), found, np.frombuffer(states, np.uint32)
        )

    def ready(self, root: MappedRoot) -> Iterator[tuple[int, Mask]]:
        """Yield each file system, and the Files of a root that the job has READY there.

        Nothing is yielded unless all Files of the root equal those of the job's root.
        """
        count, key = root.block.file_count, key_of(root)
        first = next((one.first for one in self.roots if one.key == key), None)
        if first is None or first + count > len(self.states):
            return
        words = self.states[first : first + count]
        is_ready = words % _TIER_UNIT == _READY
        numbers = words % _REASON_UNIT // _TIER_UNIT
        for number, tier in enumerate(self.tiers):
            yield tier.dev, is_ready & (numbers == number)


def key_of(root: MappedRoot) -> tuple[int, int, int]:
    """Return the key of a dataset, as in LiveRoot."""
    header = root.block.header
    return native.hash64(root.path), int(header["root_dev"]), root.block.identity


def live_jobs(runs: Iterable[Path]) -> list[LiveJob]:
    """Return the jobs of run directories that have an agent and a Catalog."""
    found = []
    for run in runs:
        with contextlib.suppress(OSError, OverflowError):  # a damaged Catalog
            if is_locked(run) and (job := LiveJob.read(run)) is not None:
                found.append(job)
    return found


def ready_files(
    jobs: Iterable[LiveJob], roots: Sequence[MappedRoot]
) -> dict[int, Mask]:
    """Return the Files of datasets that are READY in some job, by file system."""
    counts = [root.block.file_count for root in roots]
    found: dict[int, Mask] = {}
    for job in jobs:
        first = 0
        for root, count in zip(roots, counts, strict=True):
            for dev, mask in job.ready(root):
                total = found.setdefault(dev, np.zeros(sum(counts), np.bool_))
                total[first : first + count] |= mask
            first += count
    return found


def linkable_files(
    roots: Sequence[MappedRoot], large: npt.NDArray[np.uint32], *, links_large: bool
) -> Mask:
    """Return the Files that a job may link: no empty ones, and none behind links.

    Args:
        large: the numbers of the large Files.
        links_large: whether to link these, too: the job has one node and retains
            nothing.
    """
    parts = [root.block.sizes() > 0 for root in roots]
    for part, root in zip(parts, roots, strict=True):
        part &= root.block.first_entry < root.block.header["name_count"]
    may: Mask = np.concatenate([np.zeros(0, np.bool_), *parts])
    if not links_large:
        may[large] = False
    return may


# -- parts of a Catalog -------------------------------------------------------------


def _read(fd: int, place: int, size: int) -> bytes | None:
    """Return bytes of a file; None if it is shorter."""
    parts = []
    while size > 0:
        part = os.pread(fd, size, place)
        if not part:
            return None
        parts.append(part)
        place, size = place + len(part), size - len(part)
    return b"".join(parts)


def _record(fd: int, name: str, place: int) -> Any:
    dtype = native.DTYPES[name]
    found = _read(fd, place, dtype.itemsize)
    return None if found is None else np.frombuffer(found, dtype)[0]


def _head(fd: int) -> Any:
    """Return the head of a Catalog; None if it is truncated or of another version."""
    head, constants = _record(fd, "catalog", 0), native.CONSTANTS
    if head is None:
        return None
    seg = head["seg"]
    kind = int(native.SegmentKind.CATALOG)
    is_known = (
        bytes(seg["magic"]) == b"MONARCH"
        and (int(seg["version"]), int(seg["kind"]))
        == (constants["LAYOUT_VERSION"], kind)
        and int(seg["length"]) == os.fstat(fd).st_size
        and int(head["states"]) + 4 * int(head["file_count"]) <= int(seg["length"])
    )
    return head if is_known else None


def _roots(head: Any) -> int:
    return min(int(head["root_count"]), len(head["roots"]))


def _root(fd: int, head: Any, root: Any) -> LiveRoot | None:
    block = _record(fd, "index", int(root["block"]))
    place = int(root["path"])
    start = int(head["strings"]) + (place >> _PLACE_BITS)
    path = _read(fd, start, place % (1 << _PLACE_BITS))
    if block is None or path is None:
        return None
    key = int(root["path_hash"]), int(block["root_dev"]), int(block["identity"])
    return LiveRoot(path, key, int(root["file_base"]))


def _tiers(head: Any, run: Path) -> tuple[LiveTier, ...]:
    """Return the Tiers, without the Pool, whose Files change all the time."""
    tiers = []
    for tier in head["tiers"][: int(head["tier_count"])]:
        path = Path(os.fsdecode(bytes(tier["path"])))
        if path.parent != run or path.name != POOL_NAME:
            tiers.append(LiveTier(path, int(tier["dev"])))
    return tuple(tiers)
