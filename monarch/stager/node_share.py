"""A node's share of the Files: those to be kept, ready ones, and missing ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monarch.native import CONSTANTS, Reason, ReplicaState
from monarch.placement import Units
from monarch.stager.policy import Mask, Policy
from monarch.stager.replicas import Replicas

# Files that are absent for one of these Reasons may still be staged.
_PASSING = (Reason.NONE, Reason.BUSY)

Numbers = npt.NDArray[np.intp]
Bytes = npt.NDArray[np.uint64]
_NO_FILES = np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True)
class Lack:
    """The data that a node is to keep and does not have.

    Args:
        files: the number of Files that are not complete.
    """

    files: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The Files that a node keeps by its Policy, at one moment.

    Attributes:
        kept: the Files that it is to keep whole.
        kept_in_part: the large Files of which it is to keep only some Extents, and
            which are not ready.
        ready: the Files in its Tiers, whether it is to keep them or not.
        part_bytes: the bytes present of the Extents that it keeps of `kept_in_part`.
        unplaced: the Files that fit on no node.
        partly_placed: the Files of which only some Extents fit on the nodes.
        left_bytes: the bytes of their Extents that do not fit.
        lacking: the missing data that it is to keep, by the Reason.
    """

    kept: Numbers
    kept_in_part: Numbers
    ready: Numbers
    part_bytes: int
    unplaced: Numbers
    partly_placed: Numbers
    left_bytes: int
    lacking: dict[Reason, Lack]

    @classmethod
    def of(
        cls,
        replicas: Replicas,
        policy: Policy,
        tiers: int,
        packed: Numbers = _NO_FILES,
    ) -> Share:
        """Return the share of a node now.

        Args:
            tiers: the number of its Tiers.
            packed: the Files in packed Tiers.
        """
        units = policy.units
        ready = np.concatenate(
            [packed, *(replicas.ready_in(tier) for tier in range(tiers))]
        )
        some, whole = units.any_of(policy.kept), policy.kept_whole
        placed, everything = units.any_of(policy.placed), units.all_of(policy.placed)
        in_part, partly = some & ~whole, placed & ~everything
        in_part[ready] = False
        missing = _missing(replicas, policy)
        has_pages = units.is_large
        has_pages[replicas.pages.files] = True
        lacks = some & ((missing > 0) | ~has_pages)
        lacks[packed] = False
        parts_bytes = unit_bytes(replicas, units, policy.kept, in_part)
        return cls(
            kept=np.flatnonzero(whole),
            kept_in_part=np.flatnonzero(in_part),
            ready=np.sort(ready),
            part_bytes=parts_bytes - int(missing[in_part].sum()),
            unplaced=np.flatnonzero(~placed),
            partly_placed=np.flatnonzero(partly),
            left_bytes=unit_bytes(replicas, units, ~policy.placed, partly),
            lacking=_lacking(replicas, lacks, has_pages, missing),
        )

    @property
    def may_come(self) -> bool:
        """Whether missing data may still be staged."""
        return any(reason in self.lacking for reason in _PASSING)


def _missing(replicas: Replicas, policy: Policy) -> Bytes:
    """Return the bytes of each File that the node is to keep and no Page holds.

    For a small File these are all its bytes, until it is ready.
    """
    units = policy.units
    if not (units.is_cut or len(replicas.pages.files)):
        return replicas.sizes
    missing = units.spread(replicas.sizes).copy()
    _subtract_present(replicas, units, missing)
    missing[~policy.kept] = 0
    if not units.is_cut:
        return missing
    found: Bytes = np.add.reduceat(missing, units.first[:-1])
    return found


def _subtract_present(replicas: Replicas, units: Units, missing: Bytes) -> None:
    """Subtract the bytes in Pages from each unit."""
    _, places = _page_units(replicas, units)
    np.subtract.at(missing, places, replicas.pages.sizes(replicas.sizes))


def _page_units(replicas: Replicas, units: Units) -> tuple[Numbers, Numbers]:
    """Return the File and the unit of each Extent of Files with Pages.

    A File with Pages may be one unit: a node that works alone places no Extents, and
    the configured size of large Files may differ between nodes.
    """
    pages = replicas.pages
    first = pages.first.astype(np.intp)
    counts = first[1:] - first[:-1]
    files = np.repeat(pages.files.astype(np.intp), counts)
    extents = np.arange(len(pages.words)) - np.repeat(first[:-1], counts)
    return files, units.first[files] + np.where(units.is_large[files], extents, 0)


def kept_page_bytes(replicas: Replicas, policy: Policy, whole: Mask) -> int:
    """Return the bytes of Pages that a node is to keep, of Files that are not whole.

    Args:
        whole: the Files that are not counted.
    """
    if not len(replicas.pages.files):
        return 0
    files, places = _page_units(replicas, policy.units)
    counted = policy.kept[places] & ~whole[files]
    return int(replicas.pages.sizes(replicas.sizes)[counted].sum())


def missing_pieces(replicas: Replicas, policy: Policy) -> int:
    """Return the missing bytes, to be kept by a node, of Files held in pieces."""
    pages = replicas.pages
    if not len(pages.in_pieces):
        return 0
    extent, first = CONSTANTS["EXTENT_BYTES"], pages.first.astype(np.intp)
    counts = np.diff(first)
    missing = np.full(len(pages.words), extent, np.int64)
    sizes = replicas.sizes[pages.files].astype(np.int64)
    missing[first[1:] - 1] = sizes - extent * (counts - 1)
    missing -= pages.sizes(replicas.sizes).astype(np.int64)
    _, places = _page_units(replicas, policy.units)
    pieces = np.repeat(pages.without_room, counts)
    return int(missing[policy.kept[places] & pieces].sum())


def unit_bytes(replicas: Replicas, units: Units, chosen: Mask, files: Mask) -> int:
    """Return the bytes of the chosen units of some Files."""
    if not files.any():
        return 0
    return int(units.spread(replicas.sizes)[chosen & files[units.file_of]].sum())


def _lacking(
    replicas: Replicas, lacks: Mask, has_pages: Mask, missing: Bytes
) -> dict[Reason, Lack]:
    """Return the number of incomplete Files and their missing bytes, by the Reason."""
    found = {}
    for reason in Reason:
        files = replicas.absent(reason)
        if reason in (Reason.NONE, Reason.NO_ROOM) and has_pages.any():
            # Pages of a large File arrive one by one while it is staging, as long as
            # they fit.
            staging = replicas.in_state(ReplicaState.STAGING) & has_pages
            pieces = np.zeros_like(staging)
            pieces[replicas.pages.in_pieces] = True
            here = staging & (pieces == (reason is Reason.NO_ROOM))
            files = np.concatenate([files, np.flatnonzero(here)])
        files = files[lacks[files]]
        if len(files):
            found[reason] = Lack(len(files), int(missing[files].sum()))
    return found
