"""Selects names of a root if only some are wanted, or parts have their own patterns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from monarch.catalog.patterns import Patterns, Selection


def selection_of(patterns: Patterns) -> Selection:
    """Return the selection of the names below a root."""
    if patterns.names or patterns.parts:
        return PartialSelection(patterns)
    return Selection(patterns)


def _upwards(path: bytes) -> Iterator[bytes]:
    """Yield a relative path and those of its parents, the root last."""
    while path:
        yield path
        path = path.rpartition(b"/")[0]
    yield b""


def _below(prefix: bytes, path: bytes) -> bytes:
    """Return a path relative to one of its parents, or to itself."""
    return path[len(prefix) :].lstrip(b"/")


class _Ways:
    """The directories above some paths, and the names in each that lead to them."""

    def __init__(self, paths: Sequence[bytes]) -> None:
        self._names: dict[bytes, dict[bytes, None]] = {}
        for path in paths:
            while path:
                path, _, name = path.rpartition(b"/")
                self._names.setdefault(path, {})[name] = None

    def __contains__(self, directory: bytes) -> bool:
        return directory in self._names

    def names(self, directory: bytes) -> list[bytes]:
        """Return the names in a directory that lead to a path."""
        return list(self._names.get(directory, ()))


class _Part:
    """A directory with patterns of its own, all of it or some names in it."""

    def __init__(self, patterns: Patterns) -> None:
        self.globs = Selection(patterns)
        names = [os.fsencode(name).strip(b"/") for name in patterns.names]
        self._named = frozenset(names) if names else None
        self._ways = _Ways(names)

    @property
    def is_whole(self) -> bool:
        """Whether it has no list of names."""
        return self._named is None

    def includes(self, path: bytes) -> bool:
        """Return whether the path of a file or link in it is selected."""
        globs = self.globs
        return self.takes(path) and not globs.drops(path) and globs.includes(path)

    def descends(self, path: bytes) -> bool:
        """Return whether something below a directory can be selected."""
        if not path or path in self._ways:
            return True
        globs = self.globs
        return self.takes(path) and not globs.drops(path) and globs.descends(path)

    def takes(self, path: bytes) -> bool:
        """Return whether a path, or a directory that it is in, is one of the names."""
        return self._named is None or any(up in self._named for up in _upwards(path))

    def only(self, directory: bytes) -> list[bytes] | None:
        """Return the names to look up in a directory; None: all names in it."""
        return None if self.takes(directory) else self._ways.names(directory)


class PartialSelection(Selection):
    """Decides which names below a root are catalogued, where parts differ.

    The innermost part decides about a name, and so does each part with a list of names.
    """

    def __init__(self, patterns: Patterns) -> None:
        super().__init__(Patterns(links=patterns.links))
        self.by_path = True
        own = [] if patterns.include == () else [("", patterns)]
        self._parts: dict[bytes, list[_Part]] = {}
        for prefix, of_part in (*own, *patterns.parts):
            parts = self._parts.setdefault(os.fsencode(prefix), [])
            parts.append(_Part(of_part))
        self._ways = _Ways(list(self._parts))

    def takes_all(self, names: Sequence[bytes]) -> bool:
        """Return False if there are names: each is examined."""
        return not names

    def includes(self, path: bytes) -> bool:
        """Return whether the path of a file or link is selected."""
        return any(part.includes(name) for part, name in self._of(path))

    def descends(self, path: bytes) -> bool:
        """Return whether something below a directory can be selected."""
        inside = (part.descends(name) for part, name in self._of(path))
        return path in self._ways or any(inside)

    def drops(self, path: bytes) -> bool:
        """Return whether neither a path nor anything below it is selected."""
        return not (self.includes(path) or self.descends(path))

    def only(self, directory: bytes) -> list[bytes] | None:
        """Return the names to look up in a directory; None: all names in it."""
        names = dict.fromkeys(self._ways.names(directory))
        for part, place in self._of(directory):
            wanted = part.only(place)
            if wanted is None:
                return None
            names.update(dict.fromkeys(wanted))
        return list(names)

    def _of(self, path: bytes) -> Iterator[tuple[_Part, bytes]]:
        """Yield the parts that decide about a path, with its name in each."""
        whole = False
        for prefix in _upwards(path):
            for part in self._parts.get(prefix, ()):
                if not (part.is_whole and whole):
                    yield part, _below(prefix, path)
            whole |= any(part.is_whole for part in self._parts.get(prefix, ()))
