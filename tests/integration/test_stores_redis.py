"""Fetching from a real Redis server: passwords, TLS, and a server that dies."""

import queue
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from monarch.records import open_records
from monarch.records.errors import RecordsError
from monarch.records.stores.address import PASSWORD, PASSWORD_FILE, StoreAddress
from monarch.records.stores.exchange import Wanted
from monarch.records.stores.fetching import Fetcher
from monarch.records.stores.opening import client_of
from monarch.records.stores.redis import RedisWay
from monarch.records.stores.ways import Fetch
from monarch.records.stores.window import Window
from support.processes import wait_until
from support.redis_servers import free_port, redis_server

SECRET = "hush-hush"
LIMIT_S = 30.0
NO_LIMIT = 1 << 40
CHANCE = random.Random(1)
VALUES = {b"key%d" % n: CHANCE.randbytes(n * 97 % 20_000) for n in range(400)}


def way_to(address: str, password: str = SECRET) -> RedisWay:
    """The way to a server."""
    environ = {PASSWORD: password} if password else {}
    return RedisWay(StoreAddress.parse(address), environ=environ)


def fetch(
    way: RedisWay, between: Callable[[Fetcher], object] = lambda fetcher: None
) -> list[str]:
    """Fetches all values twice, checks them, and returns the errors."""
    ended: queue.SimpleQueue[Fetch] = queue.SimpleQueue()

    def put(fetches: list[Fetch]) -> None:
        for one in fetches:
            ended.put(one)

    keys = [*VALUES] * 2
    places = [memoryview(bytearray(len(VALUES[key]))) for key in keys]
    fetcher = Fetcher(way, Window(16, 64, NO_LIMIT), put)
    try:
        fetcher.start(
            [
                Fetch(Wanted(key, 0, len(places[n])), places[n])
                for n, key in enumerate(keys)
            ]
        )
        between(fetcher)
        errors = [ended.get(timeout=LIMIT_S).error for _ in keys]
    finally:
        fetcher.close()
    told = [str(error) for error in errors if error is not None]
    if not told:
        assert [bytes(one) for one in places] == [VALUES[key] for key in keys]
    return told


@pytest.fixture
def tools(tool: Callable[[str], str]) -> None:
    """Skips the test where there is no server."""
    tool("redis-server")


@pytest.mark.usefixtures("tools")
def test_values_are_read_only_with_the_password(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis", SECRET) as server:
        server.set(VALUES)
        address = f"redis://127.0.0.1:{server.port}/0"

        assert fetch(way_to(address)) == []
        wrong = fetch(way_to(address, "hush"))
        none = fetch(way_to(address, ""))

    assert len(wrong) == len(none) == 2 * len(VALUES)
    assert all("WRONGPASS" in text for text in wrong)
    assert all("NOAUTH" in text for text in none)
    assert not any("hush" in text for text in wrong)


@pytest.mark.usefixtures("tools")
def test_a_password_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    """By the next connection: the server ends those of the password that it drops."""
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(SECRET)
    with redis_server(tmp_path / "redis", SECRET) as server:
        server.set(VALUES)
        address = StoreAddress.parse(f"redis://127.0.0.1:{server.port}/0")
        way = RedisWay(address, environ={PASSWORD_FILE: str(file)})

        def replace(fetcher: Fetcher) -> None:
            wait_until(lambda: fetcher.counts.requests > 0, "a first value")
            words = ["redis-cli", "-p", str(server.port), "--no-auth-warning"]
            both = ["-a", SECRET, "acl", "setuser", "default", ">another"]
            subprocess.run([*words, *both], check=True)
            other = tmp_path / "other"
            other.touch(0o600)
            other.write_text("another")
            other.replace(file)
            one = ["-a", "another", "acl", "setuser", "default", f"<{SECRET}"]
            subprocess.run([*words, *one], check=True)
            killed = ["-a", "another", "client", "kill", "type", "normal"]
            subprocess.run([*words, *killed], check=True)

        assert fetch(way, replace) == []
        assert fetch(way) == []


@pytest.mark.usefixtures("tools")
def test_a_server_that_dies_and_returns_loses_no_value(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis", SECRET) as server:
        server.set(VALUES)

        def hurt(fetcher: Fetcher) -> None:
            # A store that has never answered is given up sooner.
            wait_until(lambda: fetcher.counts.requests > 0, "a first value")
            server.end(signal.SIGKILL)
            time.sleep(0.3)
            server.start()

        assert fetch(way_to(f"redis://127.0.0.1:{server.port}"), hurt) == []


@pytest.mark.usefixtures("tools")
def test_a_server_is_verified_by_its_certificate(
    tmp_path: Path, tool: Callable[[str], str]
) -> None:
    tool("openssl")
    for name in ("good", "other"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
                *("-keyout", str(tmp_path / f"{name}.key"), "-days", "2"),
                *("-out", str(tmp_path / f"{name}.pem"), "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=DNS:localhost"),
            ],
            check=True,
            capture_output=True,
        )
    port = free_port()
    options = ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", str(tmp_path / "good.pem")]
    options += ["--tls-key-file", str(tmp_path / "good.key")]
    with redis_server(tmp_path / "redis", SECRET) as server:
        server.set(VALUES)
        server.end()
        server.options, server.port = tuple(options), port
        server.start()

        errors = {}
        for host, authority in (
            ("localhost", "good"),
            ("127.0.0.1", "good"),
            ("localhost", "other"),
        ):
            address = f"rediss://{host}:{port}/0?ca={tmp_path / authority}.pem"
            errors[host, authority] = fetch(way_to(address))

    assert errors["localhost", "good"] == []
    assert all("not trusted" in text for text in errors["localhost", "other"])
    assert all("not trusted" in text for text in errors["127.0.0.1", "good"])


@pytest.mark.usefixtures("tools")
def test_a_killed_ingest_resumes_where_it_was(
    tmp_path: Path, monarch_command: Path
) -> None:
    pytest.importorskip("redis")
    for number in range(300):
        file = tmp_path / "files" / f"{number:03}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(CHANCE.randbytes(100_000))
    with redis_server(tmp_path / "redis") as server:
        address = f"redis://127.0.0.1:{server.port}/0"
        words = [str(monarch_command), "records", "ingest", str(tmp_path / "files")]
        words += ["--to", address, "--index", "files"]

        def written(least: int) -> bool:
            asked = ["redis-cli", "-p", str(server.port), "dbsize"]
            return int(subprocess.check_output(asked)) >= least

        for least in (50, 130, 210):
            running = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            wait_until(partial(written, least), "some values")
            running.kill()
            running.wait()
        done = subprocess.run(words, capture_output=True, text=True, check=True)

        said = " ".join(done.stderr.split())  # lines are folded
        found = re.search(r"wrote 300 records.* (\d+) records earlier", said)
        assert found is not None, said
        assert int(found[1]) >= 168  # four batches of 42
        files = open_records(tmp_path / "files")
        stored = open_records(f"{address}?index=files")
        assert [stored[n] for n in range(300)] == [files[n] for n in range(300)]


@pytest.mark.usefixtures("tools")
def test_a_read_only_server_is_reported_without_the_value(
    tmp_path: Path,
) -> None:
    pytest.importorskip("redis")
    with redis_server(tmp_path / "redis") as server:
        words = ["redis-cli", "-p", str(server.port), "replicaof", "127.0.0.1", "1"]
        subprocess.run(words, check=True)
        client = client_of(StoreAddress.parse(f"redis://127.0.0.1:{server.port}/0"))
        with closing(client), pytest.raises(RecordsError) as caught:
            client.write([(b"a-key", b"a-value")])

    assert "read only replica" in str(caught.value)
    assert "a-value" not in str(caught.value)
