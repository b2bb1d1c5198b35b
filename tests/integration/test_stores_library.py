"""Stores read through a library: gs://, az:// and all others of fsspec."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from monarch.loader import Loader
from monarch.loader.wire import LoaderError
from monarch.records import open_records
from monarch.records.errors import RecordsError
from monarch.records.stores.library import told_by
from support.fake_s3 import FakeS3
from support.loaders import write_tfrecord

pytest.importorskip("fsspec")
CHANCE = random.Random(8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of objects, as file:// has them: one of fsspec's stores."""
    root = tmp_path / "objects"
    for number in range(40):
        place = root / f"class-{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:02}.bin").write_bytes(CHANCE.randbytes(100 + 13 * number))
    return root


def test_each_object_below_a_folder_is_a_record(folder: Path) -> None:
    records = open_records(f"file://{folder}/")
    files = sorted(path for path in folder.rglob("*") if path.is_file())

    with Loader(records, 8, in_order=False) as loader:
        found = {
            int(number): bytes(record)
            for batch in loader
            for number, record in zip(batch.ids, batch.records, strict=True)
        }
        stats = loader.stats()

    assert [found[n] for n in range(40)] == [path.read_bytes() for path in files]
    assert stats["requests"] == 40
    assert records[3] == files[3].read_bytes()


def test_packed_files_are_read_by_ranges(tmp_path: Path) -> None:
    values = [CHANCE.randbytes(n * 10) for n in range(60)]
    write_tfrecord(tmp_path / "a-0.tfrecord", values[:30])
    write_tfrecord(tmp_path / "a-1.tfrecord", values[30:])

    records = open_records(f"file://{tmp_path}/a-*.tfrecord")
    one = open_records(f"file://{tmp_path}/a-1.tfrecord")

    assert [records[n] for n in range(60)] == values
    assert [one[n] for n in range(30)] == values[30:]
    with Loader(records, 10) as loader:
        assert sum(len(batch) for batch in loader) == 60


def test_a_deleted_object_ends_the_epoch_with_its_key(folder: Path) -> None:
    records = open_records(f"file://{folder}/")
    (folder / "class-0" / "00.bin").unlink()

    with (
        Loader(records, 7) as loader,
        pytest.raises(LoaderError, match=r"class-0/00\.bin: no such object"),
    ):
        sum(len(batch) for batch in loader)


def test_an_object_of_another_length_is_refused(folder: Path) -> None:
    records = open_records(f"file://{folder}/")
    (folder / "class-0" / "00.bin").write_bytes(b"short")

    with (
        Loader(records, 7) as loader,
        pytest.raises(LoaderError, match="it has 5 bytes, 100 were expected"),
    ):
        sum(len(batch) for batch in loader)


def test_an_address_that_cannot_be_opened_is_reported_in_one_line(folder: Path) -> None:
    def refusal(address: str) -> str:
        with pytest.raises(RecordsError) as caught:
            open_records(address)
        return str(caught.value)

    assert "no object found" in refusal(f"file://{folder}/none/")
    assert "no object found" in refusal(f"file://{folder}/*.tar")
    assert "xyz:// is not the scheme of a store" in refusal("xyz://bucket/")
    for address in ("gs://me:secret@bucket/", "az://box/x.tar?sig=secret"):
        told = refusal(address)
        assert "do not put passwords" in told
        assert "secret" not in told


def test_an_error_of_a_server_is_reported_without_the_request() -> None:
    asked = "Generic MicrosoftAzure error: Error performing GET http://H/c in 4.7ms"
    answer = "<Error> <Code>NotFound</Code>\n <Message>It is not there.\nRequestId:0d5"
    debug = "\n\nDebug source:\nRetryErrorImpl { retries: 0 }"

    assert told_by(f"{asked} - {answer}\nTime:2026</Message>{debug}") == (
        "NotFound: It is not there."
    )
    assert told_by(f"{asked} - <Code>Busy</Code>{debug}") == "Busy"
    assert told_by(f"no route to\nhost{debug}") == "no route to host"


def test_the_use_of_a_library_for_a_store_is_reported_once(folder: Path) -> None:
    program = (
        "from monarch.records import open_records\n"
        "import sys\n"
        "for _ in range(3): open_records(sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, f"file://{folder}/"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr.count("is read by a library, which is slower") == 1


def test_a_bucket_of_google_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By obstore, from a server that answers as Google's does to XML requests."""
    pytest.importorskip("obstore")
    objects = {f"train/{n}.bin": CHANCE.randbytes(500 + n) for n in range(20)}
    with FakeS3(objects).served() as server:
        account = {
            "gcs_base_url": server.url,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
        records = open_records("gs://bucket/train/")
        with Loader(records, 4) as loader:
            found = sorted(bytes(r) for batch in loader for r in batch.records)

    assert found == sorted(objects.values())
