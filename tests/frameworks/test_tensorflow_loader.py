"""`as_tf_dataset` yields the batches of a loader, epoch after epoch."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monarch.errors import UsageError
from monarch.loader import Loader
from support.loaders import numbered, write_tfrecord

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

COUNT = 203


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    rows = np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3)
    np.save(tmp_path / "some.npy", rows)
    return tmp_path / "some.npy"


def test_records_of_different_sizes_are_strings(tmp_path: Path) -> None:
    from monarch.integrations.tensorflow import as_tf_dataset

    values = numbered(COUNT)
    path = write_tfrecord(tmp_path / "some.tfrecord", values)
    with Loader(path, 32, seed=3, remainder="uneven") as loader:
        dataset = as_tf_dataset(loader).prefetch(2)
        epochs = [[batch.numpy() for batch in dataset] for _ in range(2)]

    for batches in epochs:
        assert [len(batch) for batch in batches] == [32] * 6 + [COUNT - 6 * 32]
        assert sorted(chain(*batches)) == sorted(values)
    first, second = (list(chain(*batches)) for batches in epochs)
    assert first != second


def test_records_of_arrays_are_tensors_of_their_type(arrays: Path) -> None:
    from monarch.integrations.tensorflow import as_tf_dataset

    with Loader(arrays, 50) as loader:
        dataset = as_tf_dataset(loader)
        assert dataset.element_spec.shape.as_list() == [None, 2, 3]
        loader.set_epoch(7)
        found = [batch.numpy() for batch in dataset]
        loader.set_epoch(7)
        again = [batch.numpy() for batch in dataset]

    assert [batch.shape for batch in found] == [(50, 2, 3)] * 4
    assert found[0].dtype == np.float32
    assert np.array_equal(np.stack(found), np.stack(again))
    assert len({float(row[0, 0]) for batch in found for row in batch}) == 200


def test_results_of_decode_and_collate_need_a_signature(arrays: Path) -> None:
    import tensorflow as tf

    from monarch.integrations.tensorflow import as_tf_dataset

    def first(record: memoryview) -> np.float32:
        return np.float32(np.frombuffer(record, np.float32)[0])

    def pair(batch: Any) -> tuple[Any, Any]:
        return batch.ids, batch.array[:, 0, 0]

    signature = tf.TensorSpec([None], tf.float32)
    with Loader(arrays, 50, decode=first) as loader:
        with pytest.raises(UsageError, match="decode decides what the dataset yields"):
            as_tf_dataset(loader)
        rows = [
            row
            for batch in as_tf_dataset(loader, signature=signature)
            for row in batch.numpy()
        ]
    assert {row % 6 for row in rows} == {0}

    both = tf.TensorSpec([None], tf.int64), signature
    with Loader(arrays, 50, collate_fn=pair) as loader:
        pairs = list(as_tf_dataset(loader, signature=both))
    for ids, values in pairs:
        assert np.array_equal(ids.numpy() * 6, values.numpy())


def test_an_error_of_the_loader_ends_the_pass(tmp_path: Path) -> None:
    from monarch.integrations.tensorflow import as_tf_dataset

    path = write_tfrecord(tmp_path / "some.tfrecord", numbered(COUNT))

    def broken(_: Any) -> Any:
        raise ValueError("not an image")

    import tensorflow as tf

    signature = tf.TensorSpec([None], tf.float32)
    with Loader(path, 32, decode=broken) as loader:
        dataset = as_tf_dataset(loader, signature=signature)
        with pytest.raises(Exception, match="not an image"):
            list(dataset)
