"""Room of unneeded frames is freed, and nothing else is lost."""

# ruff: noqa: F811

import os
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from monarch import native
from monarch.codec import Codec
from monarch.native import Reason, codec_library
from support.processes import wait_until
from unit.test_native_packs import (  # noqa: F401
    MIB,
    TIER,
    ZSTD,
    Node,
    Wanted,
    make,
    spoil,
    text,
)

PAGE = 4096
NONE = Codec.parse("none")
Make = Callable[..., Node]

pytestmark = pytest.mark.skipif(codec_library(ZSTD) is None, reason="no libzstd")


def write(node: Node, *files: int) -> None:
    """Mark Files *written*, as the Shim does."""
    flags: Any = node.job.board.flags
    for file in files:
        flags[native.DTYPES["flags"].itemsize + file] = 1


def on_disk(node: Node) -> int:
    return sum(path.stat().st_blocks * 512 for path in node.segments)


def agrees(node: Node) -> bool:
    """What the Tier uses is what the medium holds, but for whole pages."""
    parts = sum(1 for path in node.segments if path.stat().st_size)
    return abs(on_disk(node) - node.used_bytes) <= 0.01 * on_disk(node) + parts * PAGE


def gone(node: Node, files: list[int]) -> bool:
    return bool((node.table.packed()[files] < 0).all())


def test_frames_of_written_files_are_freed_and_the_others_compacted(
    make: Make,
) -> None:
    contents = [random.Random(n).randbytes(3_000 + n) for n in range(600)]
    node = make(contents, Wanted(NONE))
    node.fill(*range(600))
    before = node.used_bytes
    kept = [file for file in range(600) if file % 3 == 0]
    written = [file for file in range(600) if file % 3]

    write(node, *written)
    wait_until(lambda: node.tally["compacted_segments"] > 0, "it is compacted")

    stored = sum(len(contents[file]) + 44 for file in kept)
    wait_until(lambda: node.used_bytes == stored < before / 2, "all is given back")
    assert agrees(node)
    assert gone(node, written)
    assert node.tally["compacted_bytes"] == stored
    node.bring(*kept)
    assert all(node.plain(file) == contents[file] for file in kept)
    assert node.tally["frames_dropped"] == 0
    assert node.tally["origin_read_bytes"] == sum(map(len, contents))


def test_segment_without_any_frame_is_empty_at_once(make: Make) -> None:
    contents = [os.urandom(MIB) for _ in range(20)]
    node = make(contents)
    node.fill(*range(20))
    assert len(node.segments) == 2

    write(node, *range(20))
    wait_until(lambda: node.used_bytes == 0, "all is given back")

    assert on_disk(node) == 0
    assert node.tally["compacted_bytes"] == 0


def test_pages_of_dead_frames_are_freed_before_compaction(
    make: Make,
) -> None:
    contents = [os.urandom(100_000) for _ in range(50)]
    node = make(contents, Wanted(NONE))
    node.fill(*range(50))
    before = node.used_bytes

    write(node, 10, 11)  # less than a quarter: nothing is copied
    wait_until(lambda: gone(node, [10, 11]), "they are forgotten")

    assert before - node.used_bytes >= 2 * 100_000 - 2 * PAGE
    assert agrees(node)
    assert node.tally["compacted_bytes"] == 0


def test_damaged_frame_is_not_copied(make: Make) -> None:
    contents = [random.Random(n).randbytes(50_000) for n in range(40)]
    node = make(contents, Wanted(NONE))
    node.fill(*range(40))
    spoil(node.segments[0], 30 * 50_044, b"XXXX")
    (damaged,) = _frames_at(node, 30 * 50_044)

    write(node, *(file for file in range(40) if file % 2 and file != damaged))
    wait_until(lambda: node.tally["compacted_segments"] > 0, "it is compacted")

    assert node.tally["frames_dropped"] == 1
    assert gone(node, [damaged])


def _frames_at(node: Node, offset: int) -> list[int]:
    with open(node.segments[0], "rb") as file:
        file.seek(offset + 24)
        name = file.read(16).hex()
    return [n for n in range(40) if node.job.replica(n).name == name]


@dataclass
class Model:
    """What was done to a node; its account must follow."""

    node: Node
    contents: list[bytes]
    rng: random.Random
    filled: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    def some(self, count: int) -> set[int]:
        return set(self.rng.sample(range(len(self.contents)), count))

    def fill(self) -> None:
        new = sorted(self.some(40) - self.filled - self.written)
        self.filled |= set(new)
        listed = np.array(new, np.uint32)
        self.node.engine.fill(listed, np.zeros(0, np.uint32))
        wait_until(lambda: not _absent(self.node, new), "they are packed")

    def write(self) -> None:
        new = self.some(30)
        self.written |= new
        write(self.node, *new)
        wait_until(lambda: gone(self.node, sorted(self.written)), "they are forgotten")

    def read(self) -> None:
        held = np.flatnonzero(self.node.table.packed() == TIER).tolist()
        for file in self.rng.sample(held, min(5, len(held))):
            if not self.node.is_ready(file):
                self.node.bring(file)
            assert self.node.plain(file) == self.contents[file]


@pytest.mark.parametrize("seed", [1, 7])
def test_random_operations_keep_the_account_true(make: Make, seed: int) -> None:
    rng = random.Random(seed)
    contents = [
        random.Random(n).randbytes(rng.randrange(1, 60_000)) for n in range(400)
    ]
    model = Model(make(contents, Wanted(NONE, tier_bytes=128 * MIB)), contents, rng)

    for _ in range(25):
        rng.choice([model.fill, model.fill, model.write, model.read])()
        wait_until(lambda: agrees(model.node), "account and medium agree")

    held = np.flatnonzero(model.node.table.packed() == TIER).tolist()
    write(model.node, *held[::2], *held[1::4])
    wait_until(lambda: model.node.tally["compacted_bytes"] > 0, "it is compacted")
    wait_until(lambda: agrees(model.node), "account and medium agree")
    assert model.node.tally["frames_dropped"] == 0
    account = model.node.table.account(TIER)
    assert account.reserved_bytes == model.node.rounded_bytes
    model.node.engine.drop_packed(TIER, 1 << 40, Reason.MEMORY)
    assert model.node.used_bytes == on_disk(model.node) == 0


def _absent(node: Node, files: list[int]) -> list[int]:
    packed = node.table.packed()
    return [
        file
        for file in files
        if packed[file] < 0 and node.state(file)[2] is Reason.NONE
    ]


def test_medium_that_is_full_loses_nothing(make: Make) -> None:
    contents = [random.Random(n).randbytes(50_000) for n in range(40)]
    node = make(contents, Wanted(NONE))
    node.fill(*range(40))
    kept = list(range(0, 40, 2))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        write(node, *range(1, 40, 2))
        # The new segment, in which no frame fits.
        wait_until(lambda: len(node.segments) == 2, "it is tried")
        time.sleep(0.5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert node.tally["compacted_bytes"] == 0
    assert node.segments[1].stat().st_size == 0
    assert node.packed(*kept)
    assert agrees(node)
    write(node, 0)  # another frame dies: it is tried again
    wait_until(lambda: node.tally["compacted_segments"] > 0, "it is compacted")
    node.bring(*kept[1:])
    assert all(node.plain(file) == contents[file] for file in kept[1:])
    assert node.tally["frames_dropped"] == 0


def test_tier_whose_room_was_taken_away_loses_nothing(
    make: Make,
) -> None:
    contents = [random.Random(n).randbytes(50_000) for n in range(40)]
    node = make(contents, Wanted(NONE))
    node.fill(*range(40))
    node.table.set_capacity(TIER, 1)

    write(node, *range(1, 40, 2))
    wait_until(lambda: gone(node, list(range(1, 40, 2))), "they are forgotten")
    time.sleep(0.5)

    assert node.tally["compacted_bytes"] == 0
    assert node.packed(*range(0, 40, 2))
    assert agrees(node)


def test_tier_out_of_service_serves_no_frames(make: Callable[..., Node]) -> None:
    """Its medium may hang; its files are read from elsewhere."""
    node = make([text(300_000, number) for number in range(3)])
    node.fill(0, 1, 2)

    assert node.table.retire(TIER)

    assert (node.table.packed() < 0).all()
    node.engine.demand(1)
    wait_until(lambda: not node.tally["in_flight"], "it has ended")
    assert node.tally["unpacked_files"] == 0
