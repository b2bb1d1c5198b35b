"""Packed Tiers of the native engine: frames decode to the packed bytes."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monarch import native
from monarch.codec import Codec
from monarch.native import (
    DTYPES,
    OrderKind,
    Packing,
    Reason,
    ReplicaState,
    Table,
    Verdict,
    codec_library,
)
from monarch.stager import Destination
from support.processes import wait_until
from support.stages import memory_directory
from unit.test_native_staging import Job, files_of, make_job, next_completions

PAGE, MIB = 4096, 1 << 20
TIER, POOL = 0, 1
NODES = 2
LARGE_BYTES = 8 * MIB
ZSTD = Codec.parse("zstd:3")
HEAD_BYTES = 40  # of a frame, before the lengths of its pieces
PACKED = (ReplicaState.ABSENT, 0, Reason.NONE)
READY = (ReplicaState.READY, POOL, Reason.NONE)

pytestmark = pytest.mark.skipif(codec_library(ZSTD) is None, reason="no libzstd")


@dataclass(frozen=True, slots=True)
class Node:
    """An engine with one packed Tier and a Pool."""

    job: Job
    table: Table
    engine: native.Engine

    def state(self, file: int) -> tuple[ReplicaState, int, Reason]:
        state, tier, reason = native.word_parts(int(self.job.states[file]))
        # For a ready Replica the field is its source.
        is_ready = state is ReplicaState.READY
        return state, tier, Reason.NONE if is_ready else reason

    def fill(self, *files: int) -> None:
        """Let fill stage Files, and wait until they are packed."""
        listed = np.array(files, np.uint32)
        self.engine.fill(listed, np.zeros(0, np.uint32))
        wait_until(lambda: self.packed(*files), "files are packed")

    def packed(self, *files: int) -> bool:
        return bool((self.table.packed()[list(files)] == TIER).all())

    def bring(self, *files: int) -> None:
        """Ask for Files as programs do, until they are in the Pool."""
        for file in files:
            self.engine.demand(file)
            wait_until(partial(self.is_ready, file), f"file {file}")

    def is_ready(self, file: int) -> bool:
        return self.state(file) == READY

    def plain(self, file: int) -> bytes:
        """The Replica in the Pool."""
        return self.replica(file).read_bytes()

    def replica(self, file: int) -> Path:
        return self.job.tier.parent / "pool" / self.job.replica(file).name

    def leave(self, file: int) -> None:
        """Remove a Replica from the Pool, as it is done for another one."""
        word = int(self.job.states[file])
        self.replica(file).unlink()
        absent = word & ~0xFFF
        assert native.state_change(self.job.states, file, word, absent, wake=False)
        self.table.remove(file, POOL)

    def is_idle(self) -> bool:
        return not any(self.engine.fill_left()) and not self.tally["in_flight"]

    @property
    def used_bytes(self) -> int:
        return self.table.account(TIER).used_bytes

    @property
    def rounded_bytes(self) -> int:
        """The bytes reserved for the last pages of its pack files."""
        return 4096 * sum(1 for path in self.segments if path.stat().st_size)

    @property
    def segments(self) -> list[Path]:
        return sorted(self.job.tier.glob("*.pack"))

    @property
    def tally(self) -> dict[str, int]:
        return self.table.tally()


@dataclass(frozen=True, slots=True)
class Wanted:
    codec: Codec = ZSTD
    ratio: float = 1.0
    tier_bytes: int = 64 * MIB
    pool_bytes: int = 64 * MIB
    dictionary: bytes = b""
    others: tuple[Packing, ...] = ()
    rules: tuple[int, ...] | None = None
    asks: int | None = None
    kept: bool = True
    key: bytes = b""
    retains: bool = False
    origin: Path | None = None
    last_pages: int = 0


def add_pool(job: Job) -> None:
    """Give the catalog of a job a Pool behind its Tier."""
    pool = job.tier.parent / "pool"
    pool.mkdir(mode=0o700)
    catalog: Any = job.board.catalog
    head = catalog[: DTYPES["catalog"].itemsize].view(DTYPES["catalog"])
    head["tier_count"] = 2
    head["tiers"]["path"][0, POOL] = os.fsencode(pool)
    head["tiers"]["dev"][0, POOL] = pool.stat().st_dev


def text(size: int, seed: int) -> bytes:
    """Bytes that shrink to a few parts of what they are."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, size, np.uint8).tobytes()


@pytest.fixture
def make() -> Iterator[Callable[..., Node]]:
    """A function that starts an engine with a packed Tier on tmpfs."""
    ended: list[Node] = []

    def start(contents: list[bytes], wanted: Wanted = Wanted()) -> Node:
        sizes = [len(content) for content in contents]
        (directory / str(len(ended))).mkdir()
        job = make_job(directory / str(len(ended)), sizes, contents, wanted.origin)
        add_pool(job)
        files = files_of(job, sizes)
        table = Table(files, 1, LARGE_BYTES)
        rows = np.zeros(int(files.first[-1]), native.TABLE_ROW)
        rows["destination"], rows["sources"] = Destination.TIER, native.NO_SOURCE
        if not wanted.kept:
            rows["destination"] = Destination.SPARE
        if wanted.asks is not None:
            rows["sources"][:, 0] = wanted.asks
        table.pack(TIER, wanted.ratio, wanted.last_pages)
        table.set_capacity(TIER, wanted.tier_bytes)
        table.set_capacity(POOL, wanted.pool_bytes)
        table.follow(rows, 0, NODES, uses_pool=not wanted.kept)
        for node in range(NODES):
            table.set_peer(node, usable=True, gone=False)
        rules = None if wanted.rules is None else np.array(wanted.rules, np.uint8)
        packing = Packing(TIER, wanted.codec, wanted.dictionary, 0, rules)
        packings = (packing, *wanted.others)
        seals = None
        if wanted.key:
            seals = native.Seals.make(wanted.key, len(job.options.digests), only=True)
        options = replace(job.options, table=table, packings=packings, seals=seals)
        options = replace(options, retains=wanted.retains)
        engine = native.Engine(job.board, options)
        ended.append(Node(job, table, engine))
        return ended[-1]

    with memory_directory() as directory:
        yield start
        for node in ended:
            node.engine.close()
            node.table.close()


# -- the same bytes come back ----------------------------------------------------------

CODECS = ["none", "lz4", "lz4hc:9", "zstd:3", "zstd:-5", "zstd:1+shuffle4"]
SIZES = [1, 2, 21, 4095, 110_000, MIB - 1, MIB, MIB + 1, 3 * MIB + 7, 8 * MIB]


@pytest.mark.parametrize("name", CODECS)
def test_files_that_fill_packs_are_decoded_as_they_were(
    make: Callable[..., Node], name: str
) -> None:
    contents = [text(size, size) for size in SIZES]
    contents += [os.urandom(size) for size in SIZES]
    node = make(contents, Wanted(Codec.parse(name)))
    files = range(len(contents))

    node.fill(*files)
    assert all(node.state(file) == PACKED for file in files)
    node.bring(*files)

    assert [node.plain(file) for file in files] == contents
    tally = node.tally
    assert tally["staged_files"] == tally["packed_files"] == len(contents)
    assert tally["unpacked_files"] == len(contents)
    assert tally["origin_read_bytes"] == sum(map(len, contents))
    sizes = sum(path.stat().st_size for path in node.segments)
    assert sizes == node.used_bytes == tally["stored_bytes"]
    wins = name != "none"
    assert (tally["stored_bytes"] < 0.8 * tally["packed_bytes"]) == wins


def test_file_that_does_not_shrink_takes_hardly_more(
    make: Callable[..., Node],
) -> None:
    contents = [os.urandom(100_000), os.urandom(8 * MIB), text(100_000, 1)]
    node = make(contents)

    node.fill(0, 1, 2)

    assert node.tally["raw_files"] == 2
    assert node.used_bytes < 1.01 * (8 * MIB + 100_000) + 40_000


def test_empty_and_large_files_are_files_of_their_own(
    make: Callable[..., Node],
) -> None:
    contents = [b"", text(8 * MIB + 1, 1), text(5000, 2)]
    node = make(contents)

    node.engine.fill(np.arange(3, dtype=np.uint32), np.zeros(0, np.uint32))
    wait_until(lambda: node.packed(2), "the small one is packed")
    ready = ReplicaState.READY, TIER, Reason.NONE
    wait_until(lambda: node.state(0) == node.state(1) == ready, "the others are ready")

    assert node.job.replica(1).read_bytes() == contents[1]
    assert node.table.packed().tolist() == [-1, -1, TIER]


def test_small_files_share_a_dictionary(make: Callable[..., Node]) -> None:
    import zstandard

    contents = [b'{"image": "n%08d.jpg", "label": %d}' % (n, n % 9) for n in range(600)]
    dictionary = zstandard.train_dictionary(2048, list(contents)).as_bytes()
    codec = Codec.parse("zstd:3+dict")
    files = range(len(contents))
    alone, shared = (
        make(contents),
        make(contents, Wanted(codec, 1, 64 * MIB, 64 * MIB, dictionary)),
    )

    alone.fill(*files)
    shared.fill(*files)
    shared.bring(*files)

    assert [shared.plain(file) for file in files] == contents
    assert shared.tally["raw_files"] < alone.tally["raw_files"]


# -- the Pool --------------------------------------------------------------------------


def test_program_gets_plain_bytes_first_and_the_file_is_packed_later(
    make: Callable[..., Node],
) -> None:
    contents = [text(100_000, 1)]
    node = make(contents)

    node.bring(0)
    assert node.plain(0) == contents[0]
    wait_until(lambda: node.packed(0), "it is packed")

    assert node.state(0) == READY
    assert node.tally["origin_read_bytes"] == len(contents[0])
    assert node.tally["transit_files"] == 1
    node.leave(0)
    node.bring(0)
    assert node.plain(0) == contents[0]
    assert node.tally["origin_read_bytes"] == len(contents[0])
    assert node.tally["unpacked_files"] == 1


def test_file_that_is_too_large_for_the_pool_is_not_packed(
    make: Callable[..., Node],
) -> None:
    node = make([text(100_000, 1)], Wanted(pool_bytes=200_000))

    node.engine.fill(np.zeros(1, np.uint32), np.zeros(0, np.uint32))
    wait_until(
        lambda: node.state(0) == (ReplicaState.READY, TIER, Reason.NONE), "it is ready"
    )

    assert not node.packed(0)


# -- room ------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.0, 4.0, 40.0])
def test_tier_holds_what_fits_compressed_and_not_more(
    make: Callable[..., Node], ratio: float
) -> None:
    contents = [text(100_000, n) for n in range(200)]
    budget = 2 * MIB
    node = make(contents, Wanted(ratio=ratio, tier_bytes=budget))

    crowded = -1
    while node.tally["crowded"] > crowded:  # frames have freed space meanwhile
        crowded = node.tally["crowded"]
        node.engine.fill(np.arange(200, dtype=np.uint32), np.zeros(0, np.uint32))
        wait_until(node.is_idle, "all were looked at")

    tally = node.tally
    true = tally["packed_bytes"] / tally["stored_bytes"]
    assert true > 3
    assert tally["packed_bytes"] >= 0.95 * true * budget
    assert node.used_bytes <= budget
    assert node.table.account(TIER).reserved_bytes == node.rounded_bytes
    on_disk = sum(path.stat().st_size for path in node.segments)
    assert on_disk <= budget * 1.01


# -- damage ----------------------------------------------------------------------------


def spoil(path: Path, offset: int, change: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(change)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "magic": lambda path: spoil(path, 0, b"XXXX"),
    "declared size": lambda path: spoil(path, 4, b"\xff\xff\xff\x7f"),
    "stored size": lambda path: spoil(path, 8, b"\x01\x00\x00\x00"),
    "codec": lambda path: spoil(path, 12, b"\x01"),
    "checksum": lambda path: spoil(path, 16, b"\x00" * 8),
    "name": lambda path: spoil(path, 24, b"\x00" * 16),
    "length of a piece": lambda path: spoil(path, HEAD_BYTES, b"\xff\xff\xff\xff"),
    "bytes": lambda path: spoil(path, HEAD_BYTES + 2000, b"\x55" * 64),
    "a truncated segment": lambda path: os.truncate(path, 500),
    "an empty segment": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_frame_is_dropped_and_the_origin_answers(
    make: Callable[..., Node], what: str
) -> None:
    contents = [text(100_000, 1)]
    node = make(contents)
    node.fill(0)

    DAMAGE[what](node.segments[0])
    node.engine.demand(0)
    wait_until(lambda: node.tally["frames_dropped"], "it is found")
    (done,) = next_completions(node.engine, 1)
    assert node.table.fail(done.order, Reason.NONE, promise=True)
    node.bring(0)

    assert node.plain(0) == contents[0]
    assert node.tally["origin_read_bytes"] == 2 * len(contents[0])


def test_frame_of_another_file_is_not_taken_for_it(make: Callable[..., Node]) -> None:
    contents = [text(50_000, 1), text(50_000, 2)]
    node = make(contents)
    node.fill(0, 1)
    segment = node.segments[0]
    frames = segment.read_bytes()
    half = frames.index(frames[:4], 4)

    segment.write_bytes(frames[half:] + frames[:half])
    node.engine.demand(0)

    wait_until(lambda: node.tally["frames_dropped"], "it is found")
    assert node.state(0) != READY


# -- which Tier ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rooms", "sizes", "tiers"),
    [
        # push_down: the first Tier with space, then the next, then none.
        ((3, 2), (1, 1, 1, 1, 1, 1), (0, 0, 0, 1, 1, None)),
        ((1, 4), (2, 1, 2, 1), (1, 0, 1, None)),
        # After the first file that does not fit, smaller ones are placed.
        ((2, 1), (1, 3, 1, 1), (0, None, 0, 1)),
        # first_level_only: only one Tier.
        ((3,), (1, 1, 1, 1), (0, 0, 0, None)),
        ((2,), (1, 3, 1, 1), (0, None, 0, None)),
    ],
)
def test_files_go_to_the_first_tier_that_has_room(
    tmp_path: Path,
    rooms: tuple[int, ...],
    sizes: tuple[int, ...],
    tiers: tuple[int | None, ...],
) -> None:
    job = make_job(tmp_path, [PAGE * size for size in sizes])
    files = files_of(job, [PAGE * size for size in sizes])
    rows = np.zeros(len(sizes), native.TABLE_ROW)
    rows["destination"], rows["sources"] = Destination.TIER, native.NO_SOURCE
    with Table(files, len(rooms), LARGE_BYTES) as table:
        table.follow(rows, 0, 1, uses_pool=False)
        for tier, room in enumerate(rooms):
            table.set_capacity(tier, PAGE * room)

        found: list[int | None] = []
        for file in range(len(sizes)):
            verdict, order = table.begin(file, OrderKind.BACKGROUND)
            found.append(order.tier if verdict is Verdict.BEGUN else None)

    assert tuple(found) == tiers


# -- memory ----------------------------------------------------------------------------


def test_needed_memory_is_freed_by_whole_segments(
    make: Callable[..., Node],
) -> None:
    contents = [os.urandom(MIB) for _ in range(40)]
    node = make(contents)
    node.fill(*range(40))
    assert len(node.segments) == 3

    freed = node.engine.drop_packed(TIER, 5 * MIB, Reason.MEMORY)

    gone = [file for file in range(40) if not node.packed(file)]
    assert freed >= 5 * MIB
    assert node.used_bytes == sum(path.stat().st_size for path in node.segments)
    assert all(node.state(file)[2] is Reason.MEMORY for file in gone)
    assert node.tally["evicted_packed_files"] == len(gone) == freed // MIB
    kept = next(file for file in range(40) if file not in gone)
    node.bring(kept)
    assert node.plain(kept) == contents[kept]
    assert node.engine.drop_packed(TIER, 1 << 40, Reason.MEMORY) > 0
    assert node.used_bytes == 0
    assert node.engine.drop_packed(TIER, 1, Reason.MEMORY) == 0
