"""Background fill of the native engine: its order and its concurrency."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monarch import native
from monarch.native import (
    PeerReceiver,
    ReceiverOptions,
    ReplicaState,
    Table,
    word_parts,
)
from monarch.stager import Destination
from support.processes import wait_until
from unit.test_native_staging import Job, files_of, make_job
from unit.test_stager_native import put_request

PAGE = 4096
PEER, PEERS = 1, 2
BUSY_S = 0.5  # of fill.c: programs with a request this recent may send another
BEHIND = 0.05  # and fetching is this far behind reading
NOTHING = np.zeros(0, np.uint32)


@dataclass(frozen=True, slots=True)
class Node:
    """An engine whose peer takes every request and answers none."""

    job: Job
    table: Table
    engine: native.Engine

    @property
    def under_way(self) -> int:
        """How many Transfers have begun and not ended."""
        return self.table.tally()["in_flight"]

    def ready(self) -> list[bool]:
        """Which Files are READY."""
        words = self.job.states.tolist()
        return [word_parts(word)[0] is ReplicaState.READY for word in words]


def table_of(job: Job, sizes: list[int], read: int) -> Table:
    """A table by which the first Files are read, and the others are the peer's."""
    files = files_of(job, sizes)
    table = Table(files, 1, 1 << 30)
    rows = np.zeros(int(files.first[-1]), native.TABLE_ROW)
    rows["destination"], rows["sources"] = Destination.TIER, native.NO_SOURCE
    rows["sources"][int(files.first[read]) :, 0] = PEER
    table.follow(rows, 0, PEERS, uses_pool=True)
    table.set_peer(PEER, usable=True, gone=False)
    table.set_capacity(0, 1 << 40)
    return table


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """A function that makes one of Files of equal size."""

    def start(read: int, fetch: int, size: int = PAGE, rate: int | None = None) -> Node:
        sizes = [size] * (read + fetch)
        job = make_job(tmp_path, sizes)
        table = table_of(job, sizes, read)
        limited = replace(job.options, threads=1, bandwidth_bytes_per_s=rate)
        options = replace(limited, background_max=1, table=table)
        stack.callback(table.close)
        engine = stack.enter_context(native.Engine(job.board, options))
        silent = ReceiverOptions(PEERS, timeout_s=600, react_s=600)
        receiver = stack.enter_context(PeerReceiver(engine, silent))
        asks, answers = socket.socketpair()
        stack.enter_context(answers)
        receiver.connect(PEER, asks.detach())
        return Node(job, table, engine)

    with ExitStack() as stack:
        yield start


def files(start: int, end: int) -> np.ndarray:
    """Some Files as a list of fill."""
    return np.arange(start, end, dtype=np.uint32)


def test_files_are_read_in_the_order_of_the_list_and_each_once(
    make: Callable[..., Node],
) -> None:
    node = make(60, 0, rate=60 * PAGE)
    order = np.random.default_rng(5).permutation(60).astype(np.uint32)

    node.engine.fill(order, NOTHING)

    seen = []
    while not all(ready := node.ready()):
        in_order = [ready[file] for file in order.tolist()]
        assert in_order == sorted(in_order, reverse=True)
        seen.append(sum(ready))
        time.sleep(0.005)
    assert any(0 < count < 60 for count in seen)
    assert node.table.tally()["background_transfers"] == 60
    assert node.engine.fill_left() == (0, 0)


def test_the_limit_of_the_bandwidth_counts_the_bytes_of_small_files(
    make: Callable[..., Node],
) -> None:
    rate, began_s = 4 << 20, time.monotonic()
    node = make(100, 0, rate=rate)

    node.engine.fill(files(0, 100), NOTHING)

    wait_until(lambda: all(node.ready()), "all of them")
    # The time of a hundred chunks, of which each File has a small part.
    whole_chunks_s = 100 * native.CONSTANTS["CHUNK_BYTES"] / rate
    assert time.monotonic() - began_s < whole_chunks_s / 2


def test_another_list_replaces_the_first(make: Callable[..., Node]) -> None:
    node = make(60, 0, rate=60 * PAGE)
    node.engine.fill(files(0, 50), NOTHING)
    wait_until(lambda: any(node.ready()), "it begins")

    node.engine.fill(files(50, 60), NOTHING)

    wait_until(lambda: all(node.ready()[50:]), "the second list")
    wait_until(lambda: node.under_way == 0, "what had begun")
    assert not all(node.ready()[:50])


@pytest.mark.parametrize(
    ("size", "count", "bound"), [(PAGE, 200, 128), (1 << 20, 12, 8), (9 << 20, 3, 1)]
)
def test_fetches_without_waiting_programs_are_bounded(
    make: Callable[..., Node], size: int, count: int, bound: int
) -> None:
    node = make(0, count, size)

    node.engine.fill(NOTHING, files(0, count))

    wait_until(lambda: node.under_way >= bound, "as many as may be")
    time.sleep(0.2)
    assert node.under_way == bound
    assert node.engine.fill_left() == (0, count - bound)


@pytest.mark.parametrize(
    ("size", "count", "bound"), [(PAGE, 200, 32), (1 << 20, 12, 1)]
)
def test_few_fetches_are_queued_before_the_requests_of_programs(
    make: Callable[..., Node], size: int, count: int, bound: int
) -> None:
    node = make(0, count, size)
    put_request(node.job, count - 1)
    wait_until(lambda: node.under_way == 1, "a program asks")

    node.engine.fill(NOTHING, files(0, count - 1))

    end_s = time.monotonic() + 2 * BUSY_S
    while time.monotonic() < end_s:
        node.job.states[count - 1] = 0  # so that a request is worthwhile again
        put_request(node.job, count - 1)
        assert count - 1 - node.engine.fill_left()[1] <= bound
        time.sleep(0.02)
    assert count - 1 - node.engine.fill_left()[1] == bound
    left = lambda: node.engine.fill_left()[1]  # noqa: E731
    wait_until(lambda: count - 1 - left() > bound, "programs are quiet")


def test_fetching_runs_beside_reading_but_never_ahead_of_it(
    make: Callable[..., Node],
) -> None:
    count = 100
    node = make(count, count, rate=count * PAGE)

    node.engine.fill(files(0, count), files(count, 2 * count))

    seen = 0
    while (left := node.engine.fill_left())[0]:
        read, fetched = ((count - one) / count for one in left)
        assert fetched <= max(0, read - BEHIND) + 1e-9
        seen += fetched > 0
        time.sleep(0.002)
    assert seen > 0
    wait_until(lambda: node.engine.fill_left() == (0, 0), "all that is read")


def test_nothing_is_fetched_unasked_while_it_is_paused(
    make: Callable[..., Node],
) -> None:
    node = make(5, 5)
    node.engine.pause_fetching(paused=True)

    node.engine.fill(files(0, 5), files(5, 10))

    wait_until(lambda: sum(node.ready()) == 5, "what is read")
    time.sleep(0.1)
    assert node.engine.fill_left() == (0, 5)
    node.engine.pause_fetching(paused=False)
    wait_until(lambda: node.under_way == 5, "what is fetched")


def test_files_that_peers_cannot_serve_are_skipped(make: Callable[..., Node]) -> None:
    node = make(0, 100)
    node.table.set_peer(PEER, usable=False, gone=False)

    node.engine.fill(NOTHING, files(0, 100))

    wait_until(lambda: node.engine.fill_left() == (0, 0), "all are looked at")
    tally = node.table.tally()
    assert (tally["passed_over"], tally["in_flight"]) == (100, 0)
    assert not node.job.states.any()


def test_files_that_departed_peers_were_to_read_are_read_locally(
    make: Callable[..., Node],
) -> None:
    node = make(0, 100)
    node.table.set_peer(PEER, usable=False, gone=True)

    node.engine.fill(NOTHING, files(0, 100))

    wait_until(lambda: all(node.ready()), "all of them")
    assert node.table.tally()["staged_files"] == 100


def test_a_file_opened_by_a_program_while_fill_reads_it_becomes_demand(
    make: Callable[..., Node],
) -> None:
    """Demand is not throttled, and fill would take a quarter of a minute."""
    node = make(read=1, fetch=0, size=16 << 20, rate=1 << 20)
    node.engine.fill(np.zeros(1, np.uint32), NOTHING)
    wait_until(lambda: node.under_way == 1)
    requests: Any = node.job.board.requests
    began = time.monotonic()

    requests.view(native.DTYPES["requests"])["waiters"][0, 0] = 1

    wait_until(lambda: node.ready() == [True])
    assert time.monotonic() - began < 8


def test_the_chunks_of_a_large_file_measure_the_duration_of_demand(
    make: Callable[..., Node],
) -> None:
    """With whole files, little would be known before most of them have arrived."""
    node = make(read=1, fetch=0, size=(8 << 20) + 1)

    node.engine.demand(0)
    wait_until(lambda: node.ready() == [True])
    wait_until(lambda: node.under_way == 0)

    found = node.engine.demands()
    assert [size for size, _ in found] == [native.CONSTANTS["CHUNK_BYTES"]] * 8
    assert all(ns > 0 for _, ns in found)


def test_a_file_requested_by_a_peer_while_fill_reads_it_becomes_demand(
    make: Callable[..., Node], tmp_path: Path
) -> None:
    node = make(1, 0, size=16 << 20, rate=1 << 20)
    node.engine.fill(files(0, 1), NOTHING)
    wait_until(lambda: node.under_way == 1, "it begins")
    (tmp_path / "asker").mkdir()
    asker = make_job(tmp_path / "asker", [16 << 20])
    asker.states[0] = native.state_word(ReplicaState.STAGING)
    began = time.monotonic()
    with ExitStack() as stack:
        other = stack.enter_context(native.Engine(asker.board, asker.options))
        server = native.PeerServer(node.engine, native.ServerOptions(PEERS))
        stack.enter_context(server)
        receiver = PeerReceiver(other, ReceiverOptions(PEERS))
        stack.enter_context(receiver)
        asks, serves = socket.socketpair()
        server.adopt(0, serves.detach())
        receiver.connect(PEER, asks.detach())

        receiver.submit([native.Order(0, 0, native.OrderKind.DEMAND, PEER)])

        wait_until(lambda: node.ready() == [True], "the file")
    assert time.monotonic() - began < 8
