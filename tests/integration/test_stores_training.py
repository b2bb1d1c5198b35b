"""A small model, trained by two ranks, is the same wherever its images are."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from monarch.loader import Loader
from monarch.records import Records, open_records
from monarch.records.ingest import IngestOptions, ingest
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.opening import client_of
from support.fake_s3 import FakeS3
from support.redis_servers import redis_server

pytest.importorskip("redis")
pytest.importorskip("botocore")
IMAGES, PIXELS, RANKS, EPOCHS = 160, 64, 2, 3
BATCH = 10
RATE = 0.01
Array = npt.NDArray[np.float64]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of two classes, whose sum of pixels tells the class."""
    chance = random.Random(2)
    for number in range(IMAGES):
        label = number % 2
        pixels = bytes(chance.randrange(128) + 100 * label for _ in range(PIXELS))
        file = tmp_path / "images" / str(label) / f"{number}.raw"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pixels)
    return tmp_path / "images"


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


def trained(records: Records, labels: Array) -> tuple[Array, list[list[int]]]:
    """The weights of a logistic regression, and the Records of its batches."""
    loaders = [
        Loader(
            *(records, BATCH),
            rank=rank,
            world_size=RANKS,
            seed=5,
            shuffle="global",
        )
        for rank in range(RANKS)
    ]
    weights = np.zeros(PIXELS)
    order: list[list[int]] = []
    for _ in range(EPOCHS):
        for batches in zip(*loaders, strict=True):
            steps = []
            for batch in batches:
                order.append(batch.ids.tolist())
                rows = [np.frombuffer(one, np.uint8) for one in batch.records]
                images = np.array(rows) / 255
                guessed = 1 / (1 + np.exp(-images @ weights))
                steps.append(images.T @ (guessed - labels[batch.ids]))
            weights = weights - RATE * np.mean(steps, axis=0)
    for loader in loaders:
        loader.close()
    return weights, order


def test_a_model_is_the_same_from_a_folder_a_redis_and_a_bucket(
    stores: dict[str, Records],
) -> None:
    column = stores["redis"].columns["label"]
    labels = np.array([float(column.name_of(value)) for value in column.values])

    expected, order = trained(stores["folder"], labels)
    assert len(order) == EPOCHS * IMAGES // BATCH
    for name in ("redis", "bucket"):
        weights, seen = trained(stores[name], labels)
        assert seen == order
        assert np.array_equal(weights, expected)
    assert np.any(expected)
