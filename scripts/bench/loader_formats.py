"""The datasets of the loaders: the same Records in each format that needs no framework.

A Record is its own number and random bytes, so that each can be told from all others.
`digests.npy` beside the formats says what the bytes of all Records are.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

LEAST, MOST = 8 << 10, 16 << 10
"""The bytes of a Record: any number from the one to the other, 12 KiB on average."""
SHARDS = 8
CHUNK = 64
"""Records of a chunk of HDF5, where each has as many bytes as the largest."""
DIGESTS = "digests.npy"
DIGEST = np.dtype([("size", "<i8"), ("digest", "<u8")])
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8

Rows = npt.NDArray[np.uint8]
Sizes = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Shard:
    """Some Records in a row.

    Args:
        first: the number of the first.
        rows: their bytes, each with zeros up to the largest size.
    """

    first: int
    sizes: Sizes
    rows: Rows

    def records(self) -> Iterator[tuple[int, Rows]]:
        """The Records with their numbers."""
        for at, size in enumerate(self.sizes):
            yield self.first + at, self.rows[at, :size]


def shards(count: int) -> Iterator[Shard]:
    """All Records."""
    share = -(-count // SHARDS)
    for first in range(0, count, share):
        random = np.random.default_rng(first)
        sizes = random.integers(LEAST, MOST + 1, min(share, count - first))
        body = random.bytes(len(sizes) * MOST)
        rows = np.frombuffer(body, np.uint8).reshape(len(sizes), MOST).copy()
        rows[np.arange(MOST) >= sizes[:, None]] = 0
        rows[:, :8].view("<u8")[:, 0] = np.arange(first, first + len(sizes))
        yield Shard(first, sizes, rows)


def records(count: int) -> Iterator[tuple[int, Rows]]:
    """All Records with their numbers."""
    for shard in shards(count):
        yield from shard.records()


def digest(record: Any) -> int:
    """What tells the bytes of a Record."""
    return xxhash.xxh3_64_intdigest(record)


def make_digests(folder: Path, count: int) -> None:
    """Write the sizes and digests of all Records."""
    found = [(len(row), digest(row)) for _, row in records(count)]
    np.save(folder / DIGESTS, np.array(found, DIGEST))


# -- formats ---------------------------------------------------------------------------


def make_tar(folder: Path, count: int) -> None:
    """Shards as WebDataset reads them."""
    for at, shard in enumerate(shards(count)):
        with tarfile.open(folder / f"{at:03}.tar", "w") as archive:
            for number, row in shard.records():
                head = tarfile.TarInfo(f"{number:08}.bin")
                head.size = len(row)
                archive.addfile(head, io.BytesIO(row.data))


def make_tfrecord(folder: Path, count: int) -> None:
    """Shards as TensorFlow reads them, which looks at the checksums."""
    for at, shard in enumerate(shards(count)):
        heads = shard.sizes.astype("<u8")[:, None].view(np.uint8)
        of_heads = masked_crc(heads, np.full(len(heads), 8))
        of_rows = masked_crc(shard.rows, shard.sizes)
        with (folder / f"{at:03}.tfrecord").open("wb") as file:
            for n, (_, row) in enumerate(shard.records()):
                parts = (heads[n], of_heads[n], row, of_rows[n])
                file.write(b"".join(part.tobytes() for part in parts))


def make_lmdb(folder: Path, count: int) -> None:
    """One database."""
    lmdb: Any = import_module("lmdb")
    with (
        lmdb.open(str(folder), map_size=2 * count * MOST + (64 << 20)) as store,
        store.begin(write=True) as turn,
    ):
        for number, row in records(count):
            turn.put(lmdb_key(number), row.tobytes(), append=True)


def lmdb_key(number: int) -> bytes:
    """The key of a Record."""
    return b"%08d" % number


def make_hdf5(folder: Path, count: int) -> None:
    """One file with one dataset in chunks, not compressed."""
    h5py: Any = import_module("h5py")
    with h5py.File(folder / "data.h5", "w") as file:
        shape, chunks = (count, MOST), (min(CHUNK, count), MOST)
        rows = file.create_dataset("records", shape, "u1", chunks=chunks)
        for shard in shards(count):
            rows[shard.first : shard.first + len(shard.sizes)] = shard.rows


def masked_crc(rows: Rows, sizes: Sizes) -> Rows:
    """The checksums (crc32c, masked) that TFRecord has, of the first bytes of rows."""
    table, order = _crc_table(), np.argsort(-sizes)
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    columns = np.ascontiguousarray(rows[order].T)
    longer = np.searchsorted(np.sort(sizes), np.arange(len(columns)), side="right")
    for column, shorter in zip(columns, longer, strict=True):
        left = crc[: len(rows) - shorter]
        left[:] = table[(left ^ column[: len(left)]) & 0xFF] ^ (left >> 8)
    crc[order] = ~crc
    masked = (crc >> 15 | crc << 17) + np.uint32(_MASK_DELTA)
    return masked.astype("<u4")[:, None].view(np.uint8)


def _crc_table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


MAKERS: dict[str, Callable[[Path, int], None]] = {
    "tar": make_tar,
    "tfrecord": make_tfrecord,
    "lmdb": make_lmdb,
    "hdf5": make_hdf5,
}
