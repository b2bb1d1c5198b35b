"""A loader and its batches can be sent to spawned processes, as by a DataLoader."""

import multiprocessing
import pickle
from itertools import chain
from typing import Any

import pytest

from monarch.errors import UsageError
from monarch.loader import Loader, LoaderError
from support.loaders import is_running, numbered, write_tfrecord
from support.spawned import ids_of, tell_epoch

COUNT = 203
SMALL: Any = {"group_bytes": 20_000, "groups_in_flight": 4, "remainder": "uneven"}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def packed(tmp_path):
    return write_tfrecord(tmp_path / "some.tfrecord", numbered(COUNT))


def refuse_the_tenth(view):
    number = int.from_bytes(view[:8], "little")
    if number == 10:
        raise ValueError("no such\nformat")
    return number


def test_a_pickled_loader_continues_with_the_same_reader(packed):
    # Memory for both: a paused iterator keeps the records that it requested.
    with Loader(packed, 10, seed=4, memory_limit=1 << 24, **SMALL) as loader:
        whole = ids_of(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        first = [next(iterator).ids.tolist() for _ in range(3)]
        with pickle.loads(pickle.dumps(loader)) as other:
            rest = ids_of(other)
            pid = other.stats()["reader_pid"]
        assert pid == loader.stats()["reader_pid"]
        assert is_running(pid)

    assert first + rest == whole


def test_a_spawned_process_gets_the_epoch_that_was_set(packed):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with Loader(packed, 10, seed=4, rank=1, world_size=2, **SMALL) as loader:
        wanted = ids_of(loader), ids_of(loader)
        reader = loader.stats()["reader_pid"]
        loader.set_epoch(1)
        process = context.Process(target=tell_epoch, args=(queue, loader))
        process.start()
        found = queue.get(timeout=60)
        process.join(60)

    assert found == (wanted[1], reader)
    assert process.exitcode == 0


@pytest.mark.parametrize("keeps", [True, False])
def test_a_batch_that_was_pickled_stays_valid(packed, keeps):
    with Loader(packed, 10, seed=4, **SMALL) as loader:
        sent = [pickle.dumps(b.keep() if keeps else b) for b in loader]
    values = numbered(COUNT)

    found = [pickle.loads(one) for one in sent]

    numbers = [number for batch in found for number in batch.ids.tolist()]
    records = [bytes(record) for batch in found for record in batch.records]
    assert sorted(numbers) == list(range(COUNT))
    assert records == [values[number] for number in numbers]
    assert sum(batch.nbytes for batch in found) == sum(map(len, values))


def test_a_kept_batch_returns_its_own_memory_as_an_array(tmp_path):
    values = [bytes([number]) * 12 for number in range(40)]
    path = write_tfrecord(tmp_path / "even.tfrecord", values)
    with Loader(path, 10, seed=4, output="numpy", **SMALL) as loader:
        found = [pickle.loads(pickle.dumps(batch.keep())) for batch in loader]

    for batch in found:
        assert batch.array.tolist() == [[n] * 12 for n in batch.ids.tolist()]
        assert batch.array.flags.writeable
        assert [one.tolist() for one in batch.records] == batch.array.tolist()


def test_a_decoded_batch_is_pickled_without_its_bytes(packed):
    with Loader(packed, 10, decode=len, **SMALL) as loader:
        batch = next(iter(loader))
        sizes = batch.records
        found = pickle.loads(pickle.dumps(batch))

    assert found.records == sizes
    text = r"this batch has no bytes.* another process decoded it"
    with pytest.raises(UsageError, match=text):
        _ = found.array


def test_an_error_of_decode_names_the_record(packed):
    with Loader(packed, 10, decode=refuse_the_tenth, **SMALL) as loader:
        text = "^record 10: decode: ValueError: no such format$"
        with pytest.raises(LoaderError, match=text) as caught:
            list(chain(*(batch.records for batch in loader)))

    assert isinstance(caught.value.__cause__, ValueError)
