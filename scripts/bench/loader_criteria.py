"""What reading in large Groups gains, in numbers of reads and in waits.

The origin is the tests' counting file system, 100 MiB/s for all and slow by each read.
*Chunk files* are 64 HDF5 files of 128 samples of 96 KiB; *small samples* are 52,000 of
19.2 kB in 64 npy files, or a tenth of them where samples are read one by one, which
would take minutes. The program works for as long as makes reading 0.8 of it.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
from table import Row, print_rows

from monarch.loader import Loader
from monarch.loader.order import RecordOrder
from monarch.records import open_records
from monarch.records.groups import group

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs
from support.countfs import CountFs

RATE = 100 << 20
SLOW: dict[str, int] = {"bw": RATE, "read_us": 2000, "cached": 1, "keep_ms": 1000}
FILES = 64
CHUNK, CHUNK_BYTES = 128, 96 << 10
SAMPLES, SAMPLE_BYTES, TENTH = 52_000, 19_200, 10
GROUP = 610
BATCH = 64
HIDDEN = 0.8
SMALL_PAIRS = 200_000
OVERFLOW_BYTES = 4200
"""Of the least values that do not lie in the leaves, which an index reads."""
Reader = Callable[[Any], Iterator[Any]]


@contextmanager
def origin(work: Path, **settings: int) -> Iterator[CountFs]:
    """Mounts what is in a folder, slow and counted."""
    mount = work.with_name(f"{work.name}-origin")
    mount.mkdir(exist_ok=True)
    with countfs.mounted(countfs.build(), work, mount, **{**SLOW, **settings}) as one:
        yield one


# -- reads, and the waits that are left ------------------------------------------------


def make_chunk_files(folder: Path) -> None:
    folder.mkdir()
    rows = np.random.default_rng(1).integers(0, 256, (CHUNK, CHUNK_BYTES), np.uint8)
    for number in range(FILES):
        with h5py.File(folder / f"{number:02}.h5", "w") as file:
            file["rows"] = rows


def make_samples(folder: Path, count: int) -> None:
    folder.mkdir()
    share = -(-count // FILES)
    rng = np.random.default_rng(2)
    for first in range(0, count, share):
        shape = min(share, count - first), SAMPLE_BYTES
        np.save(folder / f"{first:06}.npy", rng.integers(0, 256, shape, np.uint8))


def read_epoch(path: str, group_bytes: int) -> dict[str, Any]:
    """Load an epoch; return what the loader has counted."""
    with Loader(path, BATCH, group_bytes=group_bytes, remainder="uneven") as loader:
        for batch in loader:
            len(batch.records)
        return loader.stats()


def counted(what: str, one: CountFs, pattern: str, size: int, most: int) -> list[Row]:
    """How many reads an epoch has, and how large they are."""
    path = f"{one.root}/{pattern}"
    open_records(path).close()
    stats = read_epoch(path, size)
    sizes = {1 << int(power): n for power, n in stats["request_sizes"].items()}
    each = [low for low, n in sorted(sizes.items()) for _ in range(n)]
    large = sum(low * n for low, n in sizes.items() if low >= 1 << 20)
    share = large / sum(low * n for low, n in sizes.items())
    reads, median = stats["requests"], statistics.median(each)
    return [
        Row(f"Y1 reads, {what}", f"{reads}", f"{most}", reads / most, 1),
        Row(
            f"L2 median read, {what}",
            f"{median / (1 << 20):.0f} MiB or more",
            "4 MiB",
            median / (4 << 20),
            1,
            at_least=True,
        ),
        Row(
            f"L2 bytes in reads of 1 MiB, {what}",
            f"{share:.3f}",
            "all",
            share,
            0.95,
            at_least=True,
        ),
    ]


def hidden(one: CountFs, size: int) -> list[Row]:
    """The waits of epochs that have time to hide them: the first one fills buffers."""
    path, group_bytes = f"{one.root}/*.npy", GROUP * SAMPLE_BYTES
    rows, before_s = [], 0.0
    with Loader(path, BATCH, group_bytes=group_bytes, remainder="uneven") as loader:
        step_s = size / RATE / HIDDEN / len(loader)
        for epoch in ("first", "second"):
            began = time.monotonic()
            for batch in loader:
                len(batch.records)
                time.sleep(step_s)
            took = time.monotonic() - began
            waited_s = loader.stats()["exposed_wait_s"]
            left, before_s = waited_s - before_s, waited_s
            what = f"Y2 waits of the {epoch} epoch"
            rows.append(Row(what, f"{left:.2f} s", f"{took:.2f} s", left / took, 0.05))
    return rows


# -- one by one, ahead, in chunks, in chunks ahead -------------------------------------


def one_by_one(records: Any) -> Iterator[list[Any]]:
    order = np.random.default_rng(3).permutation(len(records))
    for first in range(0, len(order), BATCH):
        yield [records[int(number)] for number in order[first : first + BATCH]]


def ahead(records: Any) -> Iterator[list[Any]]:
    """The same by a thread that is one batch ahead."""
    source = one_by_one(records)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield batch


def in_chunks(records: Any) -> Iterator[list[Any]]:
    """A Group is read when its first Record is wanted."""
    groups = group(records.index, GROUP * SAMPLE_BYTES // TENTH)
    order = RecordOrder(groups, seed=0, shuffle="group", window=1).epoch(0)
    for number in order.groups:
        first, end = groups.starts[number], groups.starts[number + 1]
        rows = groups.order[first:end]
        ranges = [records.index.range_of(int(row)) for row in (rows[0], rows[-1])]
        whole = type(ranges[0])(
            ranges[0].object,
            ranges[0].offset,
            ranges[1].offset + ranges[1].length - ranges[0].offset,
        )
        same = ranges[0].object == ranges[1].object
        read = [whole] if same else [records.index.range_of(int(row)) for row in rows]
        records.source.read(read)
        for begin in range(0, len(rows), BATCH):
            yield list(rows[begin : begin + BATCH])


def loaded(records: Any) -> Iterator[Any]:
    size = GROUP * SAMPLE_BYTES // TENTH
    with Loader(records, BATCH, group_bytes=size, remainder="uneven") as loader:
        yield from loader


WAYS: dict[str, Reader] = {
    "one by one": one_by_one,
    "one by one, ahead": ahead,
    "in chunks": in_chunks,
    "in chunks, ahead": loaded,
}


def waited(reader: Reader, path: str, step_s: float) -> tuple[float, float]:
    """The waits of an epoch but the first, and its time."""
    records, waits, began = open_records(path), [], time.monotonic()
    batches = reader(records)
    while True:
        asked = time.monotonic()
        batch = next(batches, None)
        waits.append(time.monotonic() - asked)
        if batch is None:
            records.close()
            return sum(waits[1:]), time.monotonic() - began
        time.sleep(step_s)


def ablation(one: CountFs, count: int) -> list[Row]:
    """What each step takes away from the waits."""
    path = f"{one.root}/*.npy"
    step_s = count * SAMPLE_BYTES / RATE / HIDDEN / (count / BATCH)
    found = {name: waited(reader, path, step_s) for name, reader in WAYS.items()}
    first_s, first_epoch_s = found["one by one"]
    rows = [
        Row(
            "Y2 waits one by one",
            f"{first_s:.2f} s",
            f"{first_epoch_s:.2f} s",
            first_s / first_epoch_s,
            0.5,
            at_least=True,
        )
    ]
    for before, after in zip(list(WAYS)[:-1], list(WAYS)[1:], strict=True):
        ours, theirs = found[after][0], found[before][0]
        text = f"{theirs:.2f} s {before}"
        rows.append(Row(f"Y3 waits {after}", f"{ours:.2f} s", text, ours / theirs, 1))
    last = found["in chunks, ahead"][0]
    text = f"{first_s:.2f} s one by one"
    rows.append(Row("Y3 last of first", f"{last:.2f} s", text, last / first_s, 0.05))
    return rows


# -- databases -------------------------------------------------------------------------


def make_database(folder: Path, count: int, size: int) -> None:
    rng = np.random.default_rng(4)
    folder.mkdir(parents=True)
    with (
        lmdb.open(str(folder / "db"), map_size=4 * count * size + (64 << 20)) as store,
        store.begin(write=True) as turn,
    ):
        for number in range(count):
            turn.put(b"%08d" % number, rng.bytes(size), append=True)


def saved_index(work: Path) -> list[Row]:
    """What it costs to open a database with an index and without."""
    make_database(work, SMALL_PAIRS, OVERFLOW_BYTES)
    size = (work / "db" / "data.mdb").stat().st_size
    with origin(work) as one:
        path = one.root / "db"
        one.reset()
        open_records(path, fresh=True).close()
        made = one.counts().read_bytes
        one.reset()
        open_records(path).close()
        counts = one.counts()
    # A stat is answered by what the kernel keeps for a second, too.
    opened = counts.opens + counts.reads + counts.listings + counts.stats
    return [
        Row(
            "L4 bytes read for an index",
            f"{made / 1e6:.2f} MB",
            f"{size / 1e6:.0f} MB",
            made / size,
            0.03,
        ),
        Row("L4 operations with a saved index", f"{opened}", "10", opened / 10, 1),
    ]


def measure(work: Path) -> list[Row]:
    """Measure all criteria; the indexes are kept here alone."""
    os.environ["XDG_STATE_HOME"] = str(work / "state")
    make_chunk_files(work / "chunks")
    with origin(work / "chunks") as one:
        size = CHUNK * CHUNK_BYTES
        rows = counted("chunk files", one, "*.h5::/rows", size, FILES + CHUNK)
    make_samples(work / "samples", SAMPLES)
    with origin(work / "samples") as one:
        size = GROUP * SAMPLE_BYTES
        rows += counted("small samples", one, "*.npy", size, 150)
        rows += hidden(one, SAMPLES * SAMPLE_BYTES)
    make_samples(work / "tenth", SAMPLES // TENTH)
    with origin(work / "tenth") as one:
        rows += ablation(one, SAMPLES // TENTH)
    return [*rows, *saved_index(work / "small")]


def main() -> int:
    """Measure alone."""
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        rows = measure(Path(base))
    print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
