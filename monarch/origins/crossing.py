"""The links of a scan: those followed out of the root, and the names they add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from monarch.catalog.block import Records
from monarch.catalog.links import (
    LINK_DEPTH_MAX,
    Crossings,
    Goal,
    below,
    follow_links,
    holds,
)
from monarch.catalog.patterns import Selection
from monarch.catalog.survey import ROW, Outside, Survey, Unmanaged
from monarch.native import ScanKind
from monarch.origins.links import Found, Resolver
from monarch.origins.root import OriginRoot

Way = tuple[bytes, bytes, int]
"""A directory to read: its name in the dataset, its real path and its device."""
MakeRows = Callable[[Records], Records]


class Crossing:
    """Records the goals of links, and the directories outside the root to be read.

    Its methods must not run concurrently.
    """

    def __init__(
        self, root: OriginRoot, selection: Selection, resolver: Resolver
    ) -> None:
        self.resolver = resolver
        self._root = root
        self._selection = selection
        self._goals: dict[bytes, Goal] = {}
        self._entered: dict[bytes, bytes] = {}
        self._copies: dict[bytes, bytes] = {}
        # Targets, as in Survey.links, of directories outside the root that are read.
        self._known: dict[tuple[int, int, bytes], bytes] = {}

    def note(
        self, link: bytes, goal: Goal | Unmanaged, chain: tuple[bytes, ...]
    ) -> Way | Unmanaged | None:
        """Record the goal of a link.

        Args:
            chain: real paths of the directory of the link, and of the links to that.

        Returns:
            The directory to read for it, or why it is left to the origin.
        """
        if isinstance(goal, Unmanaged):
            return goal
        if goal.kind not in (ScanKind.FILE, ScanKind.DIRECTORY):
            return Unmanaged.LINK_UNLISTED
        if not self._selection.follows and not self._stays_inside(goal):
            return Unmanaged.LINK_OUTSIDE
        is_directory = goal.kind is ScanKind.DIRECTORY
        outside = not holds(self._root.path, goal.path)
        if outside and not is_directory and not self._selection.includes(link):
            return Unmanaged.EXCLUDED
        reads = is_directory and not self._is_walked(goal)
        if reads and any(holds(goal.path, here) for here in (self._root.path, *chain)):
            return Unmanaged.LINK_CYCLE
        if reads and len(chain) > LINK_DEPTH_MAX:
            return Unmanaged.LINK_LIMIT
        self._goals[link] = goal
        return self._way_of(link, goal) if reads else None

    def _stays_inside(self, goal: Goal) -> bool:
        """Return whether a link passes only names below the root, or its parents."""
        root = self._root.path
        passed = (hop for hop in goal.hops if not holds(hop, root))
        return all(holds(root, path) for path in (*passed, goal.path))

    def _is_walked(self, goal: Goal) -> bool:
        """Return whether a directory is read anyway, as one below the root."""
        path = below(self._root.path, goal.path)
        if path is None or goal.dev != self._root.dev:
            return False
        selection = self._selection
        wanted = selection.includes(path) or selection.descends(path)
        return not path or (wanted and not selection.drops(path))

    def _way_of(self, link: bytes, goal: Goal) -> Way | None:
        via = link if self._selection.by_path else b""
        inode = int(goal.found["ino"][goal.number])
        target = self._known.setdefault((goal.dev, inode, via), link + b"/")
        self._entered[link] = target
        if target != link + b"/":
            return None
        return link, goal.path, goal.dev

    def enter(self, path: bytes, dev: int, ino: int) -> bool:
        """Return whether a directory below one outside the root is still unread.

        Args:
            path: its name in the dataset.
        """
        if self._selection.by_path:
            return True
        target = self._known.setdefault((dev, ino, b""), path)
        if target != path:
            self._copies[path] = target.rstrip(b"/")
        return target == path

    def settle(self, survey: Survey, make_rows: MakeRows) -> Survey:
        """Return a survey with the targets of links, and the names they pass outside.

        Args:
            survey: without links.
            make_rows: converts metadata to rows of the survey.
        """
        crossings = Crossings(self._root.path, self._goals, self._entered)
        links = crossings.targets(survey.listed)
        with_links = replace(survey, links=links)
        expanded = follow_links(with_links, self._selection, self._copies)
        return self._with_outside(crossings, expanded, make_rows)

    def _with_outside(
        self, crossings: Crossings, survey: Survey, make_rows: MakeRows
    ) -> Survey:
        targets = {target for target in survey.links.values() if target.endswith(b"/")}
        outer = sorted(target[:-1] for target in targets)
        hops = self._unlisted(survey, crossings.hops())
        ends = {self._goals[link].path: link + b"/" for link in outer}
        links = dict(survey.links)
        for hop in sorted(hops):
            goal = self.resolver.hop_goal(hop)
            if goal is None:
                continue
            inside = below(self._root.path, goal)
            if inside is not None and survey.listed({inside}):
                links[hop] = inside
            elif goal in ends:
                links[hop] = ends[goal]
            else:
                hops.add(goal)
                links[hop] = goal
        return replace(
            survey,
            links=links,
            outside=self._outside(outer, hops, crossings.holders(targets), make_rows),
        )

    def _unlisted(self, survey: Survey, hops: Iterable[bytes]) -> set[bytes]:
        """Return the hops that are not names of the dataset."""
        inside = {hop: below(self._root.path, hop) for hop in hops}
        listed = survey.listed({path for path in inside.values() if path is not None})
        return {hop for hop, path in inside.items() if path not in listed}

    def _outside(
        self,
        outer: list[bytes],
        hops: set[bytes],
        holders: set[bytes],
        make_rows: MakeRows,
    ) -> Outside:
        first = sorted(hops & holders)
        ordered = (*first, *sorted(hops - set(first)))
        goals = [self._goals[link] for link in outer]
        passed = [self.resolver.hop(hop) for hop in ordered]
        return Outside(
            outer=tuple(outer),
            outer_rows=_rows(goals, make_rows),
            hops=ordered,
            hop_rows=_rows(passed, make_rows),
            holders=len(first),
        )


def _rows(found: Sequence[Goal | Found], make_rows: MakeRows) -> Records:
    if not found:
        return np.empty(0, ROW)
    parts = [one.found[one.number : one.number + 1] for one in found]
    return make_rows(np.concatenate(parts))
