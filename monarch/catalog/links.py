"""Symbolic links: which ones are catalogued, and the names below directory links.

A program that changes a catalogued name marks the Files that depend on it. A link that
passes through a name outside the Catalog could change its target without a mark, so
such a link is left to the origin.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from posixpath import dirname

import numpy as np

from monarch.catalog.patterns import Selection
from monarch.catalog.survey import PATH_BYTES_MAX, Listing, Survey, Unmanaged

HOPS_MAX = 40
"""Links in one path that the kernel follows (path_resolution(7))."""
LINK_DEPTH_MAX = 8
"""The maximum number of directory links in one path."""
LINK_NAMES_MAX = 4_000_000
"""The maximum number of names below directory links of one root."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a scan through which a link may pass.

    Attributes:
        root: realpath of the root.
        texts: path of a link below the root → the text of the link.
        directories: paths of the directories that were read; that of the root is empty.
    """

    root: bytes
    texts: Mapping[bytes, bytes]
    directories: Container[bytes]

    def goal(self, link: bytes) -> bytes | None:
        """Return the target of a link, as a path below the root.

        Returns:
            None if a step is not catalogued: a directory that was not read, a link
            that is not listed, or a path outside the root.
        """
        here = _parent(link)
        steps: list[bytes] = []
        text: bytes | None = self.texts[link]
        for _ in range(HOPS_MAX):
            if text is None or not self._leads_below(text):
                break
            here = b"" if text.startswith(b"/") else here
            steps += self._names(text)
            here, text = self._walk(here, steps)
            if text is None:
                return here if not steps else None
        return None

    def _walk(self, here: bytes, steps: list[bytes]) -> tuple[bytes, bytes | None]:
        """Follow steps, last first, to the next link; return its directory and text."""
        while steps and here in self.directories and (here or steps[-1] != b".."):
            name = steps.pop()
            if name == b"..":
                here = _parent(here)
                continue
            path = here + b"/" + name if here else name
            if path in self.texts:
                return here, self.texts[path]
            here = path
        return here, None

    def _leads_below(self, text: bytes) -> bool:
        absolute = text.startswith(b"/")
        return not absolute or (text + b"/").startswith(self.root + b"/")

    def _names(self, text: bytes) -> list[bytes]:
        below = text[len(self.root) :] if text.startswith(b"/") else text
        return [name for name in below.split(b"/") if name not in (b"", b".")][::-1]


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def catalogued_links(
    names: Names, targets: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return the links of which every step is catalogued, with their targets.

    Args:
        targets: path of a link → the path below the root to which the kernel resolved.
    """
    return {
        link: target for link, target in targets.items() if names.goal(link) == target
    }


# -- names below directory links --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DirectoryLink:
    """A directory link, and the real directories of the links that lead to it."""

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
        links = [
            _DirectoryLink(*item, (dirname(item[0]),))
            for item in self._survey.links.items()
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
        if any(_holds(via.target, directory) for directory in via.chain):
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
        last = bisect_left(self._listed, directory + b"0")  # what follows "/"
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
            self._links[moved] = target
            yield _DirectoryLink(moved, target, (*via.chain, source.path))

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


def _holds(directory: bytes, path: bytes) -> bool:
    return not directory or path == directory or path.startswith(directory + b"/")
