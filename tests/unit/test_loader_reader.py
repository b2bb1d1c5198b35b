"""The reader of a node serves every rank, however little memory it has."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monarch.loader import LoaderError, loads, reader
from monarch.loader.buffers import new_memory
from monarch.loader.early import EarlyReads
from monarch.loader.link import ReaderLink
from monarch.loader.order import Batches, RecordOrder
from monarch.loader.portions import EVERYBODY, Key, Portions
from monarch.loader.reader import NodeReader
from monarch.loader.reading import Read
from monarch.loader.wire import VERSION, connect, listen
from monarch.records import open_records
from monarch.records.groups import group
from monarch.records.sources import FileSource
from support.loaders import numbered, write_tfrecord

COUNT: Final = 200
BUFFER: Final = 64 << 10
"""Of any of these portions: the least one."""
ROUNDS_MAX: Final = 3000
names = count()


class FakeReads:
    """Reads that end on command of a test, in any order."""

    is_full = False

    def __init__(self, *given: Any) -> None:
        self.open: list[Any] = []
        self.counts = SimpleNamespace()
        self._ended = given[-1]

    def start(self, owner: Any, ranges: Any, places: Any) -> None:
        self.open += [
            Read(one, place, owner, number)
            for number, (one, place) in enumerate(zip(ranges, places, strict=True))
        ]

    def submit(self, decode: Any, load: Any) -> None:
        self.open.append((decode, load))

    def count(self, size: int) -> None:
        """Count nothing."""

    def hedge(self) -> None:
        """Read nothing again."""

    def end(self, number: int, data: bytes) -> None:
        """End one of those that are open."""
        read = self.open.pop(number % len(self.open))
        if isinstance(read, tuple):
            read[0](read[1])
            return
        at = read.range.offset
        read.into[:] = data[at : at + read.range.length]
        read.into.release()
        self._ended([read])


class Rank:
    """A rank that goes from position to position, and holds a window of them."""

    def __init__(self, node: "Node", number: int, first: int) -> None:
        self._node = node
        self._link = ReaderLink(node.key, {"shuffle": "group"}, node.index, number)
        self._first = first
        self.has_batch = False
        self._need()

    @property
    def has_ended(self) -> bool:
        return self._first >= self._node.positions

    def _must(self) -> list[Key]:
        end = min(self._first + self._node.window, self._node.positions)
        return [Key(0, one, EVERYBODY) for one in range(self._first, end)]

    def _need(self) -> None:
        high = min(self._first + self._node.room, self._node.positions)
        self._link.need([[0, self._first, high, 0]])

    def act(self, rng: random.Random) -> None:
        """Advance by one step, if the awaited portion has arrived."""
        if self.has_ended:
            return
        if self.has_batch:
            self.has_batch = False
            self._first += rng.choice([1, 1, 2])
            self._need() if not self.has_ended else self.leave()
            return
        keys = self._must()
        rows = dict.fromkeys(keys, np.empty(0, np.int64))
        try:
            self._link.wait(lambda: self._are_there(keys), rows, 0, may_yield=True)
        except LoaderError as error:
            if "nothing was read" not in str(error):
                raise
            return
        self.has_batch = True

    def _are_there(self, keys: list[Key]) -> bool:
        parts = [self._link.part(key) for key in keys]
        return all(part is not None and part.done.all() for part in parts)

    def check(self) -> None:
        """What it was told of, and needs, is still what it was told."""
        if self.has_ended:
            return
        high = min(self._first + self._node.room, self._node.positions)
        for position in range(self._first, high):
            key = Key(0, position, EVERYBODY)
            part = self._link.part(key)
            if part is None:
                continue
            rows = part.table[part.are_ready(np.arange(len(part.table)))]
            records = self._node.portions.find(key).records
            records = records[part.are_ready(np.arange(len(part.table)))]
            for start, record in zip(rows["start"].tolist(), records, strict=True):
                found = int.from_bytes(part.view[start : start + 8], "little")
                assert found == record, f"position {position} was overwritten"

    def leave(self) -> None:
        self._first = self._node.positions
        self._link.close()


class Node:
    """A reader, with what it reads and its ranks, in one process."""

    def __init__(
        self, path: str, data: bytes, window: int, memory: int, starter_offers: bool
    ) -> None:
        self.index = open_records(path).index
        self.key = f"test-{id(self)}-{next(names)}"
        groups = group(self.index, 8000)
        order = RecordOrder(groups, shuffle="group", window=window)
        self.portions = Portions(order, Batches(COUNT, 1))
        self.positions = len(groups)
        self.window, self.room = window, memory
        self._data = data
        self._listener = listen(self.key)
        assert self._listener is not None
        self._listener.setblocking(False)
        given = {"threads": 1, "token_server": None, "readers_max": None}
        given["memory_limit"] = memory * BUFFER
        given["starter_offers"] = starter_offers
        source = FileSource(self.index)
        self._reader = NodeReader(self._listener, self.portions, source, given)
        reads: Any = self._reader._readers
        self._reads: FakeReads = reads
        self._reader._loads._decoders = reads
        self.ranks: list[Rank] = []

    def join(self, first: int) -> None:
        """Add a rank that begins at a position."""
        self.ranks.append(Rank(self, len(self.ranks), first))

    def step(self, rng: random.Random) -> None:
        """Let a part of the node do something."""
        what = rng.randrange(3)
        if what == 0:
            self.turn()
        elif what == 1 and self._reads.open:
            self._reads.end(rng.randrange(1000), self._data)
        elif self.ranks:
            rng.choice(self.ranks).act(rng)
        self._check()

    def turn(self) -> None:
        self._reader.turn(0)

    @property
    def held_bytes(self) -> int:
        """The bytes of all buffers."""
        return self._reader._pool.bytes

    @property
    def reads(self) -> bool:
        """Whether something is being read or decoded."""
        return bool(self._reads.open)

    @property
    def read_offsets(self) -> set[int]:
        """Where the reads begin that have not ended."""
        return {read.range.offset for read in self._reads.open}

    def end_all(self) -> None:
        """End all reads."""
        while self.reads:
            self._reads.end(0, self._data)

    def round(self, rng: random.Random) -> None:
        """Let every part do something."""
        while self._reads.open and rng.random() < 0.9:
            self._reads.end(rng.randrange(1000), self._data)
        self.turn()
        for rank in self.ranks:
            rank.act(rng)
        self._check()

    def _check(self) -> None:
        pool = self._reader._pool
        assert max(pool.bytes, pool.peak) <= pool.limit
        for rank in self.ranks:
            rank.check()

    def close(self) -> None:
        for rank in self.ranks:
            rank.leave()
        reader, self._reads.open = self._reader, []
        for member in reader._members.values():
            member.channel.close()
        for one in (self._listener, reader._woken, reader._wake, reader._select):
            if one is not None:
                one.close()
        held = [load.buffer for load in reader._loads._loads.values()]
        for buffer in (*held, *reader._pool._free):
            if buffer is not None:
                os.close(buffer.fd)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Records that are read in place, and some that are decoded."""
    folder: Path = tmp_path_factory.mktemp("packed")
    write_tfrecord(folder / "some.tfrecord", numbered(COUNT))
    rows = np.random.default_rng(0).integers(0, 256, (COUNT, 1000), np.uint8)
    rows[:, :8] = np.arange(COUNT, dtype="<u8")[:, None].view(np.uint8)
    with h5py.File(folder / "some.h5", "w") as file:
        file.create_dataset("rows", data=rows, chunks=(5, 1000), compression="gzip")
    return {
        "read": str(folder / "some.tfrecord"),
        "decoded": f"{folder / 'some.h5'}::/rows",
    }


@contextmanager
def node(
    path: str, window: int, memory: int, starter_offers: bool = False
) -> Iterator[Node]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "Readers", FakeReads)
        data = b"" if "::" in path else Path(path).read_bytes()
        one = Node(path, data, window, memory, starter_offers)
        try:
            yield one
        finally:
            one.close()


def offered(one: Node, key: Key, size: int | None = None) -> None:
    """The first rank offers a portion that it has read, or memory of another size."""
    source = FileSource(one.index)
    portion = EarlyReads(one.portions, source)._read_whole(key, one.portions.find(key))
    source.close()
    fd = portion.fd
    assert fd is not None
    if size is not None:
        os.close(fd)
        fd = new_memory(size)
    one.ranks[0]._link._say("offer", key, portion.sizes, fds=(fd,))
    os.close(fd)
    one.turn()
    one.turn()


def test_a_portion_offered_by_a_rank_is_not_read_but_passed_to_others(
    packed: dict[str, str],
) -> None:
    rng = random.Random(0)
    with node(packed["read"], 1, 1) as one:
        one.join(0)
        offered(one, Key(0, 0, EVERYBODY))
        assert not one.reads
        assert one.held_bytes == BUFFER

        one.join(0)
        one.turn()
        one.turn()
        other = one.ranks[1]
        other.act(rng)
        other.check()
        assert other.has_batch


@contextmanager
def node_that_is_being_started(path: str) -> Iterator[Node]:
    """A rank has come, but not the one that has started the reader, which waits."""
    with node(path, 1, 4, starter_offers=True) as one:
        one.join(0)
        one.turn()
        one.turn()
        assert not one.reads
        yield one


def test_offers_of_the_starting_rank_are_not_read_for_an_earlier_rank(
    packed: dict[str, str],
) -> None:
    with node_that_is_being_started(packed["read"]) as one:
        starter = connect(one.key, 1.0)
        assert starter is not None
        starter.send("hello", VERSION, 1, True)
        one.turn()
        offered(one, Key(0, 0, EVERYBODY))
        assert not one.reads
        starter.send("go")
        one.turn()
        assert one.read_offsets == {
            part.offset
            for position in range(1, 4)
            for part in one.portions.find(Key(0, position, EVERYBODY))
            .requests()
            .ranges()
        }
        starter.close()


def test_a_reader_does_not_wait_long_for_a_missing_starting_rank(
    packed: dict[str, str],
) -> None:
    with node_that_is_being_started(packed["read"]) as one:
        time.sleep(reader._OFFERS_S)
        one.turn()
        assert one.reads


@pytest.mark.parametrize("pages", [1, 64])
def test_memory_of_a_wrong_size_is_rejected(packed: dict[str, str], pages: int) -> None:
    with node(packed["read"], 1, 4) as one:
        one.join(0)
        offered(one, Key(0, 2, EVERYBODY), pages * 4096)

        assert one.reads
        assert one.held_bytes == 4 * BUFFER


def test_offers_beyond_the_memory_are_refused(packed: dict[str, str]) -> None:
    with node(packed["read"], 1, 1) as one:
        one.join(0)
        one.turn()
        one.turn()
        assert one.reads
        offered(one, Key(0, 1, EVERYBODY))

        assert one.held_bytes == BUFFER


@pytest.mark.parametrize("kind", ["read", "decoded"])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    window=st.integers(1, 4),
    more=st.integers(1, 6),
    firsts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    steps=st.integers(0, 300),
    rng=st.randoms(use_true_random=False),
)
def test_no_rank_starves_and_no_memory_is_used_again_too_early(
    packed: dict[str, str],
    kind: str,
    window: int,
    more: int,
    firsts: list[int],
    steps: int,
    rng: random.Random,
) -> None:
    with node(packed[kind], window, window + more) as one:
        waiting = [first % one.positions for first in firsts]
        for _ in range(steps):
            if waiting and rng.random() < 0.05:
                one.join(waiting.pop())
            if one.ranks and rng.random() < 0.002:
                rng.choice(one.ranks).leave()
            one.step(rng)
        for first in waiting:
            one.join(first)
        for _ in range(ROUNDS_MAX):
            if all(rank.has_ended for rank in one.ranks):
                return
            one.round(rng)
    raise AssertionError(f"ranks starve: {[rank._first for rank in one.ranks]}")


def test_an_exception_of_a_library_is_reported(
    packed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> Any:
        raise ValueError("no such filter")

    monkeypatch.setattr(loads, "UnitDecoder", broken)
    rng = random.Random(0)

    with node(packed["decoded"], 1, 2) as one:
        one.join(0)
        while not one.reads:
            one.turn()
        one.end_all()
        one.turn()
        with pytest.raises(LoaderError, match=r"record \d+: .*no such filter"):
            one.ranks[0].act(rng)
