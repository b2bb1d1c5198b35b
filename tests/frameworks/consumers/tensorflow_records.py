"""Writes and reads files and TFRecords with tf.data."""

import hashlib
import os
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf


def make(root: str) -> None:
    """Writes small files, records in shards, and a shard larger than an Extent."""
    os.makedirs(os.path.join(root, "files"))
    for number in range(24):
        path = os.path.join(root, "files", f"{number:03}.bin")
        with open(path, "wb") as file:
            file.write(random.Random(number).randbytes(20_000 + number))
    for shard, records in enumerate((40, 40, 9000)):
        path = os.path.join(root, f"shard-{shard}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(records):
                writer.write(random.Random(record).randbytes(1000))


def read(root: str) -> None:
    """Prints digests of the results of three pipelines."""
    names = tf.data.Dataset.list_files(os.path.join(root, "files", "*"), shuffle=False)
    show("read_file", names.map(tf.io.read_file, num_parallel_calls=2))
    shards = tf.data.Dataset.list_files(os.path.join(root, "*.tfrecord"), shuffle=False)
    show("records", tf.data.TFRecordDataset(shards, num_parallel_reads=2))
    show("interleave", shards.interleave(tf.data.TFRecordDataset, cycle_length=3))
    with tf.io.gfile.GFile(os.path.join(root, "files", "000.bin"), "rb") as file:
        print("gfile", hashlib.sha256(file.read()).hexdigest())


def show(name: str, values: tf.data.Dataset) -> None:
    """Prints one line."""
    found = hashlib.sha256()
    for value in values.as_numpy_iterator():
        found.update(value)
    print(name, found.hexdigest())


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2])
