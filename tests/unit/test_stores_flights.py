"""Requests in flight and their twins: one payload counts, none is written late."""

from dataclasses import dataclass, field
from typing import Any

from monarch.records.stores.exchange import Wanted
from monarch.records.stores.flights import HEDGED_SHARE, Flight, Flights
from monarch.records.stores.ways import Fetch


@dataclass
class FakeExchange:
    """Notes the requests that are given up."""

    abandoned: list[int] = field(default_factory=list)

    def abandon(self, number: int) -> None:
        """Notes it."""
        self.abandoned.append(number)


class FakeConnection:
    """A connection that carries nothing."""

    def __init__(self) -> None:
        self.exchange = FakeExchange()


def flown(count: int = 1) -> tuple[Flights, list[Fetch], list[Any]]:
    """Some requests in flight, numbered from 1, and two connections."""
    connections: list[Any] = [FakeConnection(), FakeConnection()]
    fetches = [
        Fetch(Wanted(b"k%d" % n, 0, 4), memoryview(bytearray(4))) for n in range(count)
    ]
    flights = Flights()
    for number, fetch in enumerate(fetches, 1):
        flights.begin(number, Flight(fetch, connections[0], 0.0))
    return flights, fetches, connections


def test_a_twin_that_wins_fills_the_place_and_its_request_is_given_up() -> None:
    flights, [fetch], [first, second] = flown()
    flights.add_twin(2, 1, second, 0.1)

    flight = flights.succeed(2, bytearray(b"good"))

    assert flight is not None
    assert bytes(fetch.place or b"") == b"good"
    assert fetch.found is None
    assert first.exchange.abandoned == [1]
    assert flights.succeed(1, None) is None
    assert (len(flights), flights.bytes) == (0, 0)


def test_a_request_that_wins_gives_up_its_twin() -> None:
    flights, [fetch], [_, second] = flown()
    flights.add_twin(2, 1, second, 0.1)

    flight = flights.succeed(1, None)

    assert flight is not None
    assert flight.fetch is fetch
    assert second.exchange.abandoned == [2]
    assert flights.succeed(2, bytearray(b"late")) is None
    assert bytes(fetch.place or b"") == bytes(4)


def test_a_twin_of_another_length_is_not_put_into_the_place() -> None:
    flights, [fetch], [_, second] = flown()
    flights.add_twin(2, 1, second, 0.1)

    assert flights.succeed(2, bytearray(b"longer")) is not None
    assert bytes(fetch.found or b"") == b"longer"
    assert bytes(fetch.place or b"") == bytes(4)


def test_a_request_fails_once_both_have_failed() -> None:
    for first, last in ((1, 2), (2, 1)):
        flights, [fetch], [_, second] = flown()
        flights.add_twin(2, 1, second, 0.1)

        assert flights.fail(first) is None
        assert flights.fail(last) is fetch
        assert flights.fail(last) is None


def test_a_twin_whose_request_has_failed_fills_the_place() -> None:
    flights, [fetch], [_, second] = flown()
    flights.add_twin(2, 1, second, 0.1)
    assert flights.fail(1) is None

    assert flights.succeed(2, bytearray(b"good")) is not None

    assert bytes(fetch.place or b"") == b"good"
    assert fetch.found is None


def test_few_requests_get_a_twin_and_none_gets_two() -> None:
    flights, _, [_, second] = flown(10)
    now_s, median_s, requests = 1.0, 0.1, 200

    late = flights.to_be_hedged(now_s, median_s, requests)
    for number, (of, _) in enumerate(late):
        flights.add_twin(100 + number, of, second, now_s)

    assert len(late) == HEDGED_SHARE * requests
    assert flights.to_be_hedged(now_s, median_s, requests) == []
    more = flights.to_be_hedged(now_s, median_s, 100 * requests)
    assert [number for number, _ in more] == [5, 6, 7, 8, 9, 10]
    assert flights.to_be_hedged(0.2, median_s, 100 * requests) == []


def test_all_requests_are_returned_once_after_a_fault() -> None:
    flights, fetches, [_, second] = flown(3)
    flights.add_twin(9, 2, second, 0.1)

    assert flights.clear() == fetches
    assert (len(flights), flights.bytes) == (0, 0)


def test_a_twin_whose_request_failed_is_returned_after_a_fault() -> None:
    flights, [fetch], [_, second] = flown()
    flights.add_twin(9, 1, second, 0.1)
    assert flights.fail(1) is None

    assert flights.clear() == [fetch]
