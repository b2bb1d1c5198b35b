"""Writes and reads formats that are mapped: LMDB, safetensors, Arrow and Feather."""

import hashlib
import os
import sys
from collections.abc import Iterator

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
from safetensors import safe_open
from safetensors.numpy import save_file

VALUES = 1_300_000  # of 8 bytes: each file is larger than an Extent


def make(root: str) -> None:
    """Writes one file of each format, with seeded values."""
    rng = np.random.default_rng(7)
    os.makedirs(root)
    values = rng.random(VALUES)
    save_file({"a": values, "b": rng.random(10)}, f"{root}/model.safetensors")
    table = pa.table({"x": values})
    path = f"{root}/table.arrow"
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    pyarrow.feather.write_feather(table, f"{root}/t.feather", "uncompressed")
    env = lmdb.open(f"{root}/records", map_size=1 << 26)
    with env.begin(write=True) as tx:
        for number in range(200):
            tx.put(b"%06d" % number, rng.bytes(60_000))
    env.close()
    os.remove(f"{root}/records/lock.mdb")  # never staged


def read(root: str) -> None:
    """Prints a digest of the content of each file."""
    for name, parts in (
        ("safetensors", tensors(f"{root}/model.safetensors")),
        ("arrow", columns(f"{root}/table.arrow")),
        ("feather", features(f"{root}/t.feather")),
        ("lmdb", records(f"{root}/records")),
    ):
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        print(name, digest.hexdigest())


def tensors(path: str) -> Iterator[bytes]:
    """The tensors of a file, one by one."""
    with safe_open(path, framework="numpy") as file:
        for key in sorted(file.keys()):
            yield file.get_tensor(key).tobytes()


def columns(path: str) -> Iterator[bytes]:
    """The columns of an Arrow file that is mapped."""
    with pa.memory_map(path) as source:
        for column in pa.ipc.open_file(source).read_all().columns:
            yield column.to_numpy().tobytes()


def features(path: str) -> Iterator[bytes]:
    """The columns of a Feather file that is mapped."""
    for column in pyarrow.feather.read_table(path, memory_map=True).columns:
        yield column.to_numpy().tobytes()


def records(path: str) -> Iterator[bytes]:
    """The records of an LMDB environment."""
    with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as tx:
        for key, value in tx.cursor():
            yield key + value


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2])
