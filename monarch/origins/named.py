"""The roots of a job, derived from the datasets that users name.

A dataset is a directory, one file, a pattern of paths, or a list of paths. A directory
is scanned once, whichever datasets it belongs to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from monarch.catalog.patterns import Links, Patterns
from monarch.errors import UsageError, shown

GLOB: Final = "*?["
LIST: Final = "@"
LIST_BYTES_MAX: Final = 64 << 20


class Configured(Protocol):
    """The settings of a dataset that choose its names."""

    path: str
    aliases: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    never: tuple[str, ...]
    links: Links
    index: str | None


@dataclass(frozen=True, slots=True)
class Named:
    """A directory to scan, and the names in it that belong to the datasets.

    Attributes:
        path: the directory.
        given: its names in the configuration, for messages.
        keys: the datasets, by their numbers in the configuration.
    """

    path: str
    patterns: Patterns
    given: tuple[str, ...]
    keys: tuple[int, ...]
    aliases: tuple[str, ...] = ()
    index: str | None = None


@dataclass(slots=True)
class _Group:
    """The parts of datasets in one directory."""

    path: str
    members: list[Named] = field(default_factory=list)


def literal_head(path: str) -> str:
    """Return the directory before the first component with a wildcard, or all of it."""
    if path.startswith(LIST):
        return path[len(LIST) :]
    parts = path.split("/")
    for number, part in enumerate(parts):
        if any(char in part for char in GLOB):
            return "/".join(parts[:number]) or "/"
    return path


def name_roots(datasets: Sequence[Configured], unusable: Sequence[str]) -> list[Named]:
    """Return the directories to scan for some datasets.

    Args:
        unusable: paths, as returned by literal_head(), that are skipped.

    Raises:
        UsageError: a path does not exist, or datasets cannot be combined.
    """
    named, apart = [], []
    for number, dataset in enumerate(datasets):
        if literal_head(dataset.path) in unusable:
            apart.append(_directory(number, dataset))
        else:
            named.append(_named(number, dataset))
    return sorted((*_merged(named), *apart), key=lambda one: one.keys)


def _patterns(dataset: Configured) -> Patterns:
    return Patterns(dataset.include, dataset.exclude, dataset.never, dataset.links)


def _directory(number: int, dataset: Configured) -> Named:
    return Named(
        dataset.path,
        _patterns(dataset),
        (dataset.path,),
        (number,),
        dataset.aliases,
        dataset.index,
    )


def _named(number: int, dataset: Configured) -> Named:
    key, path = f"datasets[{number}].path", dataset.path
    if path.startswith(LIST):
        return _some(number, dataset, *_listed(key, path))
    if _is_there(key, path, required=not any(char in path for char in GLOB)):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            return _directory(number, dataset)
        folder, name = os.path.split(path)
        return _some(number, dataset, folder, (name,))
    folder = literal_head(path)
    _is_there(key, folder, required=True)
    if dataset.include != ("**",):
        raise UsageError(f"{key}: {path} is a pattern; use it or include, not both")
    made = replace(_directory(number, dataset), path=folder)
    pattern = "/" + os.path.relpath(path, folder)
    return replace(made, patterns=replace(made.patterns, include=(pattern,)))


def _some(
    number: int, dataset: Configured, folder: str, names: tuple[str, ...]
) -> Named:
    """Return a directory of which only these names are wanted."""
    if dataset.aliases or dataset.index:
        raise UsageError(
            f"datasets[{number}].path: {dataset.path}: aliases and index are those of "
            "a directory; name that, and use include"
        )
    made = replace(_directory(number, dataset), path=folder)
    return replace(made, patterns=replace(made.patterns, names=names))


def _is_there(key: str, path: str, *, required: bool) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return False
        raise UsageError(
            f"{key}: {path} does not exist; name a directory, a file or a pattern"
        ) from None
    except OSError as error:
        raise UsageError(f"{key}: {path}: {error.strerror}") from error
    return True


def _listed(key: str, path: str) -> tuple[str, tuple[str, ...]]:
    """Return the common directory of the paths of a list, and their names in it."""
    file = Path(path[len(LIST) :])
    try:
        if file.stat().st_size > LIST_BYTES_MAX:
            raise UsageError(f"{key}: {file} is larger than {LIST_BYTES_MAX} bytes")
        lines = os.fsdecode(file.read_bytes()).splitlines()
    except OSError as error:
        raise UsageError(f"{key}: list {file}: {error.strerror}") from error
    paths = [
        os.path.normpath(file.parent / line)
        for line in lines
        if line.strip() and not line.startswith("#")
    ]
    if not paths:
        raise UsageError(f"{key}: list {file} has no path; give one on each line")
    folder = os.path.commonpath([os.path.dirname(one) for one in paths])
    if folder == "/":
        raise UsageError(
            f"{key}: the paths of {file} have no directory in common; use a list for "
            "each file system"
        )
    names = dict.fromkeys(os.path.relpath(one, folder) for one in paths)
    return folder, tuple(names)


# -- datasets in one directory ---------------------------------------------------------


def _merged(named: Sequence[Named]) -> list[Named]:
    """Return the outermost directories, with the others as parts of these."""
    groups: dict[str, _Group] = {}
    reals = [os.path.realpath(one.path) for one in named]
    for real in reals:
        outer = min(
            (other for other in reals if _holds(other, real)), key=len, default=real
        )
        groups.setdefault(outer, _Group(outer))
    for one, real in zip(named, reals, strict=True):
        outer = next(path for path in groups if _holds(path, real))
        groups[outer].members.append(one)
    return [_joined(group) for group in groups.values()]


def _holds(outer: str, path: str) -> bool:
    return path == outer or path.startswith(outer.rstrip("/") + "/")


def _joined(group: _Group) -> Named:
    whole = [one for one in group.members if os.path.realpath(one.path) == group.path]
    first = whole[0] if whole else group.members[0]
    if len(group.members) == 1:
        return first
    others = [one for one in group.members if one is not first]
    same = [one for one in others if os.path.realpath(one.path) == group.path]
    if all(one in same and one.patterns == first.patterns for one in others):
        return _with(first, others)
    for one in others:
        _check_part(first, one)
    parts = tuple(
        (_part_of(group.path, one), replace(one.patterns, links="follow"))
        for one in group.members
    )
    patterns = Patterns(include=(), links=first.patterns.links, parts=parts)
    return replace(_with(first, others), patterns=patterns)


def _with(first: Named, others: Sequence[Named]) -> Named:
    """Return a root with the names and aliases of several datasets."""
    given = dict.fromkeys(text for one in (first, *others) for text in one.given)
    aliases = dict.fromkeys(text for one in (first, *others) for text in one.aliases)
    keys = tuple(key for one in (first, *others) for key in one.keys)
    # The path of another dataset may be another name of the directory.
    names = [one.path for one in others if os.path.realpath(one.path) != one.path]
    same = [name for name in names if _same(name, first.path)]
    return replace(
        first, given=tuple(given), keys=keys, aliases=(*aliases, *dict.fromkeys(same))
    )


def _same(one: str, other: str) -> bool:
    return one != other and os.path.realpath(one) == os.path.realpath(other)


def _part_of(outer: str, one: Named) -> str:
    path = os.path.relpath(os.path.realpath(one.path), outer)
    return "" if path == "." else path


def _check_part(outer: Named, one: Named) -> None:
    key, around = f"datasets[{one.keys[0]}]", f"datasets[{outer.keys[0]}]"
    real = os.path.realpath(outer.path)
    named_inside = any(_holds(top, one.path) for top in (outer.path, real))
    if not named_inside and os.path.realpath(one.path) != real:
        part = os.path.relpath(os.path.realpath(one.path), real)
        raise UsageError(
            f"{key}.path: {one.path} is another name of {outer.path}/{part}, which is "
            f"inside {around}; use that name"
        )
    place = f"{shown(os.fsencode(one.path))} is inside {around}"
    if one.patterns.links != outer.patterns.links:
        raise UsageError(f"{key}.links: {place}; use the same links for both")
    if one.index is not None:
        raise UsageError(f"{key}.index: {place}, which has the index of both")
    if one.aliases and not _same(one.path, outer.path):
        raise UsageError(f"{key}.aliases: {place}; give aliases of {around}")
