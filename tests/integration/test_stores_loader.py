"""A loader on the Records of a real Redis server: the same batches as from a folder."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from monarch.loader import Loader
from monarch.records import Records, open_records
from monarch.records.errors import RecordsError
from monarch.records.keys import KeyIndex
from monarch.records.stores.source import StoreSource, index_of
from support.redis_servers import Redis, redis_cluster, redis_server
from support.store_ranks import read_by_four

pytest.importorskip("redis")
EPOCHS = 3
BATCH = 16
FILES = 40
LABELS = ("cat", "dog", "owl")
LOCAL = "127.0.0.1"


@pytest.fixture
def folder(tmp_path: Path, tool: Callable[[str], str]) -> Path:
    """Files by split and label, of odd sizes, one of them empty."""
    tool("redis-server")
    chance = random.Random(3)
    root = tmp_path / "images"
    for split in ("train", "val"):
        for label in LABELS:
            (root / split / label).mkdir(parents=True)
            for number in range(FILES):
                size = chance.randrange(1, 9000) if number else 0
                file = root / split / label / f"{number} of {label}.jpg"
                file.write_bytes(chance.randbytes(size))
    return root


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """A server without anything."""
    with redis_server(tmp_path / "redis") as one:
        yield one


def ingest(folder: Path, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    """`monarch records ingest`."""
    words = [sys.executable, "-P", "-m", "monarch", "records", "ingest", str(folder)]
    words += ["--to", f"redis://{LOCAL}:{port}/0", *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def store_of(server: Redis, name: str = "images") -> Records:
    """What an ingest has written."""
    return open_records(f"redis://{LOCAL}:{server.port}/0?index={name}")


def epochs(loader: Loader, count: int = EPOCHS) -> list[list[tuple[Any, ...]]]:
    """The numbers and the payloads of the batches of some epochs."""
    return [
        [
            (batch.ids.tolist(), [bytes(one) for one in batch.records])
            for batch in loader
        ]
        for _ in range(count)
    ]


def test_batches_from_a_store_equal_those_of_the_ingested_folder(
    folder: Path, server: Redis
) -> None:
    done = ingest(folder, server.port)
    assert done.returncode == 0, done.stderr
    assert "wrote 240 records" in done.stderr

    stored, files = store_of(server), open_records(folder)
    with (
        Loader(stored, BATCH, seed=4, remainder="uneven") as of_store,
        Loader(files, BATCH, seed=4, remainder="uneven", shuffle="global") as of_files,
    ):
        assert epochs(of_store) == epochs(of_files)
        stats = of_store.stats()

    # The last epoch begins to read another one, which never starts.
    assert len(stored) * EPOCHS <= stats["requests"] <= len(stored) * (EPOCHS + 1)
    assert stats["retries"] == 0


def test_columns_of_the_folder_choose_records_without_reading_them(
    folder: Path, server: Redis
) -> None:
    ingest(folder, server.port)
    stored = store_of(server)

    train = stored.where(split="train", label=["cat", "owl"])
    parts = train.split({"fit": 0.75, "check": 0.25}, seed=1, by="label")

    assert len(train) == 2 * FILES
    assert {name: len(part) for name, part in parts.items()} == {"fit": 60, "check": 20}
    labels = parts["fit"].columns["label"]
    names = {labels.name_of(value) for value in labels.values}
    assert names == {"cat", "owl"}
    with Loader(parts["fit"], 20, in_order=False, window=40) as loader:
        (epoch,) = epochs(loader, 1)
    seen = sorted(payload for _, batch in epoch for payload in batch)
    assert seen == sorted(parts["fit"][number] for number in range(60))


def test_an_epoch_resumes_on_another_number_of_ranks(
    folder: Path, server: Redis
) -> None:
    ingest(folder, server.port)
    stored = store_of(server)
    with Loader(stored, 24, seed=2) as whole:
        (expected,) = epochs(whole, 1)

    with Loader(stored, 24, seed=2, rank=0, world_size=1) as first:
        batches = iter(first)
        seen = [next(batches).ids.tolist() for _ in range(3)]
        state = first.state_dict()
    rest = []
    for rank in range(2):
        with Loader(stored, 12, seed=2, rank=rank, world_size=2) as other:
            other.load_state_dict(state)
            rest.append([batch.ids.tolist() for batch in other])
    seen += [one + two for one, two in zip(*rest, strict=True)]

    assert seen == [ids for ids, _ in expected]


def test_a_killed_ingest_resumes_and_completes(
    folder: Path, server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarch.records.ingest.BATCH_BYTES", 50_000)
    from monarch.records.ingest import IngestOptions
    from monarch.records.ingest import ingest as write
    from monarch.records.stores.address import StoreAddress
    from monarch.records.stores.redis_client import RedisClient

    class Dies(RedisClient):
        """Fails at the sixth write."""

        left = 6

        def write(self, objects: Any) -> None:
            self.left -= 1
            if not self.left:
                raise RecordsError("the power failed")
            super().write(objects)

    address = StoreAddress.parse(f"redis://{LOCAL}:{server.port}/0")
    with pytest.raises(RecordsError, match="the power failed"):
        write(open_records(folder), Dies(address), IngestOptions("images"))
    with pytest.raises(RecordsError, match="no such key"):
        store_of(server)

    done = ingest(folder, server.port)
    assert done.returncode == 0, done.stderr
    assert "earlier" in done.stderr
    assert "0 records earlier" not in done.stderr
    stored, files = store_of(server), open_records(folder)
    assert [stored[n] for n in range(240)] == [files[n] for n in range(240)]


def test_a_record_that_was_changed_is_refused_by_its_key(
    folder: Path, server: Redis
) -> None:
    ingest(folder, server.port)
    stored = store_of(server)
    key = b"images/train/cat/7 of cat.jpg"
    keys = stored.index.keys
    assert keys is not None
    number = next(n for n in range(len(stored)) if keys.key(n) == key)
    content = bytearray(stored[number])
    content[-1] ^= 1
    server.set({key: bytes(content)})

    with pytest.raises(RecordsError, match=r"7 of cat.jpg: it was changed since"):
        stored[number]
    with (
        Loader(stored, BATCH) as loader,
        pytest.raises(Exception, match=r"record \d+: .*7 of cat.jpg: it was changed"),
    ):
        epochs(loader)


def test_a_database_without_an_index_is_listed(server: Redis) -> None:
    values = {b"key%03d" % number: bytes(number) for number in range(300)}
    server.set(values)

    found = open_records(f"redis://{LOCAL}:{server.port}/0")

    assert [found[n] for n in range(len(found))] == [*values.values()]


@pytest.mark.parametrize("in_order", [True, False])
def test_records_of_unknown_lengths_are_read_before_memory_is_reserved(
    server: Redis, in_order: bool
) -> None:
    values = {
        b"key%03d" % number: bytes([number]) * (number * 37) for number in range(200)
    }
    server.set(values)
    address = f"redis://{LOCAL}:{server.port}/0"
    records = Records(StoreSource(index_of(KeyIndex.of(address, [*values]))), True)

    assert records[7] == values[b"key007"]
    with Loader(
        records, 16, in_order=in_order, window=48, remainder="uneven"
    ) as loader:
        for _ in range(2):
            pairs = (
                zip(ids, batch, strict=True) for ids, batch in epochs(loader, 1)[0]
            )
            seen = dict(chain.from_iterable(pairs))
            assert [seen[n] for n in range(200)] == [*values.values()]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_of_one_node_share_one_reader_and_its_connections(
    folder: Path, server: Redis, start: str
) -> None:
    ingest(folder, server.port)
    stored = store_of(server)
    ids, readers, clients = read_by_four(stored, start)

    assert len(readers) == 1
    assert ids == list(range(240))
    # The server has at most 8 connections from a reader, and one from this test.
    assert clients <= 8 + 1


def test_an_epoch_is_complete_when_a_master_of_a_cluster_is_killed(
    tmp_path: Path, folder: Path
) -> None:
    with redis_cluster(tmp_path / "cluster") as servers:
        done = ingest(folder, servers[1].port)
        assert done.returncode == 0, done.stderr
        stored, files = store_of(servers[1]), open_records(folder)
        listed = open_records(f"redis://{LOCAL}:{servers[1].port}/0")
        assert len(listed) == len(files)
        with Loader(stored, BATCH, window=32, timeout=30) as loader:
            first = epochs(loader, 1)
            threading.Thread(target=servers[0].end, args=[signal.SIGKILL]).start()
            began_s = time.monotonic()
            rest = epochs(loader)
            took_s = time.monotonic() - began_s
            stats = loader.stats()

    for epoch in first + rest:
        seen = dict(
            pair for ids, batch in epoch for pair in zip(ids, batch, strict=True)
        )
        assert seen == {number: files[number] for number in range(len(files))}
    assert 0 < stats["retries"] < len(files)
    assert took_s < 20
