"""Symbolic links: their targets, their hops, and the names below directory links.

A program that changes a catalogued name marks the Files that depend on it. So each
directory and link that a link passes is catalogued, even outside the root.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from posixpath import dirname
from typing import NamedTuple

import numpy as np

from monarch.catalog.block import Records
from monarch.catalog.patterns import Selection
from monarch.catalog.survey import PATH_BYTES_MAX, Listing, Survey, Unmanaged
from monarch.native import ScanKind

HOPS_MAX = 40
"""Links in one path that the kernel follows (path_resolution(7))."""
LINK_DEPTH_MAX = 8
"""The maximum number of directory links in one path."""
LINK_NAMES_MAX = 4_000_000
"""The maximum number of names below directory links of one root."""


class Goal(NamedTuple):
    """Where a link leads, as the kernel resolves it.

    Attributes:
        path: the real path of the target.
        hops: the real paths of the directories and links that are passed.
        found: metadata, of which item ``number`` is that of the target.
        kind: the type of the target.
        dev: the device of the target.
        guarded: the kernel may refuse to follow the link.
    """

    path: bytes
    hops: tuple[bytes, ...]
    found: Records
    number: int
    kind: ScanKind
    dev: int
    guarded: bool


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of a name in a directory, which may be `/`."""
    return directory.rstrip(b"/") + b"/" + name


def below(root: bytes, path: bytes) -> bytes | None:
    """Return a real path relative to a root, None if it is not below it."""
    if path == root:
        return b""
    return path[len(root) + 1 :] if path.startswith(root + b"/") else None


def holds(directory: bytes, path: bytes) -> bool:
    """Return whether a path is a directory or below it; empty: the top of all paths."""
    top = directory.rstrip(b"/")
    return not top or path == top or path.startswith(top + b"/")


@dataclass(frozen=True, slots=True)
class Crossings:
    """The resolved links of a scan, before each has an Entry as its target.

    Attributes:
        goals: the name of a link → its target.
        entered: the name of a link to a directory that was read for it, or for another
            link → the target, as in `Survey.links`.
    """

    root: bytes
    goals: Mapping[bytes, Goal]
    entered: Mapping[bytes, bytes]

    def targets(self, listed: Callable[[set[bytes]], set[bytes]]) -> dict[bytes, bytes]:
        """Return the target of each link, as in `Survey.links`.

        Args:
            listed: returns the catalogued ones of some paths below the root.
        """
        inside = {
            link: below(self.root, goal.path) for link, goal in self.goals.items()
        }
        names = listed({path for path in inside.values() if path is not None})
        found = {}
        first: dict[bytes, bytes] = {}
        for link in sorted(self.goals):
            path, real = inside[link], self.goals[link].path
            if path is not None and path in names:
                found[link] = path
            elif link in self.entered:
                found[link] = self.entered[link]
            else:
                found[link] = first.setdefault(real, link) + b"/"
        return found

    def hops(self) -> set[bytes]:
        """Return the real paths of the directories and links that links pass."""
        return {
            hop for hops in {goal.hops for goal in self.goals.values()} for hop in hops
        }

    def holders(self, targets: Iterable[bytes]) -> set[bytes]:
        """Return the directories of files to which links lead.

        Args:
            targets: of links, as in `Survey.links`.
        """
        ends = (self.goals[path[:-1]] for path in targets if path.endswith(b"/"))
        return {dirname(goal.path) for goal in ends if goal.kind is ScanKind.FILE}


# -- names below directory links --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DirectoryLink:
    """A directory link, and the directories of the links that lead to it."""

    link: bytes
    target: bytes
    chain: tuple[bytes, ...]


def follow_links(
    survey: Survey, selection: Selection, copies: Mapping[bytes, bytes]
) -> Survey:
    """Add a Listing for each directory below each directory link of a survey.

    Args:
        copies: a directory that was read by another name before → that name.
    """
    return _Expansion(survey, selection, copies).run()


class _Expansion:
    def __init__(
        self, survey: Survey, selection: Selection, copies: Mapping[bytes, bytes]
    ) -> None:
        self._survey = survey
        self._selection = selection
        self._listed = [listing.path for listing in survey.listings]
        self._links = dict(survey.links)
        # Links, and directories whose names are listed below another name of theirs.
        self._leading = (*survey.links.items(), *copies.items())
        self._below: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for name, target in self._leading:
            self._below.setdefault(dirname(name), []).append((name, target))
        self._unmanaged = Counter(survey.unmanaged)
        self._added: list[Listing] = []
        self._names = 0

    def run(self) -> Survey:
        # A directory that was read by the name of the link itself needs no copy.
        links = [
            _DirectoryLink(link, target.rstrip(b"/"), (dirname(link),))
            for link, target in self._leading
            if link != target.rstrip(b"/")
        ]
        for link in links:  # the loop appends to the list
            links.extend(self._follow(link))
        listings = sorted(
            (*self._survey.listings, *self._added), key=lambda listing: listing.path
        )
        return replace(
            self._survey,
            listings=tuple(listings),
            links=self._links,
            unmanaged=self._unmanaged,
        )

    def _follow(self, via: _DirectoryLink) -> Iterable[_DirectoryLink]:
        subtree = self._subtree(via.target)
        if not subtree:
            return ()
        if any(holds(via.target, directory) for directory in via.chain):
            self._unmanaged[Unmanaged.LINK_CYCLE] += 1
            return ()
        names = sum(map(len, subtree))
        too_many = self._names + names > LINK_NAMES_MAX
        if too_many or len(via.chain) > LINK_DEPTH_MAX:
            self._unmanaged[Unmanaged.LINK_LIMIT] += 1
            return ()
        self._names += names
        return [further for source in subtree for further in self._copy(source, via)]

    def _subtree(self, directory: bytes) -> tuple[Listing, ...]:
        listings = self._survey.listings
        if not directory:
            return listings
        own = bisect_left(self._listed, directory)
        first = bisect_left(self._listed, directory + b"/")
        last = bisect_left(self._listed, directory + b"0")  # "0" follows "/"
        found = (
            listings[own : own + 1] if directory in self._listed[own : own + 1] else ()
        )
        return (*found, *listings[first:last])

    def _copy(self, source: Listing, via: _DirectoryLink) -> Iterator[_DirectoryLink]:
        """List one directory again below the link."""
        path = _moved(source.path, via)
        if self._selection.drops(path):
            return
        names = [_moved(name, via) for name in source.names()]
        kept = [i for i, name in enumerate(names) if self._keeps(name)]
        rows = source.rows[np.array(kept, np.int64)]
        copied = [names[i] for i in kept]
        order = source.order if source.whole and len(kept) == len(names) else None
        self._added.append(
            Listing.of(path, copied, rows, real=source.path, order=order)
        )
        listed = set(copied)
        for link, target in self._below.get(source.path, ()):
            moved = _moved(link, via)
            if moved not in listed:
                continue
            if link in self._links:
                self._links[moved] = target
            goal = target.rstrip(b"/")
            if goal != link:  # otherwise its names are in the subtree
                yield _DirectoryLink(moved, goal, (*via.chain, source.path))

    def _keeps(self, path: bytes) -> bool:
        if len(path) > PATH_BYTES_MAX:
            self._unmanaged[Unmanaged.LONG] += 1
            return False
        if self._selection.drops(path) or not (
            self._selection.includes(path) or self._selection.descends(path)
        ):
            self._unmanaged[Unmanaged.EXCLUDED] += 1
            return False
        return True


def _moved(path: bytes, via: _DirectoryLink) -> bytes:
    """Return the path through the link."""
    below = path[len(via.target) :].lstrip(b"/") if path != via.target else b""
    return via.link + b"/" + below if below else via.link
