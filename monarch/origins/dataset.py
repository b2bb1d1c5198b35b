"""A dataset and its index: loaded from a fresh index file, else made by a scan."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monarch import native
from monarch.catalog.build import build_block, unlisted_links
from monarch.catalog.inventory import MappedRoot
from monarch.catalog.links import Names, catalogued_links, follow_links
from monarch.catalog.patterns import Patterns, Selection
from monarch.catalog.survey import ATTR, ROW, Survey, Unmanaged
from monarch.origins.index_file import (
    IndexUnusableError,
    RootIndex,
    check_fresh,
    read_index,
)
from monarch.origins.root import OriginRoot, link_expansions, open_root
from monarch.origins.walk import Progress, Walk


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset root, the patterns of its names, and its index file, if any."""

    path: str
    patterns: Patterns
    aliases: tuple[str, ...] = ()
    index_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """A dataset with its index.

    Attributes:
        loaded: the index was loaded from a file.
    """

    dataset: Dataset
    root: OriginRoot
    index: RootIndex
    loaded: bool

    def mapped(self) -> MappedRoot:
        """Return the root for the catalog of a job."""
        root = self.root
        named = (root.given, *map(os.fsencode, self.dataset.aliases))
        if root.responds:
            # A program may change any link in the path, so all are names of the root.
            named = tuple(
                dict.fromkeys(path for name in named for path in link_expansions(name))
            )
        return MappedRoot(root.path, named, self.index.block, root.unstable)


def _ignore() -> None:
    """Do nothing."""


def scan(
    root: OriginRoot,
    patterns: Patterns,
    *,
    threads: int = 16,
    progress: Progress | None = None,
) -> Survey:
    """Scan all names below a root that the patterns select."""
    selection = Selection(patterns)
    started_ns = time.time_ns()
    walk = Walk(root, selection)
    walk.run(threads, progress)
    directories = {listing.path for listing in walk.listings}
    links = catalogued_links(Names(root.path, walk.texts, directories), walk.links)
    walk.unmanaged[Unmanaged.LINK_UNLISTED] += len(walk.links) - len(links)
    survey = Survey(
        root=root.path,
        top=walk.top,
        listings=tuple(sorted(walk.listings, key=lambda listing: listing.path)),
        attrs=walk.attrs,
        links=links,
        unmanaged=+walk.unmanaged,
        scanned_ns=started_ns,
        scan_euid=os.geteuid(),
        scan_rights=native.rights_mark(),
    )
    return follow_links(survey, selection)


def scan_index(
    root: OriginRoot,
    patterns: Patterns,
    *,
    threads: int = 16,
    progress: Progress | None = None,
) -> RootIndex:
    """Scan a root and build its index."""
    return _indexed(
        scan(root, patterns, threads=threads, progress=progress), root, patterns
    )


def _indexed(survey: Survey, root: OriginRoot, patterns: Patterns) -> RootIndex:
    block = build_block(survey)
    unmanaged = Counter(survey.unmanaged)
    unmanaged[Unmanaged.LINK_UNLISTED] += unlisted_links(survey, block)
    return RootIndex(block, root.path, patterns, +unmanaged)


def prepare_index(
    dataset: Dataset,
    *,
    threads: int = 16,
    warn: Callable[[str], None],
    progress: Progress | None = None,
    answered: Callable[[], None] = _ignore,
) -> Indexed:
    """Load the index file of a dataset, or scan if there is no fresh one.

    Args:
        progress: called with an increasing count while the origin responds.
        answered: called after the last request to the origin.

    Raises:
        UsageError: the root is not a readable directory.
    """
    root = open_root(dataset.path)
    if dataset.index_file is not None:
        try:
            index = read_index(dataset.index_file)
            check_fresh(
                index, root, dataset.patterns, threads=threads, progress=progress
            )
            answered()
            if int(index.block.header["root_dev"]) != root.dev:
                index.block.move_to_device(root.dev)
        except IndexUnusableError as reason:
            warn(f"index {dataset.index_file} is not used, scanning instead: {reason}")
        else:
            return Indexed(dataset, root, index, loaded=True)
    survey = scan(root, dataset.patterns, threads=threads, progress=progress)
    answered()
    return Indexed(dataset, root, _indexed(survey, root, dataset.patterns), False)


def empty_index(dataset: Dataset) -> Indexed:
    """Return an index without any File, for a root that does not respond.

    No directory has its identity, so that every process ignores the root.
    """
    path = os.path.abspath(os.fsencode(dataset.path))
    root = OriginRoot(path, path, dev=0, ino=0)
    attrs = np.zeros(1, ATTR)
    attrs["mode"] = stat.S_IFDIR
    survey = Survey(path, np.zeros(1, ROW), (), attrs, {}, 0, os.geteuid(), 0)
    index = _indexed(survey, root, dataset.patterns)
    return Indexed(dataset, root, index, loaded=False)
