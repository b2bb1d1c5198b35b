"""The Namespace of a job: its datasets indexed, and published in shared memory."""

import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.agent.control import Notifier
from monarch.agent.segments import Segments
from monarch.agent.setup import Setup
from monarch.catalog.block import Block
from monarch.catalog.inventory import Inventory, MappedRoot, catalog_digest
from monarch.catalog.outside import behind_links
from monarch.catalog.patterns import MAPPED_FORMATS, Patterns, Selection
from monarch.catalog.segment import CatalogPlan, OpenPolicy, TierPlace, plan_catalog
from monarch.errors import UsageError, shown
from monarch.origins.dataset import (
    Dataset,
    Indexed,
    empty_index,
    prepare_index,
    share_indexed,
)
from monarch.origins.index_text import links_text
from monarch.origins.progress import Advance, Progress, ScanRate, scan_line
from monarch.stager import FileTable, Replicas, WrittenMarks, footprints
from monarch.stager.behind import OWN, Behind
from monarch.tiers import Tier
from monarch.tiers.probe import FAULTS

PROGRESS_AFTER_S: Final = 1.0
SILENT_S: Final = 5.0
"""A scan that finds no name for so long hangs; a slow scan still finds some."""
POLL_S: Final = 0.1

log = logging.getLogger("monarch.agent")


# -- indexing -----------------------------------------------------------------------


def index_datasets(
    setup: Setup, notifier: Notifier, partial: bool, begun: "list[Indexing]"
) -> list[Indexed]:
    """Load or scan the index of every dataset, each in its own thread.

    Args:
        begun: receives the started indexings, so that others see their progress.
        partial: a dataset that fails or hangs gets an empty index if another one is
            ready when `catalog.wait_max` is over: programs read it from the origin.

    Raises:
        UsageError: a dataset is not valid.
    """
    indexings = [Indexing(dataset, setup, notifier) for dataset in setup.datasets]
    begun += indexings
    for indexing in indexings:
        threading.Thread(target=indexing.run, name="index", daemon=True).start()
    others = indexings if partial else []
    deadline_s = time.monotonic() + setup.config.catalog.wait_max
    for indexing in indexings:
        while not indexing.ended.wait(POLL_S):
            late = time.monotonic() >= deadline_s
            if late and indexing.hangs and any(one.result for one in others):
                break
    return share_indexed(
        [_result(indexing, others, notifier) for indexing in indexings]
    )


def _result(
    indexing: "Indexing", others: "list[Indexing]", notifier: Notifier
) -> Indexed:
    error = indexing.error
    if indexing.result is not None:
        return indexing.result
    is_usage = isinstance(error, UsageError) and not is_fault(error)
    if is_usage or not any(one.result for one in others):
        raise error or AssertionError("no indexing has ended")
    path = indexing.dataset.path
    reason = error or f"its scan had no answer for {SILENT_S:g} s"
    log.warning("no index path=%s", path, exc_info=error)
    notifier.warn(f"{path} is not staged, programs read the origin: {reason}")
    return empty_index(indexing.dataset)


def is_fault(error: Exception) -> bool:
    """Return whether a dataset cannot be used because its file system fails."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in FAULTS


class Indexing:
    """The loading or scanning of one dataset, which may never end.

    Attributes:
        ended: set with the result or an error.
    """

    def __init__(self, dataset: Dataset, setup: Setup, notifier: Notifier) -> None:
        self.dataset = dataset
        self.ended = threading.Event()
        self.result: Indexed | None = None
        self.error: Exception | None = None
        self._threads = setup.config.catalog.scan_threads
        self._notifier = notifier
        self._progress = progress_of(dataset.path, notifier)
        self._advance: Advance | None = None
        self._advanced_s = time.monotonic()
        self._answered = False

    def __repr__(self) -> str:
        return f"<Indexing {self.dataset.path} {self._advance}>"

    @property
    def advance(self) -> Advance:
        """Last reported progress."""
        return self._advance or Advance(0)

    @property
    def hangs(self) -> bool:
        """Whether the origin has not answered for SILENT_S."""
        silent_s = time.monotonic() - self._advanced_s
        return not self._answered and silent_s >= SILENT_S

    def run(self) -> None:
        """Make the index; for a daemon thread."""
        try:
            self.result = prepare_index(
                self.dataset,
                threads=self._threads,
                warn=self._notifier.warn,
                progress=self._note,
                answered=self._note_answered,
            )
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()

    def _note(self, advance: Advance) -> None:
        if advance != self._advance:
            self._advance, self._advanced_s = advance, time.monotonic()
        self._progress(advance)

    def _note_answered(self) -> None:
        self._answered = True


def progress_of(path: str, notifier: Notifier) -> Progress:
    """Return a callback that sends the progress of a long scan to the launcher."""
    started_s, rate = time.monotonic(), ScanRate()

    def progress(advance: Advance) -> None:
        state = rate.describe(advance)
        if time.monotonic() - started_s >= PROGRESS_AFTER_S:
            notifier.progress(scan_line(path, state))

    return progress


# -- publishing ---------------------------------------------------------------------


class Namespace:
    """The published Files of a job, by number.

    Attributes:
        links: how many names of the datasets are links, and where these lead.
    """

    def __init__(self, plan: CatalogPlan, segments: Segments, links: str = "") -> None:
        self.segments = segments
        self.links = links
        self.roots = _mapped(plan, segments)
        self.inventory = Inventory(self.roots, native.CONSTANTS["EXTENT_BYTES"])
        # The bytes of all Files in a Tier, where each takes whole pages.
        self.room_bytes = int(footprints(self.inventory.sizes).sum())
        self.bases = plan.file_bases
        self.digest = catalog_digest(plan.roots)
        self.written = WrittenMarks(*segments.marks(), segments.note_marks)
        self._pages = plan.presence.pages(segments.memory["flags"])
        self.mark_bases = (*plan.file_bases, *plan.directory_bases)
        self._first = [root.block.first_entry for root in self.roots]
        self.behind = self._behind()

    def __repr__(self) -> str:
        return f"<Namespace {len(self.inventory)} files in {len(self.roots)} roots>"

    def _behind(self) -> Behind:
        """Return the Files that only links to directories outside the roots lead to."""
        groups, links = np.full(len(self.inventory), OWN, np.int32), list[str]()
        for base, root in zip(self.bases, self.roots, strict=True):
            found = behind_links(root.block)
            numbered = np.where(found.group, found.group + len(links), OWN)
            groups[base : base + len(numbered)] = numbered
            groups[found.claimed] = OWN
            links += [shown(root.path + b"/" + link) for link in found.links]
        return Behind(groups, links, time.monotonic)

    def name_of(self, file: int) -> str:
        """Return the name of a File's Replica."""
        number = self.inventory.root_of(file)
        entry = int(self._first[number][file - self.bases[number]])
        root = self.roots[number]
        return native.replica_name(root.block.memory, root.path, entry)

    def changed_roots(self) -> list[MappedRoot]:
        """Return the roots with files that have changed since their index was made."""
        marks = self.written
        firsts = zip(self.roots, self.bases, marks.roots, strict=False)
        return [
            root
            for root, base, whole in firsts
            if whole or marks.marks[base : base + root.block.file_count].any()
        ]

    def replicas(self) -> Replicas:
        """Return the Files with their states, as the Stager sees and changes them."""
        return Replicas(
            FileTable(
                sizes=self.inventory.sizes,
                words=self.segments.words(len(self.inventory)),
                marks=self.written,
                name_of=self.name_of,
                inodes_of=self.segments.inodes_of,
                inodes_in=self.segments.inodes_in,
                bases=self.bases,
                pages=self._pages,
            )
        )

    def table_files(self, first: npt.NDArray[np.uint64]) -> native.TableFiles:
        """Return the Files in the form for a staging table.

        Args:
            first: the first Extent of each File, and the number of all Extents.
        """
        roots, marks = self.segments.marks()
        return native.TableFiles(
            sizes=np.ascontiguousarray(self.inventory.sizes, np.uint64),
            words=self.segments.words(len(self.inventory)),
            marks=marks,
            root_marks=roots,
            bases=np.array(self.bases, np.uint32),
            first=np.ascontiguousarray(first, np.uint64),
        )

    def flag_whole(self, named: Selection, large_bytes: int) -> None:
        """Flag large Files that are useful only as a whole Replica.

        Files of formats that are usually mapped are held whole or not at all. Opens of
        Files that the user has named wait until they are staged whole, too: for
        programs that map them by a system call of their own.

        Args:
            named: the names given by the user.
            large_bytes: the size above which programs do not wait for any other File.
        """
        flags = self.segments.whole(len(self.inventory))
        large = np.flatnonzero((self.inventory.sizes > large_bytes) & bool(len(flags)))
        paths = list(self.inventory.relatives(large))
        formats = Selection(Patterns(include=MAPPED_FORMATS))
        for names, flag in ((formats, "WHOLE_FORMAT"), (named, "WHOLE_NAMED")):
            found = np.array([names.includes(path) for path in paths], bool)
            flags[large[found]] = native.CONSTANTS[flag]

    def path(self, file: int) -> str:
        """Return the path of a File on its Origin, as text to print."""
        return shown(self.inventory.path(file))


def publish(setup: Setup, indexed: list[Indexed], segments: Segments) -> Namespace:
    """Create the segments that programs map, the Catalog last."""
    plan = plan_catalog(
        [one.mapped() for one in indexed],
        [_place(tier) for tier in (*setup.tiers, *filter(None, [setup.pool]))],
        open_policy(
            setup,
            inner_mounts=any(
                native.mounts_cover(one.block.memory, one.root.path) for one in indexed
            ),
        ),
    )
    generation = segments.generation
    segments.create(
        "flags", plan.flags_length, lambda _, m: plan.write_flags(m, generation)
    )
    segments.create(
        "inodes", plan.inodes_length, lambda _, m: plan.write_inodes(m, generation)
    )
    segments.create(
        "catalog",
        plan.length,
        lambda _, m: plan.write_into(m, generation),
    )
    return Namespace(plan, segments, links_text([one.index for one in indexed]))


def _mapped(plan: CatalogPlan, segments: Segments) -> list[MappedRoot]:
    """Return the roots with the copies of their blocks in shared memory."""
    memory = segments.memory["catalog"]
    mapped = []
    for place, root in zip(plan.places.blocks, plan.roots, strict=True):
        block = Block(memory[place : place + len(root.block.memory)])
        mapped.append(replace(root, block=block))
    return mapped


def open_policy(setup: Setup, *, inner_mounts: bool) -> OpenPolicy:
    """Return the policy of the Shim for cold opens.

    Args:
        inner_mounts: something is mounted on a catalogued name.
    """
    cold = setup.config.cold_open
    return OpenPolicy(
        cold_mode=native.ColdMode[cold.mode.upper()],
        cold_wait_max_bytes=cold.wait_max,
        cold_wait_max_whole_bytes=cold.wait_max_whole,
        cold_timeout_ns=int(cold.timeout * 1e9),
        inner_mounts=inner_mounts,
        programs_excluded=setup.config.programs.exclude,
        notes_use=any(tier.settings.evicts for tier in setup.tiers),
    )


def _place(tier: Tier) -> TierPlace:
    kinds = {"ram": 0, "ssd": 1}
    return TierPlace(
        kinds[tier.kind], os.fsencode(tier.directory), device_of_files(tier.directory)
    )


def device_of_files(directory: Path) -> int:
    """Return the device of a new file; on overlays it differs from the directory's."""
    probe = directory / ".probe"
    fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
        os.unlink(probe)


def extent_arrays(namespace: Namespace) -> "tuple[np.ndarray, np.ndarray]":
    """Return an array for the checksums of all Extents, and each File's first index."""
    first = namespace.inventory.extent_first
    return np.zeros(int(first[-1]), np.uint64), first
