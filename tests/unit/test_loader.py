"""The loader yields exact epochs, however it is interrupted, and leaves nothing."""

import os
import pickle
import signal
import time
from collections import deque
from itertools import chain, product
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
import pytest

from monarch.errors import UsageError
from monarch.loader import Loader, LoaderError
from monarch.records import open_records
from support.loaders import (
    Rank,
    global_batches,
    is_running,
    numbered,
    ranks,
    write_tar,
    write_tfrecord,
)
from support.processes import wait_until

COUNT = 1009
SMALL: Any = {"group_bytes": 20_000, "groups_in_flight": 4}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def packed(tmp_path):
    return write_tfrecord(tmp_path / "some.tfrecord", numbered(COUNT))


def epoch_of(loader):
    """The Records of an epoch; their bytes are right."""
    found = []
    for batch in loader:
        for number, record in zip(batch.ids.tolist(), batch.records, strict=True):
            assert int.from_bytes(record[:8], "little") == number
        found.append(batch.ids.tolist())
    return found


@pytest.mark.parametrize("shuffle", ["group", "global", "none"])
@pytest.mark.parametrize("in_order", [True, False])
def test_every_epoch_has_every_record_once(packed, shuffle, in_order):
    options: Any = {**SMALL, "shuffle": shuffle, "in_order": in_order}
    with Loader(packed, 32, remainder="uneven", **options) as loader:
        epochs = [epoch_of(loader) for _ in range(3)]

    for batches in epochs:
        assert [len(ids) for ids in batches[:-1]] == [32] * (COUNT // 32)
        assert sorted(chain(*batches)) == list(range(COUNT))
    if in_order:
        assert (epochs[0] == epochs[1]) is (shuffle == "none")


@pytest.mark.parametrize("remainder", ["drop", "pad", "uneven"])
def test_the_number_of_ranks_does_not_change_global_batches(packed, remainder):
    options: Any = {**SMALL, "remainder": remainder, "seed": 3}
    plan: Any = {"epochs": 2}
    alone = Rank(packed, plan, batch_size=24, rank=0, world_size=1, **options).ended()[
        0
    ]

    started = ranks(3, packed, plan, batch_size=8, **options)
    ended = [one.ended() for one in started]

    assert global_batches([batches for batches, _ in ended]) == alone
    assert len({stats["reader_pid"] for _, stats in ended}) == 1


def test_one_reader_reads_the_dataset_once_for_all_ranks(packed, tmp_path):
    # As in training, no rank continues after its first batch before all have theirs.
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    plan = {"meeting": str(meeting)}
    started = ranks(4, packed, plan, batch_size=8, remainder="uneven", **SMALL)

    ended = [one.ended()[1] for one in started]

    size = packed.stat().st_size
    assert max(stats["request_bytes"] for stats in ended) <= 1.05 * size


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_state_resumes_exactly_on_any_number_of_ranks(packed, world):
    with Loader(packed, 24, seed=5, remainder="drop", **SMALL) as loader:
        whole = epoch_of(loader)
        state: Any = None
        for number, _ in enumerate(loader):
            if number == 9:
                state = loader.state_dict()
                break
        again = Loader(packed, 24, seed=5, **SMALL)
        again.set_epoch(1)
        rest = epoch_of(again)[10:]
        again.close()
    assert len(str(state)) <= 1024
    assert state["epoch"] == 1

    options: Any = {**SMALL, "seed": 5, "batch_size": 24 // world}
    plan: Any = {"state": state, "epochs": 2}
    ended = [one.ended()[0] for one in ranks(world, packed, plan, **options)]

    found = global_batches(ended)
    assert found[: len(rest)] == rest
    assert len(found) == len(rest) + len(whole)


def test_a_state_that_is_saved_and_loaded_twice_does_not_drift(packed):
    given = []
    with Loader(packed, 32, seed=2, **SMALL) as loader:
        wanted = epoch_of(loader)
    state = None
    for _ in range(len(wanted)):
        with Loader(packed, 32, seed=2, **SMALL) as loader:
            if state is not None:
                loader.load_state_dict(state)
            given.append(next(iter(loader)).ids.tolist())
            state = loader.state_dict()
    assert given == wanted


def test_an_out_of_order_epoch_is_resumed_exactly(packed):
    options: Any = {**SMALL, "in_order": False, "reorder_window": 3}
    with Loader(packed, 32, remainder="uneven", **options) as loader:
        iterator = iter(loader)
        first = [next(iterator).ids.tolist() for _ in range(7)]
        state = loader.state_dict()
        iterator.close()
    with Loader(packed, 32, remainder="uneven", **options) as loader:
        loader.load_state_dict(state)
        rest = epoch_of(loader)

    assert sorted(chain(*first, *rest)) == list(range(COUNT))
    assert len(str(state)) <= 1024


def test_a_logged_order_is_replayed(packed, tmp_path):
    options: Any = {**SMALL, "in_order": False, "reorder_window": 3}
    with Loader(packed, 32, order_log=tmp_path / "log", **options) as loader:
        logged = [epoch_of(loader) for _ in range(2)]

    with Loader(packed, 32, replay=tmp_path / "log", **options) as loader:
        assert [epoch_of(loader) for _ in range(2)] == logged


def test_the_death_of_the_reader_changes_nothing(packed):
    rank = Rank(packed, {"pause_s": 0.01}, batch_size=16, remainder="uneven", **SMALL)
    with Loader(packed, 16, remainder="uneven", **SMALL) as loader:
        found = []
        for number, batch in enumerate(loader):
            if number % 20 == 5:
                os.kill(loader.stats()["reader_pid"], signal.SIGKILL)
            for n, record in zip(batch.ids.tolist(), batch.records, strict=True):
                assert int.from_bytes(record[:8], "little") == n
            found.append(batch.ids.tolist())
        assert loader.stats()["reader_restarts"] >= 2
    assert found == rank.ended()[0]


def test_the_reader_ends_with_its_last_rank(packed):
    one, other = ranks(2, packed, {"pause_s": 0.05}, batch_size=8, **SMALL)
    one.first(2)
    other.first(2)
    with Loader(packed, 16, **SMALL) as loader:
        next(iter(loader))
        pid = loader.stats()["reader_pid"]
    wait_until(lambda: not is_running(pid), "the reader has ended", 5)
    one.kill()
    other.kill()


def test_a_rank_continues_when_the_rank_that_started_the_reader_dies(packed):
    one, other = ranks(2, packed, {"pause_s": 0.01}, batch_size=8, seed=1, **SMALL)
    one.first(1)
    other.first(1)

    one.kill()
    batches, _ = other.ended()

    assert len(batches) == COUNT // 16


def test_a_stopped_reader_is_reported_in_time(packed):
    loader = Loader(packed, 16, timeout=0.5, **SMALL)
    iterator = iter(loader)
    next(iterator)
    pid = loader.stats()["reader_pid"]
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()

    with pytest.raises(LoaderError, match=r"nothing was read for 0.5 s \(timeout\)"):
        for _ in iterator:
            pass

    assert time.monotonic() - began < 5
    os.kill(pid, signal.SIGKILL)
    loader.close()


def test_a_record_that_cannot_be_read_is_named(packed):
    records = open_records(packed)
    with packed.open("r+b") as file:
        file.truncate(packed.stat().st_size // 2)
    os.utime(packed, ns=(0, records.index.files[0].mtime_ns))

    with (
        Loader(records, 16, shuffle="none", group_bytes=20_000) as loader,
        pytest.raises(LoaderError, match=r"record \d+: .*some.tfrecord was changed"),
    ):
        epoch_of(loader)


def test_views_end_with_their_batch_and_kept_batches_stay(packed):
    with Loader(packed, 16, **SMALL) as loader:
        kept, views, copies = [], [], []
        for batch in loader:
            kept.append(batch.keep())
            views += batch.records
            copies.append([bytes(record) for record in batch.records])
        with pytest.raises(ValueError, match="released"):
            views[0][0]
        assert [[bytes(r) for r in one.records] for one in kept] == copies


def test_a_batch_whose_memory_was_used_again_raises_an_error(packed):
    with Loader(packed, 16, **SMALL) as loader:
        batches = iter(loader)
        read = next(batches)
        assert len(read.records) == 16
        unread = next(batches)
        next(batches)

        uses: tuple[Any, ...] = (
            *map(attrgetter, ("records", "array", "nbytes", "portions")),
            methodcaller("keep"),
            pickle.dumps,
        )
        for use, batch in product(uses, (read, unread)):
            with pytest.raises(UsageError, match=r"no longer valid.*batch.keep"):
                use(batch)


def test_memory_that_a_program_still_uses_is_not_written(packed):
    """An array over a view outlives the batch: its memory is not used again."""
    with Loader(packed, 16, remainder="uneven", **SMALL) as loader:
        arrays: Any = deque(maxlen=2)
        for batch in loader:
            for number, array in arrays:
                assert int.from_bytes(array[:8].tobytes(), "little") == number
            array = np.frombuffer(batch.records[0], np.uint8)
            arrays.append((int(batch.ids[0]), array))


def test_views_that_are_held_for_ever_end_in_an_error_that_says_so(packed):
    with Loader(packed, 16, timeout=0.5, **SMALL) as loader:
        held = (np.frombuffer(batch.records[0], np.uint8) for batch in loader)
        with pytest.raises(LoaderError, match=r"use batch.keep\(\)"):
            list(held)


def test_memory_never_exceeds_its_limit(packed):
    limit = 600_000
    with Loader(packed, 16, memory_limit=limit, **SMALL) as loader:
        epoch_of(loader)
        epoch_of(loader)
        assert loader.stats()["memory_peak_bytes"] <= limit


def test_ranks_far_apart_share_little_memory(packed):
    """A late rank receives its portions, although another one holds most."""
    options: Any = {**SMALL, "memory_limit": 600_000, "batch_size": 8}
    slow, fast = (
        Rank(packed, {"pause_s": pause}, rank=rank, world_size=2, **options)
        for rank, pause in enumerate((0.02, 0.0))
    )
    assert len(fast.ended()[0]) == len(slow.ended()[0]) == COUNT // 16


def test_arrays_have_the_type_and_shape_of_their_records(tmp_path):
    rows = np.arange(300 * 6, dtype="<f4").reshape(300, 2, 3)
    np.save(tmp_path / "rows.npy", rows)

    with Loader(tmp_path / "rows.npy", 32, output="numpy", group_bytes=1000) as loader:
        for batch in loader:
            assert (batch.array == rows[batch.ids]).all()
            assert (np.stack(batch.records) == rows[batch.ids]).all()


def test_records_of_different_sizes_are_no_array(packed):
    with (
        Loader(packed, 8, **SMALL) as loader,
        pytest.raises(UsageError, match=r"do not form an\s+array; use\s+batch.records"),
    ):
        _ = next(iter(loader)).array


def test_decode_and_collate_produce_the_batches_of_the_loop(tmp_path):
    path = write_tar(tmp_path / "some.tar", numbered(50, 100))

    def collate(batch):
        return dict(zip(batch.ids.tolist(), batch.records, strict=True))

    with Loader(path, 5, decode=len, collate_fn=collate) as loader:
        found = {number: size for one in loader for number, size in one.items()}

    with Loader(path, 5) as loader:
        assert found == {
            int(n): len(r)
            for b in loader
            for n, r in zip(b.ids, b.records, strict=True)
        }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_sise": 3}, "no argument 'batch_sise'; did you mean batch_size"),
        ({"shuffle": "yes"}, "use one of global, group, none"),
        ({"memory_limit": 10}, "memory_limit=10 is less than the .* bytes that"),
        ({"reorder_window": 3}, "reorder_window=3 needs in_order=False"),
        ({"rank": 1}, "give rank and world_size together"),
        ({"rank": 2, "world_size": 2}, "rank=2 of world_size=2"),
        ({"timeout": 0}, "timeout=0 is not a time"),
        ({"output": "jax"}, "use one of memoryview, numpy, torch"),
        ({"readers_max": 0}, "readers_max=0 is less than 1"),
    ],
)
def test_an_invalid_argument_is_refused_by_its_name(packed, options, words):
    with pytest.raises(UsageError, match=words):
        Loader(packed, 8, **options)


def test_a_state_of_other_records_or_another_order_is_refused(packed, tmp_path):
    other = write_tfrecord(tmp_path / "other.tfrecord", numbered(100))
    with Loader(packed, 8, **SMALL) as loader, Loader(other, 8, **SMALL) as second:
        with pytest.raises(UsageError, match="the state is of other records"):
            second.load_state_dict(loader.state_dict())
        with pytest.raises(UsageError, match="seed=1"):
            loader.load_state_dict({**loader.state_dict(), "seed": 1})
        with pytest.raises(UsageError, match="not a state of a loader"):
            loader.load_state_dict({"version": 1})


def test_an_empty_dataset_has_no_batches(tmp_path):
    path = tmp_path / "none.tfrecord"
    path.write_bytes(b"")
    with Loader(path, 8) as loader:
        assert len(loader) == 0
        assert list(loader) == []
