"""A small model, trained by two ranks, is the same wherever its images are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from monarch.records import Records, open_records
from monarch.records.ingest import IngestOptions, ingest
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.opening import client_of
from support.fake_s3 import FakeS3
from support.redis_servers import redis_server
from support.training import BATCH, EPOCHS, IMAGES, labels_of, make_images, trained

pytest.importorskip("redis")
pytest.importorskip("botocore")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images in folders by label."""
    return make_images(tmp_path / "images")


@pytest.fixture
def stores(
    folder: Path, tmp_path: Path, tool: Callable[[str], str]
) -> Iterator[dict[str, Records]]:
    """The same images in a folder, a Redis and a bucket."""
    tool("redis-server")
    with (
        redis_server(tmp_path / "redis") as redis,
        FakeS3({}).served() as bucket,
        pytest.MonkeyPatch.context() as patch,
    ):
        bucket.use(patch)
        opened = {"folder": open_records(folder)}
        for name, address in (
            ("redis", f"redis://127.0.0.1:{redis.port}/0"),
            ("bucket", "s3://bucket/sets/"),
        ):
            client = client_of(StoreAddress.parse(address))
            ingest(opened["folder"], client, IngestOptions("images"))
            client.close()
            opened[name] = open_records(f"{address}?index=images")
        yield opened
        for records in opened.values():
            records.close()


def test_a_model_is_the_same_from_a_folder_a_redis_and_a_bucket(
    stores: dict[str, Records],
) -> None:
    labels = labels_of(stores["redis"])

    expected, order = trained(stores["folder"], labels)
    assert len(order) == EPOCHS * IMAGES // BATCH
    for name in ("redis", "bucket"):
        weights, seen = trained(stores[name], labels)
        assert seen == order
        assert np.array_equal(weights, expected)
    assert np.any(expected)
