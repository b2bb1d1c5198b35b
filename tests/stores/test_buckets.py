"""Buckets of third-party servers that check signatures and keep ETags."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from monarch.loader import Loader
from monarch.records import open_records
from monarch.records.errors import RecordsError
from monarch.records.ingest import IngestOptions, ingest
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.opening import client_of
from support.s3_servers import KEY, SECRET, juicefs, seaweedfs

pytestmark = pytest.mark.stores
CHANCE = random.Random(9)
FILES = {
    f"{label}/{n} é+%41.bin": CHANCE.randbytes(CHANCE.randrange(20_000))
    for label in ("cat", "dog")
    for n in range(50)
}
Server = Callable[[Path], AbstractContextManager[str]]


@pytest.fixture(scope="module", params=[seaweedfs, juicefs])
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The endpoint of a server."""
    served: Server = request.param
    with served(tmp_path_factory.mktemp("s3") / "server") as url:
        yield url


@pytest.fixture
def client(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """boto3's client of it, with keys in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return pytest.importorskip("boto3").client("s3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """FILES on a disk."""
    for name, content in FILES.items():
        file = tmp_path / "pets" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "pets"


def test_ingested_data_is_readable_by_another_client(client: Any, folder: Path) -> None:
    client.create_bucket(Bucket="written")
    writer = client_of(StoreAddress.parse("s3://written/sets/"))
    ingest(open_records(folder), writer, IngestOptions("pets"))
    writer.close()

    for name, content in FILES.items():
        found = client.get_object(Bucket="written", Key=f"sets/pets/{name}")
        assert found["Body"].read() == content

    stored, files = open_records("s3://written/sets/?index=pets"), open_records(folder)
    with (
        Loader(stored, 10, seed=3) as one,
        Loader(files, 10, seed=3, shuffle="global") as other,
    ):
        for batch, expected in zip(one, other, strict=True):
            assert [*map(bytes, batch.records)] == [*map(bytes, expected.records)]


def test_objects_written_by_other_clients_are_records(client: Any) -> None:
    client.create_bucket(Bucket="foreign")
    for name, content in FILES.items():
        client.put_object(Bucket="foreign", Key=f"pets/{name}", Body=content)

    stored = open_records("s3://foreign/pets/")

    assert [stored[n] for n in range(len(FILES))] == [
        FILES[key] for key in sorted(FILES)
    ]
    number = sorted(FILES).index("dog/7 é+%41.bin")
    client.put_object(Bucket="foreign", Key="pets/dog/7 é+%41.bin", Body=b"another")
    with pytest.raises(RecordsError, match=r"dog/7 .*(changed|expected)"):
        stored[number]


def test_a_wrong_secret_is_refused_and_not_shown(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    for address in ("s3://foreign/pets/", "s3://foreign/?index=pets"):
        with pytest.raises(RecordsError) as caught:
            open_records(address)
        assert "SignatureDoesNotMatch" in str(caught.value)
        assert "not-the-secret" not in str(caught.value)
