"""Transfers into packed Tiers that do not end well: their room comes back once, and
what their medium has told reaches Python."""

# ruff: noqa: F811

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from monarch.codec import Codec
from monarch.native import (
    NO_PEER,
    Completion,
    Order,
    OrderKind,
    Reason,
    ReplicaState,
    Step,
    codec_library,
)
from support.processes import wait_until
from unit.test_native_packed_peers import Connect, connect  # noqa: F401
from unit.test_native_packs import (  # noqa: F401
    MIB,
    POOL,
    TIER,
    ZSTD,
    Node,
    Wanted,
    make,
    text,
)
from unit.test_native_staging import next_completions

Make = Callable[..., Node]
NONE = Codec.parse("none")

pytestmark = pytest.mark.skipif(codec_library(ZSTD) is None, reason="no libzstd")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file grows beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def rooms(node: Node) -> tuple[int, int]:
    account = node.table.account(TIER)
    return account.used_bytes, account.reserved_bytes


def test_file_given_up_while_it_was_packed_frees_its_room_once(
    make: Make,
) -> None:
    """Its generation has passed when the frame is written: the frame is none."""
    # The frame is larger than expected.
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
    assert rooms(node) == (node.tally["stored_bytes"], node.rounded_bytes)


def full(done: Completion) -> bool:
    return (done.tier, done.step, done.status) == (TIER, Step.WRITE, -errno.EFBIG)


def test_full_medium_is_reported_by_a_file_that_arrived_packed_into_the_pool(
    make: Make, connect: Connect
) -> None:
    """A program has its bytes; the frame, which nothing waits for, is not kept."""
    contents = [os.urandom(400_000), os.urandom(50_000)]
    owner = make(contents, Wanted(NONE))
    owner.fill(0, 1)
    asker = make(contents, Wanted(NONE, asks=1))
    connect(asker, owner)
    asker.bring(0)
    wait_until(lambda: asker.packed(0), "the first one is kept")
    before = rooms(asker)

    with files_of_at_most(asker.segments[0].stat().st_size):
        asker.bring(1)
        (done,) = next_completions(asker.engine, 1)

    assert full(done)
    assert done.alone
    assert asker.plain(1) == contents[1]
    assert not asker.packed(1)
    assert rooms(asker) == before
    assert asker.tally["came_packed_files"] == 2


def test_unreadable_frame_is_reported_for_its_tier(make: Make) -> None:
    """Its File is read from the origin; the Pool that receives it is not to blame."""
    content = text(100_000, 1)
    node = make([content], Wanted(NONE))
    node.fill(0)
    place = node.segments[0]
    with replaced_by_directory(node, str(place)):
        node.engine.demand(0)
        found = next_completions(node.engine, 2)

    tiers = {done.tier: done.status for done in found}
    assert tiers == {TIER: -errno.EISDIR, POOL: -errno.EBADMSG}
    assert [done.tier for done in found if done.alone] == [TIER]


@contextmanager
def replaced_by_directory(node: Node, path: str) -> Iterator[None]:
    """The descriptor of a pack file is one of a directory: reading it is an error."""
    (number,) = (
        int(name)
        for name in os.listdir("/proc/self/fd")
        if os.path.realpath(f"/proc/self/fd/{name}") == os.path.realpath(path)
    )
    kept, folder = os.dup(number), os.open(node.job.tier, os.O_RDONLY)
    os.dup2(folder, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)
        os.close(folder)
