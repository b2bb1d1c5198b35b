"""Promises of a loader over a store: tail latency, memory, faults and ranks."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from monarch.loader import Loader
from monarch.records import Records, open_records
from monarch.records.keys import KeyIndex
from monarch.records.stores.source import StoreSource, index_of
from support.fake_s3 import Act, FakeS3
from support.redis_servers import Redis, redis_server
from support.store_ranks import read_by_four

LOCAL = "127.0.0.1"
CHANCE = random.Random(5)
COUNT, BATCH = 480, 16
USUAL_S, LATE_S, AWAY_S = 0.06, 0.6, 5.0
VALUES, VALUE_BYTES = 64, 50_000
RECORDS, WINDOW = 4096, 512
MIB = 1 << 20


def made_objects() -> dict[str, bytes]:
    """Objects that name their numbers."""
    return {f"train/{n:04}": b"%04d" % n * 50 for n in range(COUNT)}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    """A bucket whose objects name their numbers."""
    pytest.importorskip("botocore")
    with FakeS3(made_objects()).served() as server:
        server.use(monkeypatch)
        yield server


@pytest.fixture
def server(tmp_path: Path, tool: Callable[[str], str]) -> Iterator[Redis]:
    """A server with some values."""
    tool("redis-server")
    with redis_server(tmp_path / "redis") as one:
        one.set({b"v%d" % n: CHANCE.randbytes(VALUE_BYTES) for n in range(VALUES)})
        yield one


def shared_values(server: Redis, count: int) -> Records:
    """Many Records, which take turns with the values of a server."""
    keys = [b"v%d" % (number % VALUES) for number in range(count)]
    index = KeyIndex.of(f"redis://{LOCAL}:{server.port}/0", keys, [VALUE_BYTES] * count)
    return Records(StoreSource(index_of(index)), True)


def read(loader: Loader, got: Callable[[], None] = lambda: None) -> list[int]:
    """The numbers of an epoch; each payload is the one of its number.

    Args:
        got: is called for each.
    """
    found: list[int] = []
    for batch in loader:
        for number, record in zip(batch.ids.tolist(), batch.records, strict=True):
            assert bytes(record) == b"%04d" % number * 50
            found.append(number)
            got()
    return found


def test_late_replies_cost_less_time_out_of_order(bucket: FakeS3) -> None:
    """5% of the replies take ten times as long; the window is four batches.

    On a busy machine other delays count as well: `scripts/bench` tells how much less.
    """
    bucket.act = lambda serial, key: Act(late_s=LATE_S if serial % 20 == 7 else USUAL_S)
    records = open_records("s3://bucket/train/")

    def seconds(*, in_order: bool) -> float:
        with Loader(records, BATCH, window=4 * BATCH, in_order=in_order) as loader:
            assert sorted(read(loader)) == list(range(COUNT))
            began_s = time.monotonic()
            assert sorted(read(loader)) == list(range(COUNT))
            return time.monotonic() - began_s

    ordered_s, free_s = seconds(in_order=True), seconds(in_order=False)

    assert ordered_s >= 1.2 * free_s, (ordered_s, free_s)


@pytest.mark.parametrize("in_order", [True, False])
def test_memory_is_bounded_by_requests_in_flight_and_two_batches(
    server: Redis, in_order: bool
) -> None:
    """Beyond 32 MB, also if the consumer is slow."""
    with Loader(shared_values(server, 2), 1, window=1) as little:
        next(iter(little))
        base = memory_of(little.stats()["reader_pid"])
    most = 0
    records = shared_values(server, RECORDS)
    with Loader(records, 64, window=WINDOW, in_order=in_order) as loader:
        for number, _ in enumerate(loader):
            time.sleep(0.02 if number < 30 else 0)
            most = max(most, memory_of(loader.stats()["reader_pid"]) - base)

    assert most <= WINDOW * VALUE_BYTES + 2 * 64 * VALUE_BYTES + 32 * MIB


def memory_of(pid: int) -> int:
    """The bytes of a process, those that it shares among them."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(found.split()[1]) * 1024


def test_an_epoch_survives_a_fifth_of_refusals(bucket: FakeS3) -> None:
    """503 for 20% of the requests during 5 s."""
    records = open_records("s3://bucket/train/")
    began_s = time.monotonic()
    chance = random.Random(1)

    def act(serial: int, key: str) -> Act:
        busy = time.monotonic() - began_s < 5 and chance.random() < 0.2
        return Act(503, "SlowDown") if busy else Act(late_s=USUAL_S)

    bucket.act = act
    with Loader(records, BATCH, window=64) as loader:
        while time.monotonic() - began_s < 5:
            assert sorted(read(loader)) == list(range(COUNT))
        gets = len(bucket.gets)
        again_s = time.monotonic()
        assert sorted(read(loader)) == list(range(COUNT))
        recovered_s = time.monotonic() - again_s
        stats = loader.stats()

    assert len(bucket.gets) - gets <= 2 * COUNT  # including read-ahead
    assert stats["retries"] <= 0.3 * stats["requests"]
    # At least as fast as 32 at a time, of the 64 in the window.
    assert recovered_s < 3 + COUNT / 32 * USUAL_S


def test_an_epoch_survives_an_unreachable_server(monkeypatch: Any) -> None:
    """It is away for 5 s: nothing is lost, and the rate comes back.

    A quiet machine goes on within 1 s, and has 0.9 of the rate; a busy one has more
    time.
    """
    pytest.importorskip("botocore")
    bucket = FakeS3(made_objects(), act=lambda serial, key: Act(late_s=USUAL_S))
    seen_s: list[float] = []
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(bucket.served())
        bucket.use(monkeypatch)
        outage = threading.Timer(3, away, [first, second, bucket])
        with Loader(open_records("s3://bucket/train/"), BATCH, window=64) as loader:
            read(loader)  # a store that has never answered is given up sooner
            began_s = time.monotonic()
            outage.start()
            while time.monotonic() - began_s < 3 + AWAY_S + 6:
                numbers = read(loader, lambda: seen_s.append(time.monotonic()))
                assert sorted(numbers) == list(range(COUNT))
        outage.join()

    stall_s, back_s = max((b - a, b) for a, b in pairwise(seen_s))
    usual = rate(seen_s, began_s + 1, began_s + 3)
    assert stall_s <= AWAY_S + 2
    assert rate(seen_s, back_s + 3, back_s + 5) >= 0.7 * usual


def away(first: ExitStack, second: ExitStack, bucket: FakeS3) -> None:
    """Ends a server, and starts it again."""
    first.close()
    time.sleep(AWAY_S)
    second.enter_context(bucket.served())


def rate(seen_s: list[float], begin_s: float, end_s: float) -> float:
    """How many a second came in a part of the time."""
    return sum(begin_s <= one < end_s for one in seen_s) / (end_s - begin_s)


def part_of(
    records: Records, place: tuple[int, int], state: Any, batches: int | None
) -> tuple[list[int], Any]:
    """What a rank of so many reads of an epoch from a state on, and its state then."""
    rank, ranks = place
    with Loader(
        *(records, 48 // ranks), seed=3, rank=rank, world_size=ranks, window=96
    ) as loader:
        if state is not None:
            loader.load_state_dict(state)
        some = [batch.ids.tolist() for batch in islice(loader, batches)]
        return [*chain.from_iterable(some)], loader.state_dict()


def test_an_epoch_resumes_twice_on_other_numbers_of_ranks(bucket: FakeS3) -> None:
    records = open_records("s3://bucket/train/")
    seen: list[int] = []
    state: Any = None
    for ranks, batches in ((1, 4), (3, 3), (2, None)):
        parts = [
            part_of(records, (rank, ranks), state, batches) for rank in range(ranks)
        ]
        seen += chain.from_iterable(ids for ids, _ in parts)
        state = parts[0][1]

    assert Counter(seen) == Counter(range(COUNT))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_ranks_that_are_forked_or_spawned_never_hang(
    server: Redis, start: str, soak_count: Callable[[int, int], int]
) -> None:
    stored = shared_values(server, 240)
    for _ in range(soak_count(3, 50)):
        ids, readers, clients = read_by_four(stored, start)

        assert len(readers) == 1
        assert ids == list(range(240))
        assert clients <= 8
