"""Real S3 servers on loopback that check signatures: SeaweedFS and JuiceFS."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from support.redis_servers import cluster_port, free_port

KEY, SECRET = "AKMONARCH", "hush-hush-secret"
START_S = 60.0


def program(name: str) -> str:
    """A program that pip has installed beside this Python."""
    return str(Path(sys.executable).with_name(name))


@contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """SeaweedFS, as the URL of its endpoint."""
    folder.mkdir()
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = {name: cluster_port() for name in ("master", "volume", "filer", "s3")}
    words = [program("weed"), "server", f"-dir={folder}", "-ip=127.0.0.1"]
    words += ["-ip.bind=127.0.0.1", "-s3", f"-s3.config={folder / 's3.json'}"]
    words += [f"-{name}.port={port}" for name, port in ports.items()]
    # A second bucket cannot be created with fewer volumes.
    words += ["-master.volumeSizeLimitMB=64", "-volume.max=200", "-filer"]
    with _served(folder, words, {}, f"http://127.0.0.1:{ports['s3']}") as url:
        yield url


@contextmanager
def juicefs(folder: Path) -> Iterator[str]:
    """The gateway of JuiceFS on a folder, as the URL of its endpoint."""
    folder.mkdir()
    meta = f"sqlite3://{folder}/meta.db"
    made = [program("juicefs"), "format", "--storage", "file", "--trash-days", "0"]
    made += ["--bucket", f"{folder}/data/", meta, "tests"]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    address = f"127.0.0.1:{free_port()}"
    words = [program("juicefs"), "gateway", "--no-banner", "--keep-etag"]
    words += ["--multi-buckets", "--cache-dir", f"{folder}/cache", meta, address]
    keys = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET}
    with _served(folder, words, keys, f"http://{address}") as url:
        yield url


@contextmanager
def _served(
    folder: Path, words: list[str], environ: Mapping[str, str], url: str
) -> Iterator[str]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            words,
            env={**os.environ, "HOME": str(folder), **environ},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_S
        while not _answers(url):
            said = (folder / "log").read_text(errors="replace")[-2000:]
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _answers(url: str) -> bool:
    """Whether a server answers; without a signature it refuses."""
    try:
        urlopen(url, timeout=2).close()
    except HTTPError as error:
        error.close()
        return error.code < 500
    except OSError:
        return False
    return True
