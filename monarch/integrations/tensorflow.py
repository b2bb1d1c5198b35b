"""TensorFlow: the batches of a loader as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        "monarch.integrations.tensorflow needs TensorFlow, which is not installed"
    ) from error

from monarch.errors import UsageError
from monarch.loader import Batch, Loader


def as_tf_dataset(loader: Loader, *, signature: Any = None) -> Any:
    """Return a dataset that yields one epoch of a loader in each pass.

    If the Records are arrays of one type, as in npy and HDF5, an element is a tensor
    with a row for each Record. Else it is a vector of strings, the bytes of each, as
    `tf.data.TFRecordDataset` yields them. The order is the loader's: use its
    `set_epoch`, and no `shuffle` of the dataset; `prefetch` takes batches from the
    loader early, so that its `state_dict` is ahead of the program.

    Args:
        signature: of an element, as `tf.TensorSpec`; needed if `decode` or `collate_fn`
            of the loader make it: then an element is the result of `collate_fn`, or an
            array of the results of `decode`.

    Raises:
        UsageError: the signature is missing.
    """
    options = loader.options
    is_made = options.decode is not None or options.collate_fn is not None
    if is_made and signature is None:
        name = "decode" if options.collate_fn is None else "collate_fn"
        raise UsageError(
            f"as_tf_dataset needs signature=tf.TensorSpec(...): {name} decides what "
            "the dataset yields"
        )
    details = loader.records.index.details
    if signature is None:
        signature = _signature(details)

    def elements() -> Iterator[Any]:
        for batch in loader:
            yield batch if options.collate_fn is not None else _element(batch, loader)

    return tf.data.Dataset.from_generator(elements, output_signature=signature)


def _signature(details: Any) -> Any:
    """Return the signature of an element that only Monarch makes."""
    if "dtype" not in details:
        return tf.TensorSpec([None], tf.string)
    kind = tf.as_dtype(np.dtype(details["dtype"]))
    return tf.TensorSpec([None, *details.get("shape", ())], kind)


def _element(batch: Batch, loader: Loader) -> Any:
    if loader.options.decode is not None:
        return np.asarray(batch.records)
    if "dtype" in loader.records.index.details:
        return np.asarray(batch.array)
    return [bytes(record) for record in batch.records]
