"""A parallel walk of a directory tree, with many metadata requests at a time.

It costs the origin one read of each directory and one lstat of each name. Read
permission is checked only where that costs no request: over a network the mode is not
conclusive, because servers squash and map ids, and have access lists of their own.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from monarch import native
from monarch.catalog.block import Records
from monarch.catalog.patterns import Selection
from monarch.catalog.survey import ATTR, PATH_BYTES_MAX, Listing, Unmanaged
from monarch.errors import shown
from monarch.native import ScanKind
from monarch.origins.crossing import Crossing
from monarch.origins.directories import Batch, OpenDirectory, Place, listing_of
from monarch.origins.links import Resolver
from monarch.origins.root import OriginRoot

BATCH_NAMES = 64
"""Names that a thread looks up at a time, so that threads share a large directory."""
LOOK_NS: Final = 20_000_000
"""How long a thread looks up names before it shares them with idle threads.

If directories are read with the metadata of their names, these are cached for a moment,
by some clients only for the thread that has read them."""
PROGRESS_SECONDS = 0.25
REFUSED_MAX: Final = 3

_DT_UNKNOWN, _DT_DIR, _DT_LNK = 0, 4, 10
_U32_MAX: Final = (1 << 32) - 1
_UNMANAGED = {
    ScanKind.SPECIAL: Unmanaged.SPECIAL,
    ScanKind.MOUNT: Unmanaged.MOUNT,
    ScanKind.ABSURD: Unmanaged.ABSURD,
    ScanKind.UNREADABLE: Unmanaged.UNREADABLE,
    ScanKind.FAILED: Unmanaged.FAILED,
}
Task = Callable[[], None]
Count = Callable[[int], None]
"""A function of the number of names, or of directories, so far."""


class Walk:
    """Reads every directory below a root once, and the metadata of every name."""

    def __init__(self, root: OriginRoot, selection: Selection) -> None:
        self.listings: list[Listing] = []
        self.unmanaged: Counter[Unmanaged] = Counter()
        self.refused: list[str] = []
        self.refusals = 0
        self.entries = 0
        self._root = root
        self._selection = selection
        self._attrs: dict[tuple[int, ...], int] = {}
        # This lock protects the mutable state below and the results above.
        self._change = threading.Condition()
        self._behind: Counter[bytes] = Counter()
        self._tasks: list[Task] = []
        self._unfinished = 0
        self._idle = 0
        self._failure: BaseException | None = None
        self._stopped = False
        self._root_fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)
        self._local = {root.dev: native.rights_are_local(self._root_fd)}
        found = native.find_names(self._root_fd, [b"."], rights=self._local[root.dev])
        self.top, _ = self.rows(found, root.dev)
        self.crossing = Crossing(root, selection, Resolver(self._root_fd))

    @property
    def attrs(self) -> Records:
        """The attribute records to which the rows refer."""
        return np.array(list(self._attrs), ATTR)

    def run(self, threads: int, progress: Count | None = None) -> None:
        """Walk the tree; ``progress`` is called with the number of names so far."""
        workers = [
            threading.Thread(target=self._work, name=f"scan {number}", daemon=True)
            for number in range(threads)
        ]
        top = Place(b"", self._root.path, self._root.dev)
        self._push([partial(self._list, top)])
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

    def _wait(self, progress: Count | None) -> None:
        running = True
        while running:
            with self._change:
                if self._unfinished and self._failure is None:
                    self._change.wait(PROGRESS_SECONDS)
                running = self._unfinished > 0 and self._failure is None
            if progress is not None:
                progress(self.entries)

    def largest_link(self) -> bytes:
        """Return a link that adds more names than the root itself, or b""."""
        with self._change:
            own = self.entries - self._behind.total()
            links = self._behind.most_common(1)
        return links[0][0] if links and links[0][1] > own else b""

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
                self._idle += 1
                self._change.wait()
                self._idle -= 1
            # Last in, first out: finish open directories before opening others.
            return self._tasks.pop() if self._tasks and not self._over() else None

    def _over(self) -> bool:
        return self._stopped or self._failure is not None

    def _count(self, reason: Unmanaged, names: int = 1) -> None:
        if names:
            with self._change:
                self.unmanaged[reason] += names

    def _fail(self, path: bytes, error: OSError) -> None:
        """Leave a name to the origin because it could not be read."""
        self._count(_fault(error))
        self._refuse(path, error.errno or errno.EIO)

    def _refuse(self, path: bytes, code: int) -> None:
        """Count a name that cannot be read; store the first ones for the report."""
        with self._change:
            self.refusals += 1
            if len(self.refused) < REFUSED_MAX:
                self.refused.append(f"{shown(path)}: {os.strerror(code)}")

    def _list(self, at: Place) -> None:
        """Read the names of a directory, and look them up with the other threads."""
        # Relative to the root, whose own path may be long, or not reachable.
        name = at.real if at.chain else at.path or b"."
        try:
            fd = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._root_fd
            )
        except FileNotFoundError:
            return
        except OSError as error:
            self._fail(at.path, error)
            return
        if at.dev not in self._local:
            self._local[at.dev] = native.rights_are_local(fd)
        directory = OpenDirectory(at, fd)
        if (names := self._selection.only(at.path)) is not None:
            self._look_named(directory, names)
            return
        try:
            while (listed := native.list_names(fd))[0]:
                place = directory.names
                self._share(directory, self._chosen(directory, *listed), place)
        except OSError as error:
            directory.failed = True
            self._fail(at.path, error)
        finally:
            self._leave(directory)

    def _look_named(self, directory: OpenDirectory, names: list[bytes]) -> None:
        """Look up some names of a directory without reading it."""
        directory.named = True
        try:
            self._share(directory, names, 0)
        finally:
            self._leave(directory)

    def _chosen(
        self, directory: OpenDirectory, names: list[bytes], types: bytes
    ) -> list[bytes]:
        """Return the names to catalogue."""
        directory.names += len(names)
        prefix = directory.at.path + b"/" if directory.at.path else b""
        room = PATH_BYTES_MAX - len(prefix)
        listed = list(zip(names, types, strict=True))
        if max(map(len, names)) > room:
            listed = [item for item in listed if len(item[0]) <= room]
            self._count(Unmanaged.LONG, len(names) - len(listed))
        elif self._selection.takes_all(names):
            return names
        chosen = [
            name
            for name, kind in listed
            if self._wanted(prefix + name, kind, directory.fd)
        ]
        self._count(Unmanaged.EXCLUDED, len(listed) - len(chosen))
        return chosen

    def _wanted(self, path: bytes, kind: int, fd: int) -> bool:
        selection = self._selection
        if selection.drops(path):
            return False
        if selection.includes(path):
            return True
        if not selection.descends(path):
            return False
        if kind == _DT_UNKNOWN:
            return _may_lead_below(os.path.basename(path), fd)
        # A link may lead to a directory, whose contents are selected later.
        return kind in (_DT_DIR, _DT_LNK)

    def _share(self, directory: OpenDirectory, names: list[bytes], place: int) -> None:
        """Look up names, and leave some to idle threads if this takes long."""
        done = 0
        while done < len(names) and not (done and self._has_idle()):
            done += self._look(directory, names[done:], place + done, LOOK_NS)
        last = self._look_last
        others = [
            partial(last, directory, names[start : start + BATCH_NAMES], place + start)
            for start in range(done, len(names), BATCH_NAMES)
        ]
        with self._change:
            directory.users += len(others)
        self._push(others)

    def _has_idle(self) -> bool:
        return self._idle > 0

    def _look_last(
        self, directory: OpenDirectory, names: list[bytes], place: int
    ) -> None:
        done = 0
        try:
            # Each call is short, so that the count advances even if lookups are slow.
            while done < len(names):
                done += self._look(directory, names[done:], place + done, LOOK_NS)
        finally:
            self._leave(directory)

    def _look(
        self, directory: OpenDirectory, names: list[bytes], place: int, limit_ns: int
    ) -> int:
        """Look up names until the limit has passed; return their number."""
        found = native.find_names(
            directory.fd,
            names,
            rights=self._local[directory.at.dev],
            limit_ns=limit_ns,
        )
        batch = self._batch(directory, names[: len(found)], place, found)
        links = [
            partial(
                self._follow_last, directory, batch.links[start : start + BATCH_NAMES]
            )
            for start in range(0, len(batch.links), BATCH_NAMES)
        ]
        with self._change:
            directory.batches.append(batch)
            directory.users += len(links)
            self.entries += len(batch.names)
            if directory.at.top:
                self._behind[directory.at.top] += len(batch.names)
        self._push(links)
        return len(found)

    def _batch(
        self, directory: OpenDirectory, names: list[bytes], place: int, found: Records
    ) -> Batch:
        rows, kinds = self.rows(found, directory.at.dev)
        prefix = directory.at.path + b"/" if directory.at.path else b""
        batch = Batch(place, [prefix + name for name in names], rows)
        others = np.flatnonzero(kinds)
        unreadable = self._unreadable(found, directory.at.dev, named=directory.named)
        for number in np.flatnonzero(unreadable).tolist():
            code = -int(found["status"][number])
            self._refuse(batch.names[number], code or errno.EACCES)
        if not len(others):
            return batch
        dropped = {
            place
            for place in others.tolist()
            if not self._keeps(batch, place, ScanKind(kinds[place]))
        }
        if dropped:
            kept = [place for place in range(len(names)) if place not in dropped]
            batch.names = [batch.names[place] for place in kept]
            batch.rows = rows[kept]
        return batch

    def _unreadable(self, found: Records, dev: int, *, named: bool) -> Any:
        """Return a mask of the names that are known to be unreadable."""
        failed = found["status"] != 0
        if not named:  # a name that was listed may have been removed since
            failed &= found["status"] != -errno.ENOENT
        if not self._local[dev]:
            return failed
        files = (found["mode"] & stat.S_IFMT(0o777777)) == stat.S_IFREG
        return failed | (files & (found["status"] == 0) & (found["readable"] == 0))

    def _keeps(self, batch: Batch, place: int, kind: ScanKind) -> bool:
        """Return whether a name that is not a file is catalogued."""
        path = batch.names[place]
        if kind is ScanKind.DIRECTORY:
            batch.directories.append((path, int(batch.rows["ino"][place])))
        elif kind is ScanKind.LINK:
            batch.links.append(path)
        elif kind is not ScanKind.GONE:
            self._count(_UNMANAGED[kind])
        return kind in (ScanKind.DIRECTORY, ScanKind.LINK)

    def _follow_last(self, directory: OpenDirectory, links: list[bytes]) -> None:
        try:
            self._follow(directory, links)
        finally:
            self._leave(directory)

    def _follow(self, directory: OpenDirectory, links: list[bytes]) -> None:
        """Record the goals of links, and queue directories outside the root."""
        at = directory.at
        names = [os.path.basename(link) for link in links]
        goals = self.crossing.resolver.follow(directory.fd, at.real, names)
        places = []
        for link, goal in zip(links, goals, strict=True):
            if goal is None:
                continue
            with self._change:
                chain = (*at.chain, at.real)
                way = self.crossing.note(link, goal, chain)
            if isinstance(way, Unmanaged):
                self._count(way)
            elif way is not None:
                places.append(Place(*way, chain, at.top or link))
        self._push([partial(self._list, place) for place in places])

    def rows(self, found: Records, dev: int) -> tuple[Records, Any]:
        """Return the rows of names, with the attribute numbers of this walk."""
        rows, kinds = native.make_rows(found, dev)
        numbers = np.zeros(len(found), np.uint32)
        for place in np.unique(rows["attr"]).tolist():
            numbers[place] = self._attr(shared_values(found[place]))
        rows["attr"] = numbers[rows["attr"]]
        return rows, kinds

    def _attr(self, shared: tuple[int, ...]) -> int:
        number = self._attrs.get(shared)
        if number is None:
            with self._change:
                number = self._attrs.setdefault(shared, len(self._attrs))
        return number

    def _leave(self, directory: OpenDirectory) -> None:
        with self._change:
            directory.users -= 1
            last = directory.users == 0
        if last:
            self._finish(directory)

    def _finish(self, directory: OpenDirectory) -> None:
        os.close(directory.fd)
        if directory.failed:
            return
        listing = listing_of(directory)
        at = directory.at
        found = [one for batch in directory.batches for one in batch.directories]
        with self._change:
            self.listings.append(listing)
            below = [
                path
                for path, ino in dict.fromkeys(found)
                if not at.chain or self.crossing.enter(path, at.dev, ino)
            ]
        self._push([partial(self._list, at.below(path)) for path in below])


def _fault(error: OSError) -> Unmanaged:
    """Return UNREADABLE if access was refused, otherwise FAILED."""
    refused = error.errno in (errno.EACCES, errno.EPERM)
    return Unmanaged.UNREADABLE if refused else Unmanaged.FAILED


def _may_lead_below(name: bytes, fd: int) -> bool:
    """Return whether a name of unknown type is a directory or a link."""
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def shared_values(found: Any) -> tuple[int, ...]:
    """Return the values that many Entries share, in the order of ATTR."""
    return (
        int(found["mode"]),
        int(found["uid"]),
        int(found["gid"]),
        min(int(found["nlink"]), _U32_MAX),
        int(found["dev"]),
        min(int(found["blksize"]), _U32_MAX),
        int(found["readable"]),
    )
