"""Files that links add to a dataset: Files of several roots, or behind links."""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.catalog.block import NONE32, Block

Numbers = npt.NDArray[np.int64]
Groups = npt.NDArray[np.int32]

_IDENTITY = ("ino", "size", "mtime_ns", "ctime_ns")
_KEY = np.dtype([("dev", np.uint64), *((name, np.int64) for name in _IDENTITY)])
_OWN = 0


# -- Files of several roots -----------------------------------------------------------


def share_files(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks of a job; each File belongs to the first root that has it.

    Links between datasets, and links of two datasets to one file then lead to one File.
    A block without such Files is returned unchanged.
    """
    known, numbers = np.empty(0, _KEY), np.empty(0, np.uint32)
    shared, base = [], 0
    for block in blocks:
        keys = _keys(block)
        owner = _owners(keys, known, numbers)
        taken = owner != NONE32
        if taken.any():
            block = _without(block, owner)
        own = keys[~taken]
        known = np.concatenate([known, own])
        numbers = np.concatenate([numbers, base + np.arange(len(own), dtype=np.uint32)])
        base += len(own)
        shared.append(block)
    return shared


def _keys(block: Block) -> npt.NDArray[np.void]:
    """Return the identity of each File."""
    entries = block.entries[block.first_entry]
    keys = np.empty(len(entries), _KEY)
    keys["dev"] = block.attrs["dev"][entries["attr"]]
    for name in _IDENTITY:
        keys[name] = entries[name]
    return keys


def _owners(
    keys: npt.NDArray[np.void],
    known: npt.NDArray[np.void],
    numbers: npt.NDArray[np.uint32],
) -> npt.NDArray[np.uint32]:
    """Return for each key the number of the equal known key, or NONE32."""
    owners = np.full(len(keys), NONE32, np.uint32)
    candidates = np.flatnonzero(np.isin(keys["ino"], known["ino"]))
    if not len(candidates):
        return owners
    order = np.argsort(known)
    places = np.searchsorted(known[order], keys[candidates])
    places = order[np.minimum(places, len(order) - 1)]
    same = known[places] == keys[candidates]
    owners[candidates[same]] = numbers[places[same]]
    return owners


def _without(block: Block, owner: npt.NDArray[np.uint32]) -> Block:
    """Return a copy of a block in which some Files have an owner in another root."""
    copy = Block(block.memory.copy())
    kept = owner == NONE32
    numbers = np.where(
        kept,
        np.cumsum(kept, dtype=np.uint32) - np.uint32(1),
        owner | np.uint32(native.CONSTANTS["FILE_SHARED"]),
    ).astype(np.uint32)
    named = _names_files(block)
    copy.entries["file"][named] = numbers[block.entries["file"][named]]
    copy.first_entry[: int(kept.sum())] = block.first_entry[kept]
    header = copy.memory[: native.DTYPES["index"].itemsize].view(native.DTYPES["index"])
    header["file_count"] = int(kept.sum())
    native.index_finish(copy.memory)
    return copy


def _names_files(block: Block) -> npt.NDArray[np.bool_]:
    """Return which Entries are Files, or links to them."""
    kinds = block.modes() & 0o170000
    found: npt.NDArray[np.bool_] = kinds == stat.S_IFREG
    links = np.flatnonzero(
        (kinds == stat.S_IFLNK) & (block.entries["target"] != NONE32)
    )
    found[links] = kinds[block.entries["target"][links]] == stat.S_IFREG
    found &= block.entries["file"] != NONE32
    return found


# -- Files behind links ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Behind:
    """The Files of a root that only links to directories outside lead to.

    Attributes:
        links: the paths of these links.
        group: for each File, 0 if it has a name of its own in the root; otherwise one
            more than the index of the first link that leads to it.
        claimed: Files of earlier roots that have a name of their own in this one.
    """

    links: tuple[bytes, ...]
    group: Groups
    claimed: Numbers


def behind_links(block: Block) -> Behind:
    """Return the Files that only links to directories outside the root lead to."""
    links, of_entry = _behind(block)
    named = np.flatnonzero(_names_files(block)[: block.hop_start])
    files = block.entries["file"][named].astype(np.int64)
    own = files < block.file_count
    group = np.full(block.file_count, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(group, files[own], of_entry[named[own]])
    claimed = files[~own & (of_entry[named] == _OWN)]
    return Behind(links, group, claimed & ~native.CONSTANTS["FILE_SHARED"])


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """How many names of a root are links, and how many of these leave it.

    Links below a directory to which another link leads are not counted.
    """

    links: int
    followed: int


def count_links(block: Block) -> LinkCounts:
    """Return how many names of a root are links, and how many of these leave it."""
    _, behind = _behind(block)
    names = np.arange(len(behind)) < block.name_count
    own = names & (behind == _OWN)
    links = np.flatnonzero(own & (block.modes() & 0o170000 == stat.S_IFLNK))
    targets = block.entries["target"][links]
    targets = targets[targets != NONE32]
    leaves = (targets >= block.name_count) | (behind[targets] != _OWN)
    return LinkCounts(len(links), int(leaves.sum()))


def _behind(block: Block) -> tuple[tuple[bytes, ...], Groups]:
    """Return the links to directories outside, and for each Entry its Behind.group."""
    groups = np.zeros(len(block.entries), np.int32)
    kinds, targets = block.modes() & 0o170000, block.entries["target"]
    outer = np.zeros(len(groups), np.bool_)
    outer[block.name_count : block.hop_start] = True
    found = np.flatnonzero((kinds == stat.S_IFLNK) & (targets != NONE32))
    found = found[outer[targets[found]] & (kinds[targets[found]] == stat.S_IFDIR)]
    links = []
    for entry in found[found < block.name_count].tolist():
        if groups[entry]:  # behind another link
            continue
        links.append(block.path(entry))
        start, end = _range_below(block, links[-1])
        groups[start:end] = len(links)
    return tuple(links), groups


def _range_below(block: Block, path: bytes) -> tuple[int, int]:
    names = range(block.name_count)
    start = bisect_left(names, path + b"/", key=block.path)
    return start, bisect_left(names, path + b"0", lo=start, key=block.path)  # after "/"
