"""Datasets that programs read by themselves: shards of records, tar, and videos."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

MIB = 1 << 20
BLOCK = 256 << 10
ROW = MIB
SHARD = 64 * MIB
MEMBER = 100_000
CLIP, CLIP_READ, HEAD, TAIL = 2 * MIB, 32 << 10, 64 << 10, 256 << 10
FEW = 4
"""Files of the formats of which there are few large ones."""
STRIDE = 0x9E3779B97F4A7C15

Piece = tuple[int, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """What one node reads in one epoch: the part `place` of `of` parts."""

    place: int
    of: int
    seed: str

    def deal(self, items: Sequence[T]) -> list[T]:
        """Items in a random order, all nodes together each of them once."""
        order = list(items)
        random.Random(self.seed).shuffle(order)
        return order[self.place :: self.of]

    def span(self, count: int) -> range:
        """A range in order, of numbers below a count."""
        return range(count * self.place // self.of, count * (self.place + 1) // self.of)


Words = np.ndarray[Any, np.dtype[np.uint64]]


def piece(number: int, size: int) -> Words:
    """Bytes that no other piece of a dataset has."""
    first = number * (size // 8)
    numbers = np.arange(first, first + size // 8, dtype=np.uint64)
    return numbers * np.uint64(STRIDE)


def paths_of(root: Path) -> list[Path]:
    """The files of a dataset."""
    return sorted(path for path in root.rglob("*") if path.is_file())


def make_shards(root: Path, size: int) -> None:
    """Shards of records, at least eight of them."""
    shard = min(SHARD, size // 8)
    for number in range(size // shard):
        with (root / f"{number:03}.tfrecord").open("wb") as file:
            for row in range(shard // ROW):
                file.write(piece(number * (shard // ROW) + row, ROW).data)


def read_shards(root: Path, share: Share) -> Iterator[Piece]:
    """Whole shards, a Block at a time by preads."""
    buffer = bytearray(BLOCK)
    for number, path in share.deal(list(enumerate(paths_of(root)))):
        fd = os.open(path, os.O_RDONLY)
        for at in range(0, os.fstat(fd).st_size, BLOCK):
            count = os.preadv(fd, [buffer], at)
            yield number << 20 | at // BLOCK, memoryview(buffer)[:count]
        os.close(fd)


def make_tar(root: Path, size: int) -> None:
    """Shards of members that are no whole number of Blocks long."""
    shard = min(SHARD, size // 8)
    for number in range(size // shard):
        with tarfile.open(root / f"{number:03}.tar", "w") as archive:
            for member in range(shard // MEMBER):
                body = piece(number * (shard // MEMBER) + member, MEMBER).tobytes()
                head = tarfile.TarInfo(f"{member:06}.bin")
                head.size = len(body)
                archive.addfile(head, io.BytesIO(body))


def read_tar(root: Path, share: Share) -> Iterator[Piece]:
    """As webdataset reads: each shard as a stream, member by member."""
    for number, path in share.deal(list(enumerate(paths_of(root)))):
        with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for at, member in enumerate(tar):
                body = tar.extractfile(member)
                assert body is not None
                yield number << 20 | at, body.read()


def untar(root: Path, share: Share) -> Iterator[Piece]:
    """What the program tar extracts from each shard."""
    for number, path in share.deal(list(enumerate(paths_of(root)))):
        words = ["tar", "-xOf", str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as tar:
            assert tar.stdout is not None
            for at, body in enumerate(iter(partial(tar.stdout.read, MIB), b"")):
                yield number << 20 | at, body
        if tar.returncode:
            raise SystemExit(f"tar has failed on {path}")


def make_clips(root: Path, size: int) -> None:
    """Videos: what is in them matters to nobody here."""
    rows = size // ROW // FEW
    for number in range(FEW):
        with (root / f"{number:03}.mp4").open("wb") as file:
            for row in range(rows):
                file.write(piece(number * rows + row, ROW).data)


def read_clips(root: Path, share: Share) -> Iterator[Piece]:
    """Clips at random: the head, the index at the end, then the clip's own place."""
    clips = [
        (number, path, at)
        for number, path in enumerate(paths_of(root))
        for at in range(0, path.stat().st_size, CLIP)
    ]
    for number, path, at in share.deal(clips):
        fd = os.open(path, os.O_RDONLY)
        parts = [os.read(fd, HEAD)]
        os.lseek(fd, -TAIL, os.SEEK_END)
        parts.append(os.read(fd, TAIL))
        os.lseek(fd, at, os.SEEK_SET)
        parts += [os.read(fd, CLIP_READ) for _ in range(CLIP // CLIP_READ)]
        os.close(fd)
        yield number << 20 | at // CLIP, b"".join(parts)
