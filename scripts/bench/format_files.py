"""Datasets of large files, and the programs of their formats that read them.

    format_files.py make FORMAT FOLDER BYTES
    format_files.py read FORMAT FOLDER NODE NODES SHARING EPOCHS MEETINGS

`read` is one node of a job: nodes begin each epoch together, and read all (SHARING is
"everything"), or each a part, another one in each epoch ("dealt"). It prints a line per
epoch: begin and end in seconds, and a sum over all that it has read. The sums of parts
add up to that of all, in whatever order pieces are read; a piece in the wrong place
changes it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import xxhash
from format_arrays import (
    make_hdf5,
    make_lmdb,
    make_npy,
    make_parquet,
    make_safetensors,
    read_hdf5,
    read_lmdb,
    read_npy,
    read_parquet,
    read_safetensors,
)
from format_streams import (
    Piece,
    Share,
    make_clips,
    make_shards,
    make_tar,
    read_clips,
    read_shards,
    read_tar,
    untar,
)

POLL_S = 0.002
SUM = 1 << 64


@dataclass(frozen=True, slots=True)
class Format:
    """A format: how a dataset is made, and how it is read piece by piece.

    Args:
        mapped: by its program, so that an origin must let the kernel cache its bytes.
        recognised: its reads are not seen, but its files are waited for whole.
    """

    make: Callable[[Path, int], None]
    read: Callable[[Path, Share], Iterator[Piece]]
    needs: tuple[str, ...] = ()
    mapped: bool = False
    recognised: bool = False

    def lacks(self) -> list[str]:
        """The packages that are not installed."""
        names = dict.fromkeys(name.partition(".")[0] for name in self.needs)
        return [name for name in names if find_spec(name) is None]


FORMATS = {
    "tfrecord": Format(make_shards, read_shards),
    "hdf5-chunked": Format(partial(make_hdf5, chunked=True), read_hdf5, ("h5py",)),
    "hdf5-contiguous": Format(partial(make_hdf5, chunked=False), read_hdf5, ("h5py",)),
    "lmdb": Format(make_lmdb, read_lmdb, ("lmdb",), mapped=True, recognised=True),
    "webdataset": Format(make_tar, read_tar),
    "tar": Format(make_tar, untar),
    "parquet": Format(
        make_parquet,
        partial(read_parquet, mapped=False),
        ("pyarrow", "pyarrow.parquet"),
    ),
    "parquet-mapped": Format(
        make_parquet,
        partial(read_parquet, mapped=True),
        ("pyarrow", "pyarrow.parquet"),
        mapped=True,
    ),
    "npy": Format(make_npy, read_npy, mapped=True, recognised=True),
    "safetensors": Format(
        make_safetensors,
        read_safetensors,
        ("safetensors", "safetensors.numpy"),
        mapped=True,
        recognised=True,
    ),
    "mp4": Format(make_clips, read_clips),
}


def meet(folder: Path, node: int, nodes: int, epoch: int) -> None:
    """Wait until all nodes are where an epoch begins, and the first may begin."""
    here = folder / f"at-{epoch}"
    here.mkdir(exist_ok=True)
    (here / str(node)).touch()
    while len(os.listdir(here)) < nodes or not (folder / "go").exists():
        time.sleep(POLL_S)


def read(words: Sequence[str]) -> None:
    """Be one node of a job."""
    name, root, sharing, meetings = words[0], words[1], words[4], words[6]
    node, nodes, epochs = (int(words[at]) for at in (2, 3, 5))
    for module in FORMATS[name].needs:
        import_module(module)
    for epoch in range(epochs):
        share = Share(0, 1, f"{epoch}.{node}")
        if sharing == "dealt":
            share = Share((node + epoch) % nodes, nodes, str(epoch))
        meet(Path(meetings), node, nodes, epoch)
        begin, total = time.monotonic(), 0
        for number, body in FORMATS[name].read(Path(root), share):
            total += xxhash.xxh3_64_intdigest(body, number)
        print(begin, time.monotonic(), total % SUM, flush=True)


def main() -> None:
    """Make a dataset, or read it."""
    verb, *words = sys.argv[1:]
    if verb == "read":
        read(words)
    else:
        name, folder, size = words
        FORMATS[name].make(Path(folder), int(size))


if __name__ == "__main__":
    main()
