"""Texts about an index for users: links, and names left out with the reasons."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from monarch.catalog.outside import count_links
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.errors import shown
from monarch.origins.index_file import RootIndex
from monarch.origins.relocation import IndexUnusableError
from monarch.origins.saved_indexes import SavedIndexes
from monarch.units import format_count


def doubts_of(index: RootIndex) -> list[str]:
    """Return a sentence for each result that may be unintended, such as no file."""
    root, refused = shown(index.root), index.refused
    excluded = index.unmanaged.get(Unmanaged.EXCLUDED, 0)
    others = {reason for reason, count in index.unmanaged.items() if count}
    doubts = []
    include = index.patterns.include
    if not index.block.file_count and include and include[0].startswith("/"):
        doubts.append(f"no file of {root} matches {include[0].lstrip('/')}")
    elif not index.block.file_count and others == {Unmanaged.EXCLUDED}:
        doubts.append(
            f"no file of {root} is staged: include, exclude and never leave out "
            f"all {format_count(excluded)} names; change these patterns"
        )
    elif not index.block.file_count:
        reasons = reasons_text(index.unmanaged)
        why = f": {reasons}" if reasons else ""
        doubts.append(f"{root} has no file to stage{why}")
    if refused.names:
        examples = ", ".join(refused.examples)
        more = refused.names - len(refused.examples)
        rest = f" and {format_count(more)} more" if more else ""
        doubts.append(f"not staged of {root}: {examples}{rest}")
    return doubts


def reasons_text(unmanaged: Mapping[Unmanaged, int]) -> str:
    """Return the reasons for which names are left to the origin, with their counts."""
    return ", ".join(
        f"{format_count(count)} {reason.singular if count == 1 else reason.text}"
        for reason, count in sorted(unmanaged.items())
        if count
    )


def links_text(indexes: Sequence[RootIndex]) -> str:
    """Return the numbers of links, of those leaving the datasets, and of failed ones.

    Returns:
        "" without links.
    """
    found = [count_links(index.block) for index in indexes]
    links = sum(one.links for one in found)
    followed = sum(one.followed for one in found)
    failed = Counter[Unmanaged]()
    for index in indexes:
        failed.update({r: n for r, n in index.unmanaged.items() if r.is_link})
    parts = [f"{format_count(links)} {'link' if links == 1 else 'links'}"]
    if followed:
        parts.append(f"{format_count(followed)} followed out of the dataset")
    if failed.total():
        parts.append(f"not followed: {reasons_text(failed)}")
    return ", ".join(parts) if links else ""


def known_links(path: str, patterns: Patterns, saved: SavedIndexes) -> str:
    """Return the links of a dataset at its last scan, without a new scan.

    Returns:
        "" if it has not been scanned, or has no links.
    """
    try:
        root = os.path.realpath(os.fsencode(path), strict=True)
        index = saved.load(root, patterns)
    except (IndexUnusableError, OSError):
        return ""
    return links_text([index])
