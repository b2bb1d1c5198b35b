"""A parallel walk of a directory tree, with many metadata requests at a time."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from monarch.catalog.patterns import Selection
from monarch.catalog.survey import ATTR, PATH_BYTES_MAX, ROW, Listing, Unmanaged
from monarch.origins.limits import (
    Row,
    has_identity,
    is_exact,
    lstat_at,
    make_row,
    shared_values,
)
from monarch.origins.root import OriginRoot

BATCH_NAMES = 512
"""Names that a thread stats at a time, so that threads share a large directory."""
PROGRESS_SECONDS = 0.25

_LINK_FAULTS = {
    errno.ENOENT: Unmanaged.LINK_DANGLING,
    errno.ENOTDIR: Unmanaged.LINK_DANGLING,
    errno.ELOOP: Unmanaged.LINK_LOOP,
}

Task = Callable[[], None]
Progress = Callable[[int], None]


@dataclass(slots=True)
class _Batch:
    """The results for some names of one directory."""

    names: list[bytes] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    directories: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """A directory that is being read; the last batch closes it."""

    path: bytes
    fd: int
    batches: list[_Batch]
    waiting: int


class Walk:
    """Reads every directory below a root once, and the metadata of every name."""

    def __init__(self, root: OriginRoot, selection: Selection) -> None:
        self.listings: list[Listing] = []
        self.links: dict[bytes, bytes] = {}
        self.texts: dict[bytes, bytes] = {}
        self.unmanaged: Counter[Unmanaged] = Counter()
        self.entries = 0
        self._root = root
        self._selection = selection
        self._attrs: dict[tuple[int, ...], int] = {}
        # This lock protects the mutable state below and the results above.
        self._change = threading.Condition()
        self._tasks: list[Task] = []
        self._unfinished = 0
        self._failure: BaseException | None = None
        self._stopped = False
        self._root_fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)
        self._top = self._row(lstat_at(b".", self._root_fd), self._root_fd, b".")

    @property
    def attrs(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Return the attribute records to which the rows refer."""
        return np.array(list(self._attrs), ATTR)

    @property
    def top(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Return the row of the root itself."""
        return np.array([self._top], ROW)

    def run(self, threads: int, progress: Progress | None = None) -> None:
        """Walk the tree; ``progress`` is called with the number of names so far."""
        workers = [
            threading.Thread(target=self._work, name=f"scan {number}", daemon=True)
            for number in range(threads)
        ]
        self._push([partial(self._list, b"")])
        for worker in workers:
            worker.start()
        try:
            self._wait(progress)
        finally:
            with self._change:
                self._stopped = True
                self._change.notify_all()
            for worker in workers:
                worker.join()
            os.close(self._root_fd)
        if self._failure is not None:
            raise self._failure

    def _wait(self, progress: Progress | None) -> None:
        running = True
        while running:
            with self._change:
                if self._unfinished and self._failure is None:
                    self._change.wait(PROGRESS_SECONDS)
                running = self._unfinished > 0 and self._failure is None
            if progress is not None:
                progress(self.entries)

    def _push(self, tasks: Sequence[Task]) -> None:
        with self._change:
            self._tasks.extend(tasks)
            self._unfinished += len(tasks)
            self._change.notify(len(tasks))

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except BaseException as failure:
                # This ends the walk, and `run` raises the error in the caller's thread.
                self._failure = failure
            with self._change:
                self._unfinished -= 1
                if not self._unfinished or self._failure is not None:
                    self._change.notify_all()

    def _next(self) -> Task | None:
        with self._change:
            while not self._tasks and self._unfinished and not self._over():
                self._change.wait()
            # Last in, first out: finish open directories before others are opened.
            return self._tasks.pop() if self._tasks and not self._over() else None

    def _over(self) -> bool:
        return self._stopped or self._failure is not None

    def _count(self, reason: Unmanaged, names: int = 1) -> None:
        if names:
            with self._change:
                self.unmanaged[reason] += names

    def _list(self, path: bytes) -> None:
        """Read the names of a directory and distribute them to the threads."""
        try:
            fd = os.open(
                path or b".",
                os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW,
                dir_fd=self._root_fd,
            )
        except FileNotFoundError:
            return
        except OSError:
            self._count(Unmanaged.UNREADABLE)
            return
        try:
            names = self._chosen(path, fd)
        except OSError:
            os.close(fd)
            self._count(Unmanaged.UNREADABLE)
            return
        self._share(path, fd, names)

    def _chosen(self, path: bytes, fd: int) -> list[bytes]:
        """Return the names to catalogue, sorted."""
        prefix = path + b"/" if path else b""
        chosen: list[bytes] = []
        excluded = long = 0
        with os.scandir(fd) as found:
            for item in found:
                name = os.fsencode(item.name)
                full = prefix + name
                if len(full) > PATH_BYTES_MAX:
                    long += 1
                elif self._wanted(full, item):
                    chosen.append(name)
                else:
                    excluded += 1
        self._count(Unmanaged.EXCLUDED, excluded)
        self._count(Unmanaged.LONG, long)
        chosen.sort()
        return chosen

    def _wanted(self, path: bytes, item: os.DirEntry[str]) -> bool:
        selection = self._selection
        if selection.drops(path):
            return False
        if selection.includes(path):
            return True
        # A link may lead to a directory, whose contents are selected later.
        below = item.is_dir(follow_symlinks=False) or item.is_symlink()
        return below and selection.descends(path)

    def _share(self, path: bytes, fd: int, names: list[bytes]) -> None:
        starts = range(0, len(names), BATCH_NAMES) or range(1)
        directory = _Open(path, fd, [_Batch() for _ in starts], len(starts))

        first, *others = (
            partial(self._look, directory, batch, names[start : start + BATCH_NAMES])
            for batch, start in zip(directory.batches, starts, strict=True)
        )
        self._push(others)
        first()

    def _look(self, directory: _Open, batch: _Batch, names: list[bytes]) -> None:
        for name in names:
            try:
                self._examine(directory, batch, name)
            except FileNotFoundError:
                continue  # removed since the directory was read
            except OSError:
                self._count(Unmanaged.UNREADABLE)
        with self._change:
            self.entries += len(batch.names)
            directory.waiting -= 1
            last = directory.waiting == 0
        if last:
            self._finish(directory)

    def _examine(self, directory: _Open, batch: _Batch, name: bytes) -> None:
        found = lstat_at(name, directory.fd)
        path = directory.path + b"/" + name if directory.path else name
        kind = stat.S_IFMT(found.st_mode)
        if not (has_identity if kind == stat.S_IFDIR else is_exact)(found):
            self._count(Unmanaged.ABSURD)
            return
        if kind == stat.S_IFDIR:
            # Directories only: on overlayfs, files have other devices.
            if found.st_dev != self._root.dev:
                self._count(Unmanaged.MOUNT)
                return
            batch.directories.append(path)
        elif kind == stat.S_IFLNK:
            self._follow(directory.fd, name, path)
        elif kind != stat.S_IFREG:
            # A special file cannot be staged, and its times change with use.
            self._count(Unmanaged.SPECIAL)
            return
        batch.rows.append(self._row(found, directory.fd, name))
        batch.names.append(path)

    def _follow(self, fd: int, name: bytes, path: bytes) -> None:
        self.texts[path] = os.readlink(name, dir_fd=fd)
        target = resolve_link(fd, name, self._root.path)
        if isinstance(target, Unmanaged):
            self._count(target)
        else:
            self.links[path] = target

    def _row(self, found: os.stat_result, fd: int, name: bytes) -> Row:
        readable = not stat.S_ISLNK(found.st_mode) and os.access(
            name, os.R_OK, dir_fd=fd, effective_ids=True
        )
        shared = shared_values(found, readable=readable)
        return make_row(found, self._attr(shared))

    def _attr(self, shared: tuple[int, ...]) -> int:
        number = self._attrs.get(shared)
        if number is None:
            with self._change:
                number = self._attrs.setdefault(shared, len(self._attrs))
        return number

    def _finish(self, directory: _Open) -> None:
        os.close(directory.fd)
        names = [name for batch in directory.batches for name in batch.names]
        rows = [row for batch in directory.batches for row in batch.rows]
        listing = Listing.of(directory.path, names, np.array(rows, ROW))
        below = [path for batch in directory.batches for path in batch.directories]
        with self._change:
            self.listings.append(listing)
        self._push([partial(self._list, path) for path in below])


def resolve_link(fd: int, name: bytes, root: bytes) -> bytes | Unmanaged:
    """Return the target of a link as a path below the root, or why there is none.

    With one O_PATH open the kernel resolves all links, without opening the target.
    """
    try:
        goal = os.open(name, os.O_PATH, dir_fd=fd)
    except OSError as error:
        return _LINK_FAULTS.get(error.errno or 0, Unmanaged.UNREADABLE)
    try:
        path = os.readlink(f"/proc/self/fd/{goal}".encode())
    finally:
        os.close(goal)
    if path == root:
        return b""
    if not path.startswith(root + b"/"):
        return Unmanaged.LINK_OUTSIDE
    return path[len(root) + 1 :]
