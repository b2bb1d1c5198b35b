"""Records of a bucket: right, whatever the server does meanwhile."""

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monarch.cli.ingest import keep_index
from monarch.errors import UsageError
from monarch.loader import Loader
from monarch.loader.wire import LoaderError
from monarch.records import open_records
from monarch.records.errors import RecordsError
from monarch.records.ingest import IngestOptions, ingest
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.opening import client_of
from support.fake_s3 import KEY, SECRET, Act, FakeS3

pytest.importorskip("botocore")
CHANCE = random.Random(5)
OBJECTS = {
    f"train/{label}/{n} é+&.bin": CHANCE.randbytes(CHANCE.randrange(5000))
    for label in ("cat", "dog")
    for n in range(60)
}
COUNT = len(OBJECTS)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    """A bucket with OBJECTS."""
    with FakeS3(dict(OBJECTS)).served() as server:
        server.use(monkeypatch)
        yield server


def seen_in(loader: Loader) -> dict[int, bytes]:
    """The payloads of an epoch by their numbers; each comes once."""
    found: dict[int, bytes] = {}
    for batch in loader:
        for number, payload in zip(batch.ids.tolist(), batch.records, strict=True):
            assert number not in found
            found[number] = bytes(payload)
    return found


@pytest.mark.parametrize("plain_tags", [True, False])
@pytest.mark.parametrize("in_order", [True, False])
def test_each_object_below_a_prefix_is_a_record(
    bucket: FakeS3, in_order: bool, plain_tags: bool
) -> None:
    bucket.plain_tags = plain_tags
    bucket.objects["other/x"] = b"not of this prefix"
    told: list[tuple[str, int, int]] = []
    records = open_records(
        "s3://bucket/train/", progress=lambda *step: told.append(step)
    )
    expected = {number: OBJECTS[key] for number, key in enumerate(sorted(OBJECTS))}

    with Loader(
        records, 16, in_order=in_order, window=64, remainder="uneven"
    ) as loader:
        assert seen_in(loader) == expected
        stats = loader.stats()
        assert seen_in(loader) == expected

    assert told[-1] == ("listed", COUNT, 0)
    assert records[7] == expected[7]
    assert stats["retries"] == 0
    assert stats["requests"] == COUNT
    assert bucket.connections <= 64 + 32


@pytest.mark.parametrize(
    "act",
    [
        Act(503, "SlowDown"),
        Act(500, "InternalError"),
        Act(resets=0),
        Act(resets=100),
    ],
    ids=["slow down", "error", "reset", "half"],
)
def test_temporary_failures_are_retried(bucket: FakeS3, act: Act) -> None:
    bucket.act = lambda serial, key: act if serial % 7 == 3 else None
    records = open_records("s3://bucket/train/")

    with Loader(records, 16, window=32, remainder="uneven") as loader:
        assert len(seen_in(loader)) == COUNT
        assert loader.stats()["retries"] > 0
        assert len(bucket.gets) < 1.4 * COUNT


def test_a_temporarily_unreachable_server_loses_no_record() -> None:
    environ = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        first = FakeS3(dict(OBJECTS))
        with first.served():
            address = f"s3://bucket/train/?endpoint={first.url}"
            loader = Loader(open_records(address), 10, window=16, timeout=30)
            batches = iter(loader)
            seen = [tuple(next(batches).ids)]
        time.sleep(1)
        with FakeS3(dict(OBJECTS), port=first.port).served():
            began_s = time.monotonic()
            seen += [tuple(batch.ids) for batch in batches]
            assert time.monotonic() - began_s < 10
        loader.close()

    assert len({number for ids in seen for number in ids}) == COUNT


@pytest.mark.parametrize("plain_tags", [True, False])
def test_an_object_that_was_changed_is_refused_by_its_key(
    bucket: FakeS3, plain_tags: bool
) -> None:
    bucket.plain_tags = plain_tags
    records = open_records("s3://bucket/train/")
    key = sorted(OBJECTS)[11]
    bucket.objects[key] = bytes(len(OBJECTS[key]))

    with pytest.raises(RecordsError, match=r"cat/19 .*it was changed since"):
        records[11]
    with (
        Loader(records, 16) as loader,
        pytest.raises(LoaderError, match=r"record 11: .*it was changed since"),
    ):
        seen_in(loader)


def test_an_ingested_bucket_is_read_with_its_columns(
    bucket: FakeS3, tmp_path: Path
) -> None:
    bucket.objects.clear()
    for key, content in OBJECTS.items():
        file = tmp_path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    files = open_records(tmp_path)
    client = client_of(StoreAddress.parse("s3://bucket/sets/"))
    ingest(files, client, IngestOptions("pets"))
    client.close()

    stored = open_records("s3://bucket/sets/?index=pets")
    dogs = stored.where(label="dog")

    assert [stored[n] for n in range(COUNT)] == [files[n] for n in range(COUNT)]
    assert len(dogs) == 60
    assert all(key.startswith("sets/") for key in bucket.objects)
    with pytest.raises(RecordsError, match=r"dogs.*(NoSuchKey|no such object)"):
        open_records("s3://bucket/sets/?index=dogs")


def test_keys_are_replaced_before_they_expire(
    bucket: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process gives keys for some seconds, each time others."""
    program = tmp_path / "keys.py"
    program.write_text(
        "import datetime, json, os\n"
        "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)\n"
        f"print(json.dumps({{'Version': 1, 'AccessKeyId': '{KEY}%d' % os.getpid(),\n"
        f" 'SecretAccessKey': '{SECRET}', 'Expiration': end.isoformat()}}))\n"
    )
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    stored = open_records("s3://bucket/train/")
    bucket.keys.clear()

    with Loader(stored, 10, window=4) as loader:
        for _ in range(3):
            assert len(seen_in(loader)) == COUNT

    assert len(bucket.keys) > 1


def test_the_index_of_a_listing_is_kept_in_the_bucket(
    bucket: FakeS3,
) -> None:
    listed = open_records("s3://bucket/train/")
    address = keep_index(listed, "s3://bucket/train/", "all")
    lists = bucket.lists

    kept = open_records(address)

    assert address.endswith("?index=all")
    assert bucket.lists == lists
    assert [kept[n] for n in range(COUNT)] == [listed[n] for n in range(COUNT)]
    assert len(open_records("s3://bucket/train/")) == COUNT
    key = next(iter(OBJECTS))
    bucket.objects[key] = bytes(len(bucket.objects[key]))
    with pytest.raises(RecordsError, match="it was changed since"):
        [kept[n] for n in range(COUNT)]
    with pytest.raises(UsageError, match="--keep needs a listed destination"):
        keep_index(kept, address, "more")
    with pytest.raises(UsageError, match="use letters"):
        keep_index(listed, "s3://bucket/train/", "a b")


def test_a_bucket_that_cannot_be_opened_is_reported_in_one_line(
    bucket: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(address: str) -> str:
        began_s = time.monotonic()
        with pytest.raises(RecordsError) as caught:
            open_records(address)
        assert time.monotonic() - began_s < 10, "longer than on a busy machine"
        text = str(caught.value)
        assert "\n" not in text
        assert SECRET not in text
        return text

    assert "NoSuchBucket" in refusal("s3://nothing/train/")
    assert "no object found" in refusal("s3://bucket/nothing/")
    assert "is no URL" in refusal("s3://bucket/train/?endpoint=127.0.0.1:9")
    assert "unknown option regoin" in refusal("s3://bucket/train/?regoin=x")
    assert "do not put" in refusal("s3://bucket/train/?secret=x")
    assert "do not put" in refusal(f"s3://{KEY}:{SECRET}@bucket/train/")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OTHER")
    assert "InvalidAccessKeyId" in refusal("s3://bucket/train/")
    assert "AWS_SECRET_ACCESS_KEY" in refusal("s3://bucket/train/?index=pets")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "no credentials" in refusal("s3://bucket/train/?index=pets")
    assert "no-such" in refusal("s3://bucket/train/?profile=no-such&index=pets")
