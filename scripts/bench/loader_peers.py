"""The loaders that are compared: each gives the same Records in batches of its own.

A loader is imported when its reader is made, and opens the dataset when it is told to.
Records have different sizes, so a batch is a list of them: bytes, or what can be looked
at as bytes.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from loader_formats import lmdb_key, records, shards

BATCH = 64
SEED = 7
WORKERS = 8
FEW_WORKERS = 4
BUFFERED = 2000
"""Records in the shuffle buffer of those that have one."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader finds and puts things.

    Args:
        data: the folder of all formats.
        cache: a folder for what a loader keeps of its own.
        count: how many Records there are.
        is_local: `data` is as fast as memory.
        stops: the epoch is left in its middle, or resumed.
    """

    data: Path
    cache: Path
    count: int
    is_local: bool
    stops: bool


class Reader:
    """A loader of one dataset.

    Args:
        place: see there.
    """

    resumes: ClassVar = False

    def __init__(self, place: Place) -> None:
        self.place = place

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch; the first call opens the dataset."""
        raise NotImplementedError

    def save(self, path: Path) -> None:
        """Keep how far the epoch is."""
        raise NotImplementedError

    def load(self, path: Path) -> None:
        """Let the next epoch be the rest of one that was left."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """What the loader tells of itself."""
        return {}


class MonarchReader(Reader):
    """Monarch's own, over files as they are."""

    resumes = True
    paths: ClassVar = {
        "lmdb": "lmdb",
        "tfrecord": "tfrecord/*.tfrecord",
        "tar": "tar/*.tar",
        "hdf5": "hdf5/data.h5::/records",
    }

    def __init__(self, place: Place, name: str) -> None:
        super().__init__(place)
        self._make = import_module("monarch.loader").Loader
        kind, _, start = name.partition("-")
        self._path = str(place.data / self.paths[kind])
        self._start = start or "whole"
        is_tar = kind == "tar"
        self._members = import_module("monarch.records").members if is_tar else None
        self._loader: Any = None

    def _open(self) -> Any:
        if self._loader is None:
            self._loader = self._make(
                self._path, BATCH, seed=SEED, remainder="uneven", start=self._start
            )
        return self._loader

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch."""
        loader = self._open()
        if not self.place.stops:
            loader.set_epoch(number)
        for batch in loader:
            yield [self._payload(record) for record in batch.records]

    def _payload(self, record: memoryview) -> memoryview:
        """Return the only file of a sample of a tar, or the Record."""
        if self._members is None:
            return record
        payload: memoryview
        ((_, payload),) = self._members(record)
        return payload

    def save(self, path: Path) -> None:
        """Keep how far the epoch is."""
        path.write_text(json.dumps(self._loader.state_dict()))

    def load(self, path: Path) -> None:
        """Let the next epoch be the rest of one that was left."""
        self._open().load_state_dict(json.loads(path.read_text()))

    def stats(self) -> dict[str, Any]:
        """What the loader tells of itself."""
        found: dict[str, Any] = self._loader.stats()
        return found


# -- PyTorch ---------------------------------------------------------------------------


class LmdbRows:
    """Records of an LMDB one by one, as programs read them; each worker opens it."""

    def __init__(self, place: Place, readahead: bool) -> None:
        self._lmdb = import_module("lmdb")
        self._place, self._readahead = place, readahead
        self._turn: Any = None

    def __len__(self) -> int:
        return self._place.count

    def __getitem__(self, number: int) -> bytes:
        if self._turn is None:
            path, hint = str(self._place.data / "lmdb"), self._readahead
            store = self._lmdb.open(path, readonly=True, lock=False, readahead=hint)
            self._turn = store.begin()
        found: bytes = self._turn.get(lmdb_key(number))
        return found


class TorchReader(Reader):
    """PyTorch's DataLoader, or torchdata's one that can be resumed."""

    resumes = True

    def __init__(self, place: Place, readahead: bool) -> None:
        super().__init__(place)
        self._torch = import_module("torch")
        if place.stops:
            kind = import_module("torchdata.stateful_dataloader").StatefulDataLoader
        else:
            kind = import_module("torch.utils.data").DataLoader
        self._order = self._torch.Generator().manual_seed(SEED)
        self._loader = kind(
            LmdbRows(place, readahead),
            batch_size=BATCH,
            shuffle=True,
            num_workers=WORKERS,
            collate_fn=list,
            generator=self._order,
        )

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch."""
        yield from self._loader

    def save(self, path: Path) -> None:
        """Keep how far the epoch is."""
        self._torch.save(self._loader.state_dict(), path)

    def load(self, path: Path) -> None:
        """Let the next epoch be the rest of one that was left."""
        self._loader.load_state_dict(self._torch.load(path, weights_only=False))


class WebDatasetReader(Reader):
    """WebDataset in the process itself: shards in random order, and a buffer."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("webdataset")

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch."""
        urls = sorted(map(str, (self.place.data / "tar").glob("*.tar")))
        rows = self._module.WebDataset(urls, shardshuffle=len(urls), seed=number)
        rows = rows.shuffle(BUFFERED).to_tuple("bin")
        for [batch] in rows.batched(BATCH, partial=True):
            yield batch


# -- those that convert the dataset ----------------------------------------------------


def import_streaming() -> Any:
    """mosaicml-streaming.

    It imports torchvision for datasets that are not used here. The torchvision of the
    registry has no operators for a PyTorch that was made for CPUs alone.
    """
    torch = import_module("torch")
    if "+cpu" in torch.__version__:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor a, Tensor b, float c) -> Tensor")
        import_streaming.library = library  # type: ignore[attr-defined]
    return import_module("streaming")


def make_mds(folder: Path, count: int) -> None:
    """Write shards of mosaicml-streaming."""
    columns = {"record": "bytes"}
    with import_streaming().MDSWriter(out=str(folder), columns=columns) as writer:
        for _, row in records(count):
            writer.write({"record": row.tobytes()})


def collated(rows: list[dict[str, bytes]]) -> dict[str, list[bytes]]:
    """Make a batch of which mosaicml-streaming can tell how many Records it has."""
    return {"record": [row["record"] for row in rows]}


class StreamingReader(Reader):
    """mosaicml-streaming, which copies shards into its cache."""

    resumes = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_streaming()
        self._loader: Any = None

    def _open(self) -> Any:
        if self._loader is None:
            self._module.base.util.clean_stale_shared_memory()
            data, cache = str(self.place.data / "mds"), str(self.place.cache)
            where = {"local": data}
            if not self.place.is_local:
                where = {"remote": data, "local": cache}
            rows = self._module.StreamingDataset(
                **where, shuffle=True, shuffle_seed=SEED, batch_size=BATCH
            )
            self._loader = self._module.StreamingDataLoader(
                rows, batch_size=BATCH, num_workers=FEW_WORKERS, collate_fn=collated
            )
        return self._loader

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch."""
        for batch in self._open():
            yield batch["record"]

    def save(self, path: Path) -> None:
        """Keep how far the epoch is."""
        path.write_bytes(pickle.dumps(self._loader.state_dict()))

    def load(self, path: Path) -> None:
        """Let the next epoch be the rest of one that was left."""
        self._open().load_state_dict(pickle.loads(path.read_bytes()))


def make_array_record(folder: Path, count: int) -> None:
    """Write shards from which each Record can be read alone."""
    module = import_module("array_record.python.array_record_module")
    for at, shard in enumerate(shards(count)):
        path = folder / f"{at:03}.array_record"
        writer = module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        for _, row in shard.records():
            writer.write(row.tobytes())
        writer.close()


class GrainReader(Reader):
    """grain's MapDataset: a global order, read by threads."""

    resumes = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("grain")
        self._current: Any = None
        self._saved: Any = None

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch."""
        paths = sorted((self.place.data / "array_record").glob("*.array_record"))
        source = self._module.sources.ArrayRecordDataSource(list(map(str, paths)))
        rows = self._module.MapDataset.source(source).shuffle(seed=SEED + number)
        rows = rows.to_iter_dataset().batch(BATCH, batch_fn=list)
        self._current = iter(rows)
        if self._saved is not None:
            self._current.set_state(self._saved)
        yield from self._current

    def save(self, path: Path) -> None:
        """Keep how far the epoch is."""
        path.write_bytes(pickle.dumps(self._current.get_state()))

    def load(self, path: Path) -> None:
        """Let the next epoch be the rest of one that was left."""
        self._saved = pickle.loads(path.read_bytes())


def make_litdata(folder: Path, count: int) -> None:
    """Write chunks of litdata."""
    import_module("litdata").optimize(
        fn=partial(litdata_rows, count),
        inputs=list(range(len(list(shards(count))))),
        output_dir=str(folder),
        chunk_bytes="64MB",
        num_workers=1,
        start_method="fork",
        verbose=False,
    )


def litdata_rows(count: int, at: int) -> Iterator[bytes]:
    """The Records of one shard."""
    for number, shard in enumerate(shards(count)):
        if number == at:
            for _, row in shard.records():
                yield row.tobytes()


def as_bytes(batch: list[memoryview]) -> list[bytes]:
    """What a worker can send of views into its chunks."""
    return [bytes(record) for record in batch]


class LitdataReader(Reader):
    """litdata's StreamingDataset."""

    resumes = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("litdata")
        self._loader: Any = None

    def _open(self) -> Any:
        if self._loader is None:
            data = str(self.place.data / "litdata")
            rows = self._module.StreamingDataset(
                data, shuffle=True, drop_last=False, seed=SEED
            )
            self._loader = self._module.StreamingDataLoader(
                rows, batch_size=BATCH, num_workers=FEW_WORKERS, collate_fn=as_bytes
            )
        return self._loader

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch."""
        yield from self._open()

    def save(self, path: Path) -> None:
        """Keep how far the epoch is."""
        path.write_bytes(pickle.dumps(self._loader.state_dict()))

    def load(self, path: Path) -> None:
        """Let the next epoch be the rest of one that was left."""
        self._open().load_state_dict(pickle.loads(path.read_bytes()))


class TensorFlowReader(Reader):
    """tf.data over TFRecord: shards in random order, and a buffer."""

    resumes = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("tensorflow")
        self._current: Any = None
        self._saved: Path | None = None

    def epoch(self, number: int) -> Iterator[Any]:
        """Give the batches of an epoch."""
        tf, auto = self._module, self._module.data.AUTOTUNE
        paths = str(self.place.data / "tfrecord" / "*.tfrecord")
        files = tf.data.Dataset.list_files(paths, shuffle=True, seed=SEED + number)
        rows = files.interleave(
            tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=auto
        )
        rows = rows.shuffle(BUFFERED, seed=SEED + number).batch(BATCH)
        self._current = iter(rows.prefetch(auto))
        if self._saved is not None:
            self._checkpoint().read(str(self._saved))
        for batch in self._current:
            yield batch.numpy()

    def _checkpoint(self) -> Any:
        return self._module.train.Checkpoint(iterator=self._current)

    def save(self, path: Path) -> None:
        """Keep how far the epoch is."""
        self._checkpoint().write(str(path))

    def load(self, path: Path) -> None:
        """Let the next epoch be the rest of one that was left."""
        self._saved = path


READERS: dict[str, Callable[[Place], Reader]] = {
    **{
        f"monarch-{one}": partial(MonarchReader, name=one)
        for one in (*MonarchReader.paths, "tfrecord-early", "tar-early")
    },
    "torch-lmdb": partial(TorchReader, readahead=True),
    "torch-lmdb-random": partial(TorchReader, readahead=False),
    "webdataset": WebDatasetReader,
    "streaming": StreamingReader,
    "grain": GrainReader,
    "litdata": LitdataReader,
    "tf.data": TensorFlowReader,
}
CONVERTERS: dict[str, Callable[[Path, int], None]] = {
    "mds": make_mds,
    "array_record": make_array_record,
    "litdata": make_litdata,
}
