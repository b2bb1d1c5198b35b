"""A dataset and its index: loaded from a fresh index file, or made by a scan."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from monarch import native
from monarch.catalog.block import Block
from monarch.catalog.build import build_block, unlisted_links
from monarch.catalog.inventory import MappedRoot
from monarch.catalog.outside import share_files
from monarch.catalog.parts import selection_of
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import ATTR, ROW, Refused, Survey, Unmanaged
from monarch.errors import shown
from monarch.origins.index_file import (
    RootIndex,
    check_fresh,
    read_index,
)
from monarch.origins.index_text import doubts_of
from monarch.origins.named import Named
from monarch.origins.progress import Advance, Progress
from monarch.origins.relocation import IndexUnusableError, relocate
from monarch.origins.root import (
    OriginRoot,
    link_expansions,
    open_root,
    stands_above,
)
from monarch.origins.saved_indexes import SavedIndexes
from monarch.origins.walk import Count, Walk

BATCH_FILES = 256

log = logging.getLogger("monarch.index")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset root, the patterns of its names, and the places of its index.

    Attributes:
        index_file: the index file configured by the user.
        saved: the indexes saved by earlier scans; None: not to be used.
        given: its configured names, if they differ from its path.
    """

    path: str
    patterns: Patterns
    aliases: tuple[str, ...] = ()
    index_file: Path | None = None
    saved: SavedIndexes | None = None
    given: tuple[str, ...] = ()

    @classmethod
    def of(cls, named: Named, saved: SavedIndexes | None) -> Dataset:
        """Return a dataset as configured by users."""
        file = Path(named.index) if named.index else None
        parts = named.path, named.patterns, named.aliases, file, saved
        return cls(*parts, given=named.given)

    @property
    def names(self) -> tuple[str, ...]:
        """The names used in messages."""
        return self.given or (self.path,)


@dataclass(frozen=True, slots=True)
class IndexKey:
    """The key of the saved index of a dataset."""

    dataset: Dataset
    root: bytes

    def forget(self) -> None:
        """Remove the saved index, if it exists."""
        if self.dataset.saved is not None:
            self.dataset.saved.drop(self.root, self.dataset.patterns)


@dataclass(frozen=True, slots=True)
class Indexed:
    """A dataset with its index.

    Attributes:
        provisional: directories were compared with the root, but files were not: their
            attributes may differ from the index.
        scanned: whether this process has made the index.
        shared: the block of the index, if another root of the job has Files of it.
    """

    dataset: Dataset
    root: OriginRoot
    index: RootIndex
    provisional: bool
    scanned: bool
    shared: Block | None = None

    @property
    def block(self) -> Block:
        """The index block for the catalog of a job."""
        return self.shared or self.index.block

    def mapped(self) -> MappedRoot:
        """Return the root for the catalog of a job."""
        root = self.root
        named = (root.given, *map(os.fsencode, self.dataset.aliases))
        if root.responds:
            # A program may change any link in the path, so all are names of the root.
            named = tuple(
                dict.fromkeys(path for name in named for path in link_expansions(name))
            )
        return MappedRoot(
            root.path,
            named,
            self.block,
            root.unstable or self._leads_to_unstable(),
            self.provisional,
            inside=self.dataset.patterns.links == "inside",
            chosen=bool(self.dataset.patterns.names),
            above=stands_above((root.path, *named)) if root.responds else (),
        )

    def as_of_earlier(self) -> Indexed:
        """Return the index for programs that started before the Catalog was ready.

        Their changes on the root's file system are known. Files on other file systems,
        which links lead to, must be compared first.
        """
        others = set(self.block.devices()) - {self.root.dev}
        return replace(self, provisional=True) if others else self

    def _leads_to_unstable(self) -> bool:
        """Return whether links lead to a file system whose inode numbers may change."""
        block, root = self.block, self.root
        entries = [
            entry
            for dev, entry in block.devices().items()
            if root.responds and dev != root.dev
        ]
        paths = [os.path.join(root.path, block.lookup_path(entry)) for entry in entries]
        return any(map(native.inodes_unstable, paths))

    @property
    def key(self) -> IndexKey:
        """The key of the saved index."""
        return IndexKey(self.dataset, self.root.path)

    def save(self) -> None:
        """Save the index for later jobs, if this process has made it."""
        saved = self.dataset.saved
        if self.scanned and saved is not None:
            saved.save(self.index)


def save_all(indexed: Sequence[Indexed]) -> None:
    """Save the indexes that this process has made."""
    for one in indexed:
        one.save()


def forget_indexes(stale: Sequence[IndexKey]) -> None:
    """Remove the saved indexes of datasets whose files have changed."""
    for one in stale:
        one.forget()


def _ignore(*_: object) -> None:
    """Do nothing."""


def scan(
    root: OriginRoot,
    patterns: Patterns,
    *,
    threads: int = 16,
    progress: Count | None = None,
    behind: Callable[[bytes], None] = _ignore,
) -> Survey:
    """Scan all names below a root that the patterns select.

    Args:
        behind: called before `progress` with the link that adds more names than the
            root itself, or b"".
    """
    selection = selection_of(patterns)
    started_ns = time.time_ns()
    walk = Walk(root, selection)

    def advance(names: int) -> None:
        behind(walk.largest_link())
        if progress is not None:
            progress(names)

    walk.run(threads, advance)
    survey = Survey(
        root=root.path,
        top=walk.top,
        listings=tuple(sorted(walk.listings, key=lambda listing: listing.path)),
        attrs=walk.attrs,
        links={},
        unmanaged=+walk.unmanaged,
        refused=Refused(walk.refusals, tuple(walk.refused)),
        scanned_ns=started_ns,
        scan_euid=os.geteuid(),
        scan_rights=native.rights_mark(),
    )
    settled = walk.crossing.settle(survey, lambda found: walk.rows(found, root.dev)[0])
    return replace(settled, attrs=walk.attrs)


def scan_index(
    root: OriginRoot,
    patterns: Patterns,
    *,
    threads: int = 16,
    progress: Count | None = None,
) -> RootIndex:
    """Scan a root and build its index."""
    return _indexed(
        scan(root, patterns, threads=threads, progress=progress), root, patterns
    )


def _indexed(survey: Survey, root: OriginRoot, patterns: Patterns) -> RootIndex:
    block = build_block(survey)
    unmanaged = Counter(survey.unmanaged)
    unmanaged[Unmanaged.LINK_UNLISTED] += unlisted_links(survey, block)
    return RootIndex(block, root.path, patterns, +unmanaged, survey.refused)


def prepare_index(
    dataset: Dataset,
    *,
    threads: int = 16,
    warn: Callable[[str], None],
    progress: Progress = _ignore,
    answered: Callable[[], None] = _ignore,
) -> Indexed:
    """Load the fresh index of a dataset, or scan.

    Args:
        progress: called with advances while the origin responds.
        answered: called after the last request to the origin.

    Raises:
        UsageError: the root is not a readable directory.
    """
    preparation = _Preparation(dataset, open_root(dataset.path), threads, progress)
    index = preparation.given(warn) or preparation.saved()
    provisional = index is not None
    if index is None:
        survey = preparation.survey()
        answered()
        index = _indexed(survey, preparation.root, dataset.patterns)
    else:
        answered()
        relocate(index.block, preparation.root)
    for doubt in doubts_of(index):
        warn(doubt)
    return Indexed(dataset, preparation.root, index, provisional, not provisional)


def share_indexed(indexed: Sequence[Indexed]) -> list[Indexed]:
    """Return the datasets of a job, so that each File belongs to only one of them."""
    blocks = share_files([one.index.block for one in indexed])
    return [
        one if block is one.index.block else replace(one, shared=block)
        for one, block in zip(indexed, blocks, strict=True)
    ]


@dataclass(slots=True)
class _Preparation:
    """The ways to get the index of a dataset.

    Attributes:
        expected: the number of names in a stale index.
        behind: a link that adds more names than the root itself.
    """

    dataset: Dataset
    root: OriginRoot
    threads: int
    progress: Progress
    expected: int = 0
    behind: str = ""

    def given(self, warn: Callable[[str], None]) -> RootIndex | None:
        """Return the index from the user's index file."""
        file = self.dataset.index_file
        if file is None:
            return None
        try:
            index = read_index(file)
            self._check(index)
        except IndexUnusableError as reason:
            warn(f"index {file} is not used, scanning instead: {reason}")
            return None
        return index

    def saved(self) -> RootIndex | None:
        """Return the index saved by an earlier scan."""
        saved, patterns = self.dataset.saved, self.dataset.patterns
        if saved is None:
            return None
        try:
            index = saved.load(self.root.path, patterns)
            self._check(index)
        except IndexUnusableError as reason:
            log.debug("saved index not used root=%s reason=%s", self.root, reason)
            return None
        saved.note_use(self.root.path, patterns)
        return index

    def _check(self, index: RootIndex) -> None:
        self.expected = len(index.block.entries)
        total = index.block.directory_count
        check_fresh(
            index,
            self.root,
            self.dataset.patterns,
            threads=self.threads,
            progress=lambda done: self.progress(Advance(done, total, compares=True)),
        )

    def survey(self) -> Survey:
        """Scan the root."""
        return scan(
            self.root,
            self.dataset.patterns,
            threads=self.threads,
            progress=self._note_names,
            behind=self._note_link,
        )

    def _note_link(self, link: bytes) -> None:
        self.behind = shown(link) if link else ""

    def _note_names(self, names: int) -> None:
        self.progress(Advance(names, self.expected, behind=self.behind))


def empty_index(dataset: Dataset) -> Indexed:
    """Return an index without Files, for a root that does not respond.

    No directory has its identity, so every process ignores the root.
    """
    path = os.path.abspath(os.fsencode(dataset.path))
    root = OriginRoot(path, path, dev=0, ino=0)
    attrs = np.zeros(1, ATTR)
    attrs["mode"] = stat.S_IFDIR
    survey = Survey(path, np.zeros(1, ROW), (), attrs, {}, 0, os.geteuid(), 0)
    index = _indexed(survey, root, dataset.patterns)
    return Indexed(dataset, root, index, provisional=False, scanned=False)
