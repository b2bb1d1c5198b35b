"""The index of a dataset root: loaded where a fresh one was saved, else scanned."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monarch import native
from monarch.catalog.build import build_block, unlisted_links
from monarch.catalog.segment import MappedRoot
from monarch.catalog.survey import ATTR, ROW, Survey
from monarch.catalog.unmanaged import Patterns, Unmanaged
from monarch.origins.index_file import check_fresh
from monarch.origins.layout import LAYOUT
from monarch.origins.root import OriginRoot, open_root, stages
from monarch.origins.saved import IndexUnusableError, RootIndex, read_index
from monarch.origins.scan import scan
from monarch.origins.walk import Progress


@dataclass(frozen=True, slots=True)
class Dataset:
    """What is asked for: a root, which names of it, and maybe a saved index."""

    path: str
    patterns: Patterns
    aliases: tuple[str, ...] = ()
    saved: Path | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """A dataset with its index.

    Attributes:
        loaded: the index was loaded, not scanned.
    """

    dataset: Dataset
    root: OriginRoot
    index: RootIndex
    loaded: bool

    def mapped(self) -> MappedRoot:
        """Return the root as the catalog of a job takes it."""
        root = self.root
        named = (root.given, *map(os.fsencode, self.dataset.aliases))
        if root.answers:
            # A program may lead any link on the way elsewhere: all are watched.
            named = tuple(dict.fromkeys(way for name in named for way in stages(name)))
        return MappedRoot(root.path, named, self.index.block, root.unstable)


def _nothing() -> None:
    """Be told and do nothing."""


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
    block = build_block(survey, LAYOUT, native.index_finish)
    unmanaged = Counter(survey.unmanaged)
    unmanaged[Unmanaged.LINK_UNLISTED] += unlisted_links(survey, block)
    return RootIndex(block, root.path, patterns, +unmanaged)


def prepare_index(
    dataset: Dataset,
    *,
    threads: int = 16,
    warn: Callable[[str], None],
    progress: Progress | None = None,
    answered: Callable[[], None] = _nothing,
) -> Indexed:
    """Load the saved index of a dataset, or scan where there is none that is fresh.

    Args:
        progress: called with numbers that grow while the origin answers.
        answered: called when the origin is not asked any more.

    Raises:
        UsageError: the root is not a directory that can be read.
    """
    root = open_root(dataset.path)
    if dataset.saved is not None:
        try:
            index = read_index(dataset.saved)
            check_fresh(
                index, root, dataset.patterns, threads=threads, progress=progress
            )
            answered()
            if int(index.block.header["root_dev"]) != root.dev:
                index.block.move_to_device(root.dev, native.index_finish)
        except IndexUnusableError as reason:
            warn(f"index {dataset.saved} is not used, scanning instead: {reason}")
        else:
            return Indexed(dataset, root, index, loaded=True)
    survey = scan(root, dataset.patterns, threads=threads, progress=progress)
    answered()
    return Indexed(dataset, root, _indexed(survey, root, dataset.patterns), False)


def empty_index(dataset: Dataset) -> Indexed:
    """Return the index of a root of which nothing is known: it names no File.

    No directory has its identity, so that every process leaves the root alone.
    """
    path = os.path.abspath(os.fsencode(dataset.path))
    root = OriginRoot(path, path, dev=0, ino=0)
    attrs = np.zeros(1, ATTR)
    attrs["mode"] = stat.S_IFDIR
    survey = Survey(path, np.zeros(1, ROW), (), attrs, {}, 0, os.geteuid(), 0)
    index = _indexed(survey, root, dataset.patterns)
    return Indexed(dataset, root, index, loaded=False)
