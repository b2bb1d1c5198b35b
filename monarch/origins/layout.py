"""The native layouts, in the form in which the catalog takes them."""

from __future__ import annotations

from typing import Final

from monarch import native
from monarch.catalog.layout import Layout

LAYOUT: Final = Layout(
    dtypes=native.DTYPES,
    constants=native.CONSTANTS,
    segments={kind.name: int(kind) for kind in native.SegmentKind},
)
