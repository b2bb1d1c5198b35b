"""Transfers into packed Tiers that do not end well: their room comes back once."""

# ruff: noqa: F811

import errno
from collections.abc import Callable

import numpy as np
import pytest

from monarch.codec import Codec
from monarch.native import (
    NO_PEER,
    Order,
    OrderKind,
    Reason,
    ReplicaState,
    codec_library,
)
from support.processes import wait_until
from unit.test_native_packs import (  # noqa: F401
    MIB,
    TIER,
    ZSTD,
    Node,
    Wanted,
    make,
    text,
)
from unit.test_native_staging import next_completions

Make = Callable[..., Node]

pytestmark = pytest.mark.skipif(codec_library(ZSTD) is None, reason="no libzstd")


def rooms(node: Node) -> tuple[int, int]:
    account = node.table.account(TIER)
    return account.used_bytes, account.reserved_bytes


def test_file_that_was_given_up_while_it_was_packed_gives_its_room_back_once(
    make: Make,
) -> None:
    """Its generation has passed when the frame is written: the frame is none."""
    # The frame is larger than what is expected of it.
    node = make([text(2 * MIB, 1)], Wanted(Codec.parse("zstd:15"), ratio=40.0))
    listed = np.zeros(1, np.uint32)
    node.engine.fill(listed, np.zeros(0, np.uint32))
    wait_until(lambda: node.state(0)[0] is ReplicaState.STAGING, "it has begun")
    word = int(node.job.states[0])

    order = Order(0, TIER, OrderKind.BACKGROUND, NO_PEER, word)
    assert node.table.fail(order, Reason.NONE, promise=True)
    (done,) = next_completions(node.engine, 1)

    assert done.status == -errno.ECANCELED
    assert rooms(node) == (0, 0)
    assert sum(path.stat().st_size for path in node.segments) == 0
    assert node.tally["packed_files"] == node.tally["in_flight"] == 0
    node.fill(0)
    assert rooms(node) == (node.tally["stored_bytes"], 0)
