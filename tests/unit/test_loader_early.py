"""The rank that starts the reader does not wait for it: it reads its first batch."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monarch.loader import Loader, link
from monarch.loader.early import EarlyPortion, EarlyReads
from monarch.records import open_records
from monarch.records.groups import group
from monarch.records.headers import cached_share
from monarch.records.shards import Probe
from support.countfs import CountFs
from support.loaders import is_running, numbered, write_tfrecord
from support.processes import wait_until

COUNT = 1009
LATE_S = 3.0
SMALL: Any = {"group_bytes": 20_000, "groups_in_flight": 4}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return write_tfrecord(tmp_path / "some.tfrecord", numbered(COUNT))


@pytest.fixture
def late_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers need long to start."""
    late = f"import time; time.sleep({LATE_S}); "
    monkeypatch.setattr(link, "_START", late + link._START)


def rest_of(batches: Any) -> list[int]:
    """The Records of an epoch; their bytes are right."""
    found = []
    for batch in batches:
        for number, record in zip(batch.ids.tolist(), batch.records, strict=True):
            assert int.from_bytes(record[:8], "little") == number
        found += batch.ids.tolist()
    return found


def groups(packed: Path) -> int:
    with_index = open_records(packed)
    count = len(group(with_index.index, SMALL["group_bytes"]))
    with_index.close()
    return count


@pytest.mark.usefixtures("late_reader")
def test_the_first_batch_does_not_wait_for_the_reader(packed: Path) -> None:
    began = time.monotonic()
    with Loader(packed, 32, remainder="uneven", **SMALL) as loader:
        batches = iter(loader)
        first = rest_of([next(batches)])
        assert time.monotonic() - began < LATE_S
        assert sorted(first + rest_of(batches)) == list(range(COUNT))

        stats = loader.stats()
    assert stats["requests"] == groups(packed)
    assert stats["request_bytes"] <= packed.stat().st_size


@pytest.mark.usefixtures("late_reader")
def test_records_read_early_are_read_once(
    packed: Path, mount_counted: Callable[[Path], CountFs]
) -> None:
    origin = mount_counted(packed.parent)
    records = open_records(origin.root / packed.name)
    origin.reset()
    with Loader(records, 32, remainder="uneven", **SMALL) as loader:
        assert sorted(rest_of(loader)) == list(range(COUNT))

    assert origin.counts().read_bytes <= 1.05 * packed.stat().st_size


@pytest.mark.usefixtures("late_reader")
def test_little_is_read_twice_while_a_program_works(
    packed: Path, mount_counted: Callable[[Path], CountFs]
) -> None:
    """Early reads extend only as far as the rank waits for them."""
    origin = mount_counted(packed.parent)
    records = open_records(origin.root / packed.name)
    origin.reset()
    with Loader(records, 32, remainder="uneven", **SMALL) as loader:
        batches = iter(loader)
        found = rest_of([next(batches)])
        time.sleep(LATE_S + 0.5)
        assert sorted(found + rest_of(batches)) == list(range(COUNT))

    assert origin.counts().read_bytes <= 1.05 * packed.stat().st_size


@pytest.mark.usefixtures("late_reader")
def test_a_rank_continues_in_mid_epoch_without_waiting_for_the_reader(
    packed: Path,
) -> None:
    mixed: Any = {**SMALL, "groups_in_flight": 12}
    with Loader(packed, 32, **mixed) as loader:
        batches = iter(loader)
        for _ in range(20):
            next(batches)
        state = loader.state_dict()
        wanted = rest_of(batches)
        reader = loader.stats()["reader_pid"]
    # Messages to an ending reader are not counted.
    wait_until(lambda: not is_running(reader), "the end of the first reader")

    began = time.monotonic()
    with Loader(packed, 32, **mixed) as loader:
        loader.load_state_dict(state)
        batches = iter(loader)
        found = rest_of([next(batches)])
        assert time.monotonic() - began < LATE_S
        assert found + rest_of(batches) == wanted
        stats = loader.stats()
    # Only records, not their groups.
    small = [n for power, n in stats["request_sizes"].items() if 1 << int(power) < 8192]
    assert sum(small) > 24, str(stats)


def test_a_rank_that_begins_beside_an_ending_reader_does_not_wait(
    packed: Path,
) -> None:
    """Its Records stay, although that reader ends and another one is started."""
    state, wanted = None, []
    for _ in range(5):
        with Loader(packed, 32, **SMALL) as loader:
            if state is not None:
                loader.load_state_dict(state)
            batches = iter(loader)
            found = [next(batches) for _ in range(1 if state else 9)]
            if state is None:
                state = loader.state_dict()
                wanted = next(batches).ids.tolist()
            else:
                assert found[0].ids.tolist() == wanted
                assert rest_of([found[0]]) == wanted


@pytest.mark.parametrize("ends", [True, False])
def test_an_early_read_that_fails_or_hangs_blocks_no_rank(
    packed: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    goes_on = threading.Event()

    def read(*_: Any) -> EarlyPortion:
        if not ends:
            goes_on.wait()
        raise OSError

    monkeypatch.setattr(EarlyReads, "_read_whole", read)
    with Loader(packed, 32, remainder="uneven", **SMALL) as loader:
        assert sorted(rest_of(loader)) == list(range(COUNT))
        goes_on.set()
        assert sorted(rest_of(loader)) == list(range(COUNT))


def test_the_reader_may_die_after_it_was_offered_something(packed: Path) -> None:
    with Loader(packed, 32, remainder="uneven", **SMALL) as loader:
        batches = iter(loader)
        found = rest_of([next(batches)])
        pid = loader.stats()["reader_pid"]
        os.kill(pid, signal.SIGKILL)
        assert sorted(found + rest_of(batches)) == list(range(COUNT))


@pytest.mark.parametrize("limit", [{"memory_limit": 600_000}, {"readers_max": 1}])
@pytest.mark.usefixtures("late_reader")
def test_where_memory_or_reads_are_limited_the_reader_alone_reads(
    packed: Path, limit: dict[str, int]
) -> None:
    options: Any = {**SMALL, **limit}
    began = time.monotonic()
    with Loader(packed, 32, **options) as loader:
        next(iter(loader))
    assert time.monotonic() - began >= LATE_S


def test_reads_in_progress_when_the_reader_starts_are_not_repeated(
    packed: Path, mount_counted: Callable[[Path], CountFs]
) -> None:
    origin = mount_counted(packed.parent)
    records = open_records(origin.root / packed.name)
    origin.set(read_us=100_000)  # because a single rank is always reading something
    with Loader(records, 32, remainder="uneven", **SMALL) as loader:
        assert sorted(rest_of(loader)) == list(range(COUNT))
        assert loader.stats()["requests"] == groups(packed)


@pytest.fixture
def slow_cached(tmp_path: Path, mount_counted: Callable[[Path], CountFs]) -> CountFs:
    """An origin with 4.8 MB of Records, of which pages outlive an open."""
    write_tfrecord(tmp_path / "some.tfrecord", [bytes(12_000)] * 400)
    origin = mount_counted(tmp_path)
    origin.set(cached=2, read_us=1000)
    return origin


def test_headers_that_an_index_reads_do_not_split_later_reads(
    slow_cached: CountFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pages leave the page cache."""
    monkeypatch.setattr(Probe, "reads_whole", False)
    records = open_records(slow_cached.root / "some.tfrecord")
    assert slow_cached.counts().reads >= 250
    slow_cached.reset()
    with Loader(records, 32, remainder="uneven") as loader:
        assert sum(len(batch) for batch in loader) == 400

    assert slow_cached.counts().reads <= 100


def test_a_file_stays_cached_although_a_busy_program_waits_for_each_read(
    slow_cached: CountFs,
) -> None:
    """The kernel is asked: the time of a read tells of the program, too."""
    path = slow_cached.root / "some.tfrecord"
    path.read_bytes()
    slow_cached.reset()
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            pass

    busy = threading.Thread(target=work)
    busy.start()
    try:
        open_records(path).close()
    finally:
        is_over.set()
        busy.join()
    path.read_bytes()

    # Sometimes the kernel evicts some pages for its own reasons.
    assert slow_cached.counts().read_bytes < 0.25 * path.stat().st_size


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 8192, 1 << 20])
def test_the_kernel_reports_a_cached_file_of_any_size(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "some"
    path.write_bytes(bytes(size))
    with path.open("rb") as file:
        assert cached_share(file.fileno(), size) == (1 if size else None)
        assert cached_share(file.fileno(), size + 8192) is None  # it was longer


def test_the_kernel_reports_an_unread_file(
    tmp_path: Path, mount_counted: Callable[[Path], CountFs]
) -> None:
    (tmp_path / "some").write_bytes(bytes(1 << 20))
    origin = mount_counted(tmp_path)
    origin.set(cached=2)
    with (origin.root / "some").open("rb") as file:
        assert cached_share(file.fileno(), 1 << 20) == 0
