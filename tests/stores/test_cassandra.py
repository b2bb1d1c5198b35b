"""Tables of a real Cassandra: ingested ones and those of existing users."""

import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monarch.loader import Loader
from monarch.records import open_records
from monarch.records.errors import RecordsError
from monarch.records.ingest import IngestOptions, ingest
from monarch.records.stores.address import PASSWORD, USER, StoreAddress
from monarch.records.stores.opening import client_of
from support.cassandra_servers import PORT, Cassandra, cassandra_node
from support.training import labels_of, make_images, trained

pytestmark = [pytest.mark.stores, pytest.mark.timeout(400)]
CHANCE = random.Random(10)
LABELS = ("cat", "dog", "owl")
COUNT = 150
NAME = PASSWORD_TEXT = "cassandra"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, tools: None) -> Iterator[Cassandra]:
    """One node with passwords and an empty keyspace."""
    folder = tmp_path_factory.mktemp("cassandra") / "node"
    with cassandra_node(folder, has_passwords=True) as one:
        with session_of([one.host], secret=PASSWORD_TEXT) as session:
            session.execute(keyspace("sets", 1))
        yield one


@pytest.fixture(scope="module")
def tools() -> None:
    """Names the missing program."""
    import shutil

    for name in ("java", "mvn"):
        assert shutil.which(name), f"needs {name}: apt-get install maven"


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in the environment."""
    monkeypatch.setenv(USER, NAME)
    monkeypatch.setenv(PASSWORD, PASSWORD_TEXT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files in folders by label."""
    for number in range(COUNT):
        file = tmp_path / "pets" / LABELS[number % 3] / f"{number}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(CHANCE.randbytes(CHANCE.randrange(15_000)))
    return tmp_path / "pets"


def keyspace(name: str, copies: int) -> str:
    """The statement that makes a keyspace."""
    options = f"{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
    return f"CREATE KEYSPACE {name} WITH replication = {options}"


@contextmanager
def session_of(hosts: list[str], secret: str = "") -> Iterator[Any]:
    """A session of the library; passwords take a moment after the first start."""
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import Cluster, NoHostAvailable

    auth = PlainTextAuthProvider(NAME, secret) if secret else None
    deadline = time.monotonic() + 60
    while True:
        cluster = Cluster(hosts, port=PORT, protocol_version=4, auth_provider=auth)
        try:
            yield cluster.connect()
        except NoHostAvailable:
            cluster.shutdown()
            assert time.monotonic() < deadline
            time.sleep(1)
        else:
            cluster.shutdown()
            return


def write(folder: Path, address: str) -> None:
    """Ingests a folder."""
    with ExitStack() as stack:
        client = client_of(StoreAddress.parse(address))
        stack.callback(client.close)
        ingest(open_records(folder), client, IngestOptions("pets"))


@pytest.mark.usefixtures("secrets")
def test_ingested_data_is_readable_by_another_client(
    node: Cassandra, folder: Path
) -> None:
    address = f"cassandra://{node.host}:{PORT}/sets.pets"
    write(folder, address)

    stored, files = open_records(f"{address}?index=pets"), open_records(folder)
    with session_of([node.host], PASSWORD_TEXT) as session:
        rows = {row.id: row.data for row in session.execute("SELECT * FROM sets.pets")}
    for number in range(COUNT):
        path = Path(files.index.files[files.index.range_of(number).object].path)
        assert rows[f"pets/{path.relative_to(folder)}"] == path.read_bytes()

    dogs = stored.where(label="dog")
    assert len(dogs) == COUNT // 3
    with (
        Loader(stored, 10, seed=3) as one,
        Loader(files, 10, seed=3, shuffle="global") as other,
    ):
        for _ in range(2):
            for batch, expected in zip(one, other, strict=True):
                assert [*map(bytes, batch.records)] == [*map(bytes, expected.records)]
        assert one.stats()["retries"] == 0


@pytest.mark.usefixtures("secrets")
def test_a_model_is_the_same_from_a_folder_and_a_table(
    node: Cassandra, tmp_path: Path
) -> None:
    address = f"cassandra://{node.host}:{PORT}/sets.images"
    images = make_images(tmp_path / "pets")
    write(images, address)
    stored = open_records(f"{address}?index=pets")
    labels = labels_of(stored)

    expected, order = trained(open_records(images), labels)
    weights, seen = trained(stored, labels)

    assert seen == order
    assert np.array_equal(weights, expected)
    assert np.any(expected)


@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize("in_order", [True, False])
def test_tables_of_the_seed_are_read_as_they_are(
    node: Cassandra, in_order: bool
) -> None:
    """cassandra-dali-plugin: data and metadata by UUID, no lengths anywhere."""
    name = f"seed_{in_order}".lower()
    images = {uuid.UUID(int=CHANCE.getrandbits(128)): n for n in range(COUNT)}
    payloads = {n: CHANCE.randbytes(n * 50) for n in range(COUNT)}
    with session_of([node.host], PASSWORD_TEXT) as session:
        session.execute(keyspace(name, 1))
        session.execute(
            f"CREATE TABLE {name}.data (id uuid, label int, data blob, "
            "PRIMARY KEY ((id))) WITH compression = {'enabled': false}"
        )
        session.execute(
            f"CREATE TABLE {name}.meta (id uuid, label int, or_split text, "
            "PRIMARY KEY ((id)))"
        )
        data = session.prepare(
            f"INSERT INTO {name}.data (id, label, data) VALUES (?,?,?)"
        )
        meta = session.prepare(
            f"INSERT INTO {name}.meta (id, label, or_split) VALUES (?,?,?)"
        )
        for key, number in images.items():
            session.execute(data, (key, number % 3, payloads[number]))
            split = "train" if number % 5 else "val"
            session.execute(meta, (key, number % 3, split))

    stored = open_records(
        f"cassandra://{node.host}:{PORT}/{name}.data?metadata={name}.meta"
    )
    train = stored.where(or_split="train")
    keys = stored.index.keys
    assert keys is not None
    numbers = [images[uuid.UUID(bytes=keys.key(n))] for n in range(COUNT)]

    assert len(train) == COUNT - COUNT // 5
    assert [stored[n] for n in range(20)] == [payloads[n] for n in numbers[:20]]
    labels = stored.columns["label"].values
    assert [int(label) for label in labels] == [number % 3 for number in numbers]
    with Loader(stored, 10, in_order=in_order, window=32) as loader:
        for _ in range(2):
            seen = {
                int(record): bytes(payload)
                for batch in loader
                for record, payload in zip(batch.ids, batch.records, strict=True)
            }
            assert seen == {n: payloads[number] for n, number in enumerate(numbers)}


def test_wrong_passwords_tables_and_hosts_are_reported_in_one_line(
    node: Cassandra, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(address: str) -> str:
        began_s = time.monotonic()
        with pytest.raises(RecordsError) as caught:
            open_records(address)
        assert time.monotonic() - began_s < 15
        text = str(caught.value)
        assert "\n" not in text
        assert "not-the-password" not in text
        return text

    host = f"cassandra://{node.host}:{PORT}"
    assert "wants a user and a password" in refusal(f"{host}/sets.pets?index=x")
    monkeypatch.setenv(USER, NAME)
    monkeypatch.setenv(PASSWORD, "not-the-password")
    for end in ("", "?index=pets"):
        text = refusal(f"{host}/sets.pets{end}")
        assert "incorrect" in text
        assert "MONARCH_STORE_PASSWORD_FILE" in text
    monkeypatch.setenv(PASSWORD, PASSWORD_TEXT)
    write(folder, f"{host}/sets.pets")
    assert "does not exist" in refusal(f"{host}/sets.none?index=x")
    assert "none" in refusal(f"{host}/sets.none")
    assert "refused" in refusal(f"cassandra://{node.host}:1/sets.pets?index=x")
    assert "no such row" in refusal(f"{host}/sets.pets?index=none")


def test_an_epoch_is_complete_when_one_of_three_nodes_is_killed(
    tmp_path: Path, folder: Path, tools: None
) -> None:
    hosts = [f"127.0.1.{n}" for n in (1, 2, 3)]
    with ExitStack() as stack:
        nodes = [stack.enter_context(started(tmp_path / host, host)) for host in hosts]
        with session_of(hosts) as session:
            session.execute(keyspace("sets", 2))
        write(folder, f"cassandra://{','.join(f'{h}:{PORT}' for h in hosts)}/sets.pets")
        stored = open_records(f"cassandra://{hosts[0]}:{PORT}/sets.pets?index=pets")
        files = open_records(folder)
        with Loader(stored, 10, window=32, timeout=60) as loader:
            assert complete(loader, files)
            blow = threading.Thread(target=nodes[2].end, args=[signal.SIGKILL])
            blow.start()
            began_s = time.monotonic()
            assert all(complete(loader, files) for _ in range(3))
            assert time.monotonic() - began_s < 10
            blow.join()
            stats = loader.stats()
        assert stats["most_reads_at_once"] > 1
    assert np.array_equal(np.sort(stored.index.units["object"]), np.arange(COUNT))


@contextmanager
def started(folder: Path, host: str) -> Iterator[Cassandra]:
    """A node of a cluster of three."""
    node = Cassandra(folder, host, seed="127.0.1.1", heap_mib=512)
    try:
        node.start()
        yield node
    finally:
        node.end()


def complete(loader: Loader, files: Any) -> bool:
    """Whether an epoch has each Record once, with its payload."""
    seen = [
        (int(record), bytes(payload))
        for batch in loader
        for record, payload in zip(batch.ids, batch.records, strict=True)
    ]
    return sorted(seen) == [(number, files[number]) for number in range(COUNT)]
