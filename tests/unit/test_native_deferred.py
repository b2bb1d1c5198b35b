"""Files that arrive plain from peers for a packed Tier: copy threads pack them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monarch import native
from monarch.codec import Codec
from monarch.native import CONSTANTS, DTYPES, OrderKind
from support.processes import wait_until
from unit.test_native_packed_peers import (  # noqa: F401
    KEYS,
    OWNER,
    Connect,
    connect,
)
from unit.test_native_packs import (  # noqa: F401
    MIB,
    Node,
    Wanted,
    make,
    text,
)
from unit.test_native_packs import pytestmark as needs_zstd

PACKED_S = 300.0
"""How long codecs may take on a busy machine."""
pytestmark = [needs_zstd, pytest.mark.timeout(2 * PACKED_S)]
SLOW = Codec.parse("zstd:19")
PLAIN = Wanted(Codec.parse("none"), tier_bytes=256 * MIB, pool_bytes=256 * MIB)
"""An owner whose frames the asker cannot use: it sends plain bytes."""
SLOW_BYTES = 3 * MIB
"""What SLOW takes a second or more for."""
WAITING_MAX = 32 * MIB
AHEAD_MAX = 16 * MIB
"""What may be under way when that is reached: see fill_fetch_room()."""


def begin_fetch(node: Node, files: range) -> None:
    """Let fill fetch Files, which takes long."""
    node.engine.fill(np.zeros(0, np.uint32), np.array(files, np.uint32))


def await_files(node: Node, files: range) -> None:
    """Be programs that wait for Files: threads that pack rest for nobody else."""
    head = DTYPES["requests"].itemsize
    segment: Any = node.job.board.requests
    requests = segment[:head].view(DTYPES["requests"])
    for file in files:
        requests["waiters"][0, file] = 1


def contents_of(slow: int, more: tuple[bytes, ...] = ()) -> list[bytes]:
    return [*(text(SLOW_BYTES, number) for number in range(slow)), *more]


@pytest.mark.parametrize("key", KEYS, ids=bool)
def test_demand_does_not_wait_for_the_codec_of_files_fetched_by_fill(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,  # noqa: F811
    key: bytes,
) -> None:
    contents = contents_of(6, (text(110_000, 9),))
    owner = make(contents, replace(PLAIN, key=key))
    owner.fill(*range(7))
    asker = make(contents, Wanted(SLOW, asks=OWNER, key=key))
    receiver = connect(asker, owner, key)

    begin_fetch(asker, range(6))
    wait_until(lambda: receiver.traffic()[OWNER].bytes > 0, "bytes come")
    asker.bring(6)

    assert asker.tally["packed_files"] <= 1
    assert asker.plain(6) == contents[6]
    await_files(asker, range(6))
    wait_until(lambda: asker.packed(*range(6)), "all are compressed", PACKED_S)
    asker.bring(3)
    assert asker.plain(3) == contents[3]
    assert asker.tally["peer_files"] == 7
    assert asker.tally["origin_read_bytes"] == 0


def test_awaited_files_are_compressed_first(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,  # noqa: F811
) -> None:
    contents = contents_of(8)
    owner = make(contents, PLAIN)
    owner.fill(*range(8))
    asker = make(contents, Wanted(SLOW, asks=OWNER))
    receiver = connect(asker, owner)

    begin_fetch(asker, range(8))
    wait_until(
        lambda: receiver.traffic()[OWNER].bytes >= sum(map(len, contents)), "all come"
    )
    await_files(asker, range(7, 8))
    wait_until(lambda: asker.packed(7), "the last one is packed", PACKED_S)

    assert asker.tally["packed_files"] <= 5
    await_files(asker, range(8))
    wait_until(lambda: asker.packed(*range(8)), "all are packed", PACKED_S)


def test_fill_fetches_no_more_than_threads_can_compress(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,  # noqa: F811
) -> None:
    count = 32
    contents = [text(SLOW_BYTES, 1)] * count
    owner = make(contents, PLAIN)
    owner.fill(*range(count))
    asker = make(contents, Wanted(SLOW, tier_bytes=256 * MIB, asks=OWNER))
    receiver = connect(asker, owner)

    begin_fetch(asker, range(count))
    wait_until(lambda: asker.tally["packed_files"] >= 1, "one is packed", PACKED_S)

    tally = asker.tally
    bound = WAITING_MAX + AHEAD_MAX + (tally["packed_files"] + 2) * SLOW_BYTES
    assert receiver.traffic()[OWNER].bytes <= bound < count * SLOW_BYTES


def test_file_that_is_written_meanwhile_is_not_packed(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,  # noqa: F811
) -> None:
    contents = contents_of(4)
    owner = make(contents, PLAIN)
    owner.fill(*range(4))
    asker = make(contents, Wanted(SLOW, asks=OWNER))
    receiver = connect(asker, owner)
    begin_fetch(asker, range(4))
    wait_until(
        lambda: receiver.traffic()[OWNER].bytes >= sum(map(len, contents)), "all come"
    )

    flags: Any = asker.job.board.flags
    flags[DTYPES["flags"].itemsize + 3] = CONSTANTS["MARKED_ALL"]

    wait_until(lambda: asker.packed(*range(3)), "the others are packed", PACKED_S)
    failed: list[native.Completion] = []

    def has_failed() -> bool:
        failed.extend(asker.engine.completions())
        return bool(failed)

    wait_until(has_failed, "Python hears of it")
    assert [(done.file, done.order.kind) for done in failed] == [
        (3, OrderKind.BACKGROUND)
    ]
    assert not asker.packed(3)
