"""A scan of one dataset root: walk it, follow its links, hand over a Survey."""

from __future__ import annotations

import os
import time

from monarch import native
from monarch.catalog.hops import Names, catalogued_links
from monarch.catalog.links import follow_links
from monarch.catalog.patterns import Selection
from monarch.catalog.survey import Survey
from monarch.catalog.unmanaged import Patterns, Unmanaged
from monarch.origins.root import OriginRoot
from monarch.origins.walk import Progress, Walk


def scan(
    root: OriginRoot,
    patterns: Patterns,
    *,
    threads: int = 16,
    progress: Progress | None = None,
) -> Survey:
    """Survey everything below a root that the patterns choose."""
    selection = Selection(patterns)
    started_ns = time.time_ns()
    walk = Walk(root, selection)
    walk.run(threads, progress)
    directories = {listing.path for listing in walk.listings}
    links = catalogued_links(Names(root.path, walk.texts, directories), walk.links)
    walk.unmanaged[Unmanaged.LINK_UNLISTED] += len(walk.links) - len(links)
    survey = Survey(
        root=root.path,
        top=walk.top,
        listings=tuple(sorted(walk.listings, key=lambda listing: listing.path)),
        attrs=walk.attrs,
        links=links,
        unmanaged=+walk.unmanaged,
        scanned_ns=started_ns,
        scan_euid=os.geteuid(),
        scan_rights=native.rights_mark(),
    )
    return follow_links(survey, selection)
