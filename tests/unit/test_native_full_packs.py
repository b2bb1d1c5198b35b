"""Files that fill a packed Tier to its last page, or the Pool before it."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from monarch import native
from monarch.codec import FRAME_BYTES, Codec
from monarch.stager import Destination
from support.processes import wait_until
from unit.test_native_packs import (  # noqa: F401
    NODES,
    PAGE,
    Node,
    Wanted,
    make,
    text,
)

COUNT, SIZE = 40, 20_000
NONE = Codec.parse("none")
CONTENTS = [bytes([n]) * SIZE for n in range(COUNT)]
NEED = SIZE + FRAME_BYTES
LAST_PAGES = 2


def full(count: int, last_pages: int = LAST_PAGES) -> Wanted:
    """A Tier with room for so many Files."""
    return Wanted(codec=NONE, tier_bytes=count * NEED, last_pages=last_pages)


@pytest.mark.parametrize("asked", [False, True], ids=["filled", "asked"])
def test_files_that_are_to_be_kept_fill_a_tier(
    make: Callable[..., Node],  # noqa: F811
    asked: bool,
) -> None:
    node = make(CONTENTS, full(COUNT))
    everything = np.arange(COUNT, dtype=np.uint32)

    if asked:
        for file in everything:
            node.engine.demand(int(file))
    else:
        node.engine.fill(everything, np.zeros(0, np.uint32))

    wait_until(lambda: node.packed(*everything), "all files are packed")
    assert node.table.account(0).reserved_bytes == 0
    taken = sum(path.stat().st_blocks * 512 for path in node.segments)
    assert taken <= COUNT * NEED + LAST_PAGES * PAGE


def test_segment_without_a_page_beside_the_capacity_takes_one_of_it(
    make: Callable[..., Node],  # noqa: F811
) -> None:
    node = make(CONTENTS, full(COUNT, last_pages=0))

    node.fill(0)

    assert node.table.account(0).reserved_bytes == PAGE
    node.engine.fill(np.arange(COUNT, dtype=np.uint32), np.zeros(0, np.uint32))
    wait_until(lambda: is_settled(node), "all files were looked at")
    taken = sum(path.stat().st_blocks * 512 for path in node.segments)
    assert COUNT * NEED - 2 * SIZE <= taken <= COUNT * NEED


def is_settled(node: Node) -> bool:
    packed = node.table.packed() >= 0
    refused = [node.state(file)[2] is native.Reason.NO_ROOM for file in range(COUNT)]
    return bool((packed | refused).all())


def test_spare_copies_leave_the_room_of_files_that_are_to_be_kept(
    make: Callable[..., Node],  # noqa: F811
) -> None:
    node = make(CONTENTS, full(COUNT // 2))
    rows = np.zeros(COUNT, native.TABLE_ROW)
    rows["destination"], rows["sources"] = Destination.SPARE, native.NO_SOURCE
    kept = np.arange(COUNT // 4, dtype=np.uint32)
    rows["destination"][kept] = Destination.TIER
    node.table.follow(rows, 0, NODES, uses_pool=True)

    for file in range(len(kept), COUNT):
        node.engine.demand(file)
    wait_until(lambda: all(map(node.is_ready, range(len(kept), COUNT))), "spares")
    wait_until(node.is_idle, "no copy runs")
    spares = int((node.table.packed() >= 0).sum())
    node.fill(*kept.tolist())

    assert 0 < spares <= COUNT // 4


def test_pool_that_is_short_of_room_loses_nothing(
    make: Callable[..., Node],  # noqa: F811
) -> None:
    """Programs read the origin instead, and fill packs these files later."""
    contents = [text(60_000, n) for n in range(COUNT)]
    node = make(contents, Wanted(pool_bytes=8 * 61_440))

    def is_busy(file: int) -> bool:
        return node.state(file)[2] is native.Reason.BUSY

    def is_answered(file: int) -> bool:
        return node.is_ready(file) or is_busy(file)

    for file in range(COUNT):
        node.engine.demand(file)
        wait_until(partial(is_answered, file), f"an answer for file {file}")
    wait_until(lambda: not any(map(is_busy, range(COUNT))), "programs may ask again")
    node.fill(*range(COUNT))
    node.bring(0)

    assert node.tally["packed_files"] == COUNT
    assert node.plain(0) == contents[0]
