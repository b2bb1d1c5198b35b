"""Whether a saved index still describes its root: identity, patterns, directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from monarch import native
from monarch.catalog.block import Block
from monarch.catalog.layout import NONE32
from monarch.catalog.unmanaged import Patterns, shown
from monarch.origins.root import OriginRoot
from monarch.origins.saved import IndexUnusableError, RootIndex
from monarch.origins.walk import Progress

BATCH_DIRECTORIES = 256
# Some file systems keep times in seconds, or two: what was changed within so long
# before the scan may have been changed again, and look the same.
COARSE_NS = 2_000_000_000
# Of an index that another node has made just now, so many entries are looked at.
SAMPLE = 8


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why an index does not describe its root any more."""

    directory: bytes
    what: str


def check_fresh(
    index: RootIndex,
    root: OriginRoot,
    patterns: Patterns,
    *,
    threads: int = 16,
    progress: Progress | None = None,
) -> None:
    """Compare an index with the root as it is now; files are checked when staged.

    Args:
        progress: called with the directories looked at so far, among others.

    Raises:
        IndexUnusableError: it was made from something else, a directory changed, or the
            scan could look up names that this process cannot.
    """
    header = index.block.header
    # A network file system has another device number on each node and after a reboot.
    same_place = int(header["root_dev"]) == root.dev or index.root == root.path
    if not same_place or int(header["root_ino"]) != root.ino:
        raise IndexUnusableError(
            f"it was made from another directory, {shown(index.root)}"
        )
    if index.patterns != patterns:
        raise IndexUnusableError(_difference(index.patterns, patterns))
    fault = _first_fault(index.block, root, threads, progress)
    if fault is not None:
        path = os.path.join(root.path, fault.directory)
        raise IndexUnusableError(f"{shown(path)} {fault.what}")


def is_same_tree(block: Block, root: OriginRoot) -> bool:
    """Return whether a root holds what another node has just found under its path.

    The roots of file systems that each node has for itself often have the same inode,
    but nothing in them is the same; of a shared one little has changed meanwhile.
    """
    entries = block.entries
    count = min(SAMPLE, len(entries))
    fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        places = [number * len(entries) // count for number in range(count)]
        return not places or any(_is_same(block, fd, place) for place in places)
    finally:
        os.close(fd)


def _is_same(block: Block, fd: int, entry: int) -> bool:
    record = block.entries[entry]
    try:
        path = block.path(entry) or b"."
        found = os.stat(path, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    names = ("ino", "size", "mtime_ns", "ctime_ns")
    return [int(record[name]) for name in names] == [
        getattr(found, f"st_{name}") for name in names
    ]


def _difference(then: Patterns, now: Patterns) -> str:
    for name in Patterns.__slots__:
        old, new = list(getattr(then, name)), list(getattr(now, name))
        if old != new:
            return f"it was made with {name} {old}, but now {name} is {new}"
    return "it was made with other patterns"


def _first_fault(
    block: Block, root: OriginRoot, threads: int, progress: Progress | None
) -> _Fault | None:
    directories = list(block.directories())
    links = _links(block) if _is_close(block, directories) else []
    looked_at = max(len(directories), len(links))
    starts = range(0, looked_at, BATCH_DIRECTORIES)
    fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fresh")
    search = not _scanned_like_us(block)

    def look(start: int) -> _Fault | None:
        part = directories[start : start + BATCH_DIRECTORIES]
        if progress is not None:
            progress(start)
        changed = next(_changed(block, fd, part), None)
        if changed is None and search:
            changed = next(_closed(block, fd, part), None)
        if changed is None:
            part = links[start : start + BATCH_DIRECTORIES]
            changed = next(_led_elsewhere(block, fd, part), None)
        return changed

    try:
        found = (fault for fault in pool.map(look, starts) if fault is not None)
        return next(found, None)
    finally:
        pool.shutdown(cancel_futures=True)
        os.close(fd)


def _is_close(block: Block, directories: list[int]) -> bool:
    """Return whether a directory was changed too shortly before the scan to be told."""
    records = block.entries[directories]
    since = int(block.header["scanned_ns"]) - COARSE_NS
    times = np.maximum(records["mtime_ns"], records["ctime_ns"])
    return bool(np.any(times >= since))


def _links(block: Block) -> list[int]:
    """Return the links that are followed without asking the origin."""
    modes, targets = block.modes(), block.entries["target"]
    found = (modes & 0o170000 == stat.S_IFLNK) & (targets != NONE32)
    links: list[int] = np.flatnonzero(found).tolist()
    return links


def _led_elsewhere(block: Block, fd: int, links: list[int]) -> Iterator[_Fault]:
    """Yield directories of links that lead to something else than at the scan."""
    for link in links:
        path, target = block.path(link), int(block.entries["target"][link])
        try:
            found = os.stat(path, dir_fd=fd).st_ino
        except OSError:
            found = 0
        if found != int(block.entries["ino"][target]):
            yield _Fault(os.path.dirname(path), "has changed since")


def _scanned_like_us(block: Block) -> bool:
    scan = int(block.header["scan_euid"]), int(block.header["scan_rights"])
    return scan == (os.geteuid(), native.rights_mark())


def _closed(block: Block, fd: int, entries: list[int]) -> Iterator[_Fault]:
    """Yield directories whose names the scan could look up and this process cannot."""
    for path in map(block.path, entries):
        if not os.access(path or b".", os.X_OK, dir_fd=fd, effective_ids=True):
            yield _Fault(path, "cannot be searched, which it could when it was scanned")


def _changed(block: Block, fd: int, entries: list[int]) -> Iterator[_Fault]:
    records, attrs = block.entries[entries], block.attrs
    for entry, record in zip(entries, records, strict=True):
        path = block.path(entry)
        try:
            found = os.stat(path or b".", dir_fd=fd, follow_symlinks=False)
        except OSError:
            yield _Fault(path, "has changed since")
            continue
        # Programs can set a directory's mtime back, but not its ctime.
        times = record["mtime_ns"], record["ctime_ns"]
        was = (record["ino"], *times, attrs["mode"][record["attr"]])
        now = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)
        if was != now:
            yield _Fault(path, "has changed since")
