"""Names below directory links: ``link/x`` is found though only its target was read."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from posixpath import dirname

import numpy as np

from monarch.catalog.patterns import Selection
from monarch.catalog.survey import Listing, Survey
from monarch.catalog.unmanaged import PATH_BYTES_MAX, Unmanaged

LINK_DEPTH_MAX = 8
"""Directory links that may follow each other in one path."""
LINK_NAMES_MAX = 4_000_000
"""Names below directory links of one root, so that links cannot multiply a tree."""


@dataclass(frozen=True, slots=True)
class _Hop:
    """A directory link, and the real directories whose links led to it."""

    link: bytes
    target: bytes
    chain: tuple[bytes, ...]


def follow_links(survey: Survey, selection: Selection) -> Survey:
    """Add a Listing for each directory below each directory link of a survey."""
    return _Expansion(survey, selection).run()


class _Expansion:
    def __init__(self, survey: Survey, selection: Selection) -> None:
        self._survey = survey
        self._selection = selection
        self._listed = [listing.path for listing in survey.listings]
        self._links = dict(survey.links)
        self._below: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for link, target in survey.links.items():
            self._below.setdefault(dirname(link), []).append((link, target))
        self._unmanaged = Counter(survey.unmanaged)
        self._added: list[Listing] = []
        self._names = 0

    def run(self) -> Survey:
        hops = [_Hop(*item, (dirname(item[0]),)) for item in self._survey.links.items()]
        for hop in hops:  # grows while it is walked
            hops.extend(self._follow(hop))
        listings = sorted(
            (*self._survey.listings, *self._added), key=lambda listing: listing.path
        )
        return replace(
            self._survey,
            listings=tuple(listings),
            links=self._links,
            unmanaged=self._unmanaged,
        )

    def _follow(self, hop: _Hop) -> Iterable[_Hop]:
        subtree = self._subtree(hop.target)
        if not subtree:
            return ()
        if any(_holds(hop.target, directory) for directory in hop.chain):
            self._unmanaged[Unmanaged.LINK_CYCLE] += 1
            return ()
        names = sum(map(len, subtree))
        too_many = self._names + names > LINK_NAMES_MAX
        if too_many or len(hop.chain) > LINK_DEPTH_MAX:
            self._unmanaged[Unmanaged.LINK_LIMIT] += 1
            return ()
        self._names += names
        return [further for source in subtree for further in self._copy(source, hop)]

    def _subtree(self, directory: bytes) -> tuple[Listing, ...]:
        listings = self._survey.listings
        if not directory:
            return listings
        own = bisect_left(self._listed, directory)
        first = bisect_left(self._listed, directory + b"/")
        last = bisect_left(self._listed, directory + b"0")  # what follows "/"
        found = (
            listings[own : own + 1] if directory in self._listed[own : own + 1] else ()
        )
        return (*found, *listings[first:last])

    def _copy(self, source: Listing, hop: _Hop) -> Iterator[_Hop]:
        """List one directory once more under the link's name."""
        path = _moved(source.path, hop)
        if self._selection.drops(path):
            return
        names = [_moved(name, hop) for name in source.names()]
        kept = [i for i, name in enumerate(names) if self._keeps(name)]
        rows = source.rows[np.array(kept, np.int64)]
        copied = [names[i] for i in kept]
        self._added.append(Listing.of(path, copied, rows, source.path))
        listed = set(copied)
        for link, target in self._below.get(source.path, ()):
            moved = _moved(link, hop)
            if moved not in listed:
                continue
            self._links[moved] = target
            yield _Hop(moved, target, (*hop.chain, source.path))

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


def _moved(path: bytes, hop: _Hop) -> bytes:
    """Return the path as it reads through the link."""
    below = path[len(hop.target) :].lstrip(b"/") if path != hop.target else b""
    return hop.link + b"/" + below if below else hop.link


def _holds(directory: bytes, path: bytes) -> bool:
    return not directory or path == directory or path.startswith(directory + b"/")
