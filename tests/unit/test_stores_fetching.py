"""The thread that fetches from a store: all Records right, whatever the store does."""

import queue
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from monarch.records.stores import fetching
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.connection import Endpoint
from monarch.records.stores.exchange import Exchange, Failure, Fault, Wanted
from monarch.records.stores.fetching import ATTEMPTS_MAX, Fetcher
from monarch.records.stores.redis import RedisWay
from monarch.records.stores.resp import RespExchange
from monarch.records.stores.ways import Fetch, Way
from monarch.records.stores.window import Window
from support.fake_stores import Act, FakeRedis

NO_LIMIT = 1 << 40
LIMIT_S = 20.0
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"


@dataclass
class Servers:
    """A store of some fake servers."""

    servers: Sequence[FakeRedis]
    connections_max: int = 4
    name: str = "redis://test"
    checks: bool = False
    has_copies: bool = True
    password: str = ""
    capacity: int = 1024
    learned: list[Failure] = field(default_factory=list)

    def endpoints(self, key: bytes) -> list[Endpoint]:
        """All of them, the first one best."""
        return [Endpoint("127.0.0.1", server.port) for server in self.servers]

    def begin(self, endpoint: Endpoint) -> Callable[[Endpoint], Exchange]:
        """Begins with the password."""
        return lambda _: RespExchange(password=self.password, capacity=self.capacity)

    def moved(self, failure: Failure, *, is_away: bool) -> Endpoint | None:
        """By the port that the error names."""
        self.learned.append(failure)
        return Endpoint("127.0.0.1", int(failure.target.rpartition(":")[2]))

    def advice(self, fault: Fault) -> str:
        """What to do."""
        return "set MONARCH_STORE_PASSWORD_FILE" if fault is Fault.DENIED else ""


def values_of(count: int, size: int = 500) -> dict[bytes, bytes]:
    """Some values by their keys."""
    chance = random.Random(count)
    return {b"key%d" % n: chance.randbytes(size + n % 7) for n in range(count)}


def put_into(ended: "queue.SimpleQueue[Fetch]") -> Callable[[list[Fetch]], None]:
    """Puts ended requests into a queue."""

    def put(fetches: list[Fetch]) -> None:
        for one in fetches:
            ended.put(one)

    return put


@contextmanager
def fetching_from(
    way: Way, window: Window | None = None
) -> Iterator[tuple[Fetcher, Callable[[dict[bytes, bytes]], list[str]]]]:
    """A fetcher, and a function that fetches values and returns errors."""
    ended: queue.SimpleQueue[Fetch] = queue.SimpleQueue()
    fetcher = Fetcher(way, window or Window(32, 256, NO_LIMIT), put_into(ended))

    def fetch(values: dict[bytes, bytes]) -> list[str]:
        places = {key: memoryview(bytearray(len(v))) for key, v in values.items()}
        fetcher.start(
            [
                Fetch(Wanted(key, 0, len(place)), place, key)
                for key, place in places.items()
            ]
        )
        errors: dict[bytes, str] = {}
        for _ in values:
            one = ended.get(timeout=LIMIT_S)
            assert one.found is None
            if one.error is not None:
                errors[one.owner] = str(one.error)
        for key, place in places.items():
            assert key in errors or bytes(place) == values[key], key
        return [errors[key] for key in values if key in errors]

    try:
        yield fetcher, fetch
    finally:
        fetcher.close()


def test_all_values_arrive_in_the_order_of_requests() -> None:
    values = values_of(2000)
    with (
        FakeRedis(values).served() as server,
        fetching_from(Servers([server])) as (
            fetcher,
            fetch,
        ),
    ):
        assert fetch(values) == []

        assert set(server.requests) == set(values)
        # A busy machine sends late requests twice.
        assert len(server.requests) <= 2000 + fetcher.hedges
        assert server.connections <= 4
        assert fetcher.counts.requests == 2000
        assert fetcher.counts.bytes == sum(map(len, values.values()))
        assert fetcher.counts.retries == 0


def test_requests_are_sent_in_order_on_one_connection() -> None:
    values = values_of(500)
    way = Servers([FakeRedis(values)], connections_max=1)
    with way.servers[0].served() as server, fetching_from(way) as (_, fetch):
        assert fetch(values) == []

        assert server.requests == [*values]


def test_a_long_way_is_filled_by_the_window() -> None:
    """Each connection has its delay: 400 requests by turns of one would take 20 s."""
    values = values_of(400)
    with (
        FakeRedis(values, delay_s=0.05).served() as server,
        fetching_from(Servers([server])) as (fetcher, fetch),
    ):
        began_s = time.monotonic()
        assert fetch(values) == []

        assert time.monotonic() - began_s < 2
        assert 32 < fetcher.counts.most_in_flight <= 256


def test_values_without_a_place_are_returned_to_the_caller() -> None:
    values = values_of(3)
    ended: queue.SimpleQueue[Fetch] = queue.SimpleQueue()

    with FakeRedis(values).served() as server:
        way = Servers([server])
        fetcher = Fetcher(way, Window(8, 8, NO_LIMIT), put_into(ended))
        fetcher.start([Fetch(Wanted(key), None) for key in values])
        found = [bytes(ended.get(timeout=LIMIT_S).found or b"") for _ in values]
        fetcher.close()

    assert sorted(found) == sorted(values.values())


@pytest.mark.parametrize(
    "act",
    [
        Act(line=LOADING),
        Act(resets=0),
        Act(resets=3),
        Act(resets=200),
        Act(line=b"nonsense\r\n"),
    ],
    ids=["loading", "reset", "half a head", "half a value", "nonsense"],
)
def test_temporary_failures_are_retried(act: Act) -> None:
    values = values_of(300)

    def sometimes(serial: int, key: bytes) -> Act | None:
        return act if serial % 97 == 40 and serial < 600 else None

    with (
        FakeRedis(values, act=sometimes).served() as server,
        fetching_from(Servers([server])) as (fetcher, fetch),
    ):
        assert fetch(values) == []

        assert fetcher.counts.retries > 0
        assert fetcher.at_once < 256


def test_a_store_that_never_answers_well_fails_each_request_by_name() -> None:
    values = values_of(3)
    broken = FakeRedis(values, act=lambda serial, key: Act(resets=3))
    with broken.served() as server, fetching_from(Servers([server])) as (_, fetch):
        errors = fetch(values)

        assert len(errors) == 3
        assert all(
            f"key{n}" in text and f"{ATTEMPTS_MAX} attempts" in text
            for n, text in enumerate(errors)
        )


def test_a_store_that_is_not_ready_is_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = values_of(3)
    ready_s = time.monotonic() + 1.5

    def late(serial: int, key: bytes) -> Act | None:
        return Act(line=LOADING) if time.monotonic() < ready_s else None

    loading = FakeRedis(values, act=late)
    with loading.served() as server, fetching_from(Servers([server])) as (_, fetch):
        assert fetch(values) == []
        assert len(server.requests) > ATTEMPTS_MAX

    monkeypatch.setattr(fetching, "DOWN_S", 0.5)
    stuck = FakeRedis(values, act=lambda serial, key: Act(line=LOADING))
    with stuck.served() as server, fetching_from(Servers([server])) as (_, fetch):
        errors = fetch(values)
    assert all(f"key{n}" in text and "LOADING" in text for n, text in enumerate(errors))


def test_a_fault_of_the_thread_ends_all_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = values_of(20)
    with FakeRedis(values).served() as server:
        way = Servers([server])
        with fetching_from(way) as (_, fetch):
            assert fetch(values) == []
            monkeypatch.setattr(way, "endpoints", lambda key: 1 / 0)
            errors = fetch(values)
            assert len(errors) == 20
            assert all("ZeroDivisionError" in text for text in errors)
            assert len(fetch(values)) == 20


def test_a_missing_reply_is_requested_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "CONNECT_S", 0.3)
    values = values_of(40)
    stuck = FakeRedis(values, act=lambda serial, key: Act(stalls=True))
    good = FakeRedis(values)
    way = Servers([stuck, good])
    with stuck.served(), good.served(), fetching_from(way) as (fetcher, fetch):
        assert fetch(values) == []

        assert fetcher.counts.late > 0
        assert len(good.requests) == len(values)


def test_a_late_reply_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of the first request belongs to the second by then."""
    monkeypatch.setattr(fetching, "CONNECT_S", 0.2)
    values = values_of(20)
    late = FakeRedis(
        {key: bytes(len(value)) for key, value in values.items()},
        act=lambda serial, key: Act(late_s=0.6),
    )
    good = FakeRedis(values)
    with (
        late.served(),
        good.served(),
        fetching_from(Servers([late, good])) as (_, fetch),
    ):
        assert fetch(values) == []
        time.sleep(0.7)
        assert fetch(values) == []


def test_missing_and_changed_values_fail_alone() -> None:
    values = values_of(10)
    there = {**values, b"key3": b"of another length"}
    del there[b"key5"]
    with (
        FakeRedis(there).served() as server,
        fetching_from(Servers([server])) as (
            fetcher,
            fetch,
        ),
    ):
        errors = fetch(values)

        assert [text.split(": ")[1] for text in errors] == ["key3", "key5"]
        assert "17 bytes" in errors[0]
        assert "no such key" in errors[1]
        assert fetcher.counts.retries == 0


def test_a_wrong_password_ends_all_requests_with_what_to_set() -> None:
    values = values_of(50)
    with FakeRedis(values, password=b"right").served() as server:
        with fetching_from(Servers([server], password="wrong")) as (_, fetch):
            began_s = time.monotonic()
            errors = fetch(values)

            assert len(errors) == len(values)
            assert all("WRONGPASS" in one and "PASSWORD_FILE" in one for one in errors)
            assert not any("wrong" in one for one in errors)
            assert time.monotonic() - began_s < 2
        with fetching_from(Servers([server], password="right")) as (_, fetch):
            assert fetch(values) == []


@pytest.mark.parametrize("word", [b"MOVED", b"ASK"])
def test_a_moved_value_is_requested_from_its_new_server(word: bytes) -> None:
    values = values_of(30)
    with FakeRedis(values).served() as new:
        line = b"-%b 7 127.0.0.1:%d\r\n" % (word, new.port)
        old = FakeRedis(values, act=lambda serial, key: Act(line=line))
        with old.served(), fetching_from(Servers([old])) as (_, fetch):
            assert fetch(values) == []

            assert sorted(new.requests) == sorted(values)
            assert new.asking == (30 if word == b"ASK" else 0)


def test_a_dead_server_is_reported_with_its_address() -> None:
    values = values_of(2)
    with FakeRedis(values).served() as server:
        port = server.port
    with fetching_from(Servers([FakeRedis(values, port=port)])) as (_, fetch):
        errors = fetch(values)

    assert all(f"127.0.0.1:{port}: Connection refused" in text for text in errors)


def test_one_of_two_servers_is_enough() -> None:
    values = values_of(100)
    with FakeRedis(values).served() as gone:
        port = gone.port
    with FakeRedis(values).served() as good:
        way = Servers([FakeRedis(values, port=port), good])
        with fetching_from(way) as (_, fetch):
            assert fetch(values) == []


def test_closing_ends_the_thread_with_requests_in_flight() -> None:
    values = values_of(10)
    with FakeRedis(values, delay_s=5).served() as server:
        way, window = Servers([server]), Window(8, 8, NO_LIMIT)
        fetcher = Fetcher(way, window, lambda ended: None)
        fetcher.start([Fetch(Wanted(key), None) for key in values])
        began_s = time.monotonic()
        fetcher.close()

        assert time.monotonic() - began_s < 2


def test_few_late_requests_get_a_twin_and_the_first_reply_counts() -> None:
    values = values_of(3000, 20_000)
    late = Act(late_s=0.6)

    def sometimes(serial: int, key: bytes) -> Act | None:
        return late if serial % 100 == 50 else None

    slow = FakeRedis(values, act=sometimes)
    good = FakeRedis(values)
    with slow.served(), good.served():
        way = Servers([slow, good])
        with fetching_from(way, Window(32, 64, NO_LIMIT)) as (fetcher, fetch):
            assert fetch(values) == []

            assert 0 < fetcher.hedges <= 0.02 * len(values)
            assert fetcher.counts.retries == 0
    asked = len(slow.requests) + len(good.requests)
    assert asked == len(values) + fetcher.hedges


def test_a_twin_of_a_request_whose_connection_is_lost_continues() -> None:
    values = values_of(400)
    held: list[int] = []

    def holds(serial: int, key: bytes) -> Act | None:
        if serial == 200:
            held.append(serial)
            return Act(late_s=0.4, resets=3)
        return None

    slow, good = FakeRedis(values, act=holds), FakeRedis(values)
    with slow.served(), good.served():
        way = Servers([slow, good], connections_max=1)
        with fetching_from(way, Window(8, 8, NO_LIMIT)) as (_, fetch):
            assert fetch(values) == []
    assert held == [200]


@pytest.mark.parametrize("line", [b"-MOVED\r\n", b"-MOVED x\r\n", b"-MOVED 5 h:\r\n"])
def test_an_invalid_redirection_fails_its_request_alone(line: bytes) -> None:
    values = values_of(20)
    strange = FakeRedis(
        values, act=lambda serial, key: Act(line=line) if key == b"key7" else None
    )
    with strange.served() as server:
        address = StoreAddress.parse(f"redis://127.0.0.1:{server.port}")
        with fetching_from(RedisWay(address, environ={})) as (_, fetch):
            [error] = fetch(values)

    assert "key7" in error
    assert "MOVED" in error
