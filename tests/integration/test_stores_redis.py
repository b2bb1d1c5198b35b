"""Fetching from a real Redis server: passwords, TLS, and a server that dies."""

import random
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from monarch.records.index import RecordsError
from monarch.records.stores.connection import Endpoint
from monarch.records.stores.exchange import Exchange, Failure, Fault, Wanted
from monarch.records.stores.fetching import Fetcher
from monarch.records.stores.resp import RespExchange, command
from monarch.records.stores.ways import Fetch
from monarch.records.stores.window import Window
from support.processes import wait_until

PASSWORD = "hush-hush"
LIMIT_S = 30.0
NO_LIMIT = 1 << 40
CHANCE = random.Random(1)
VALUES = {b"key%d" % n: CHANCE.randbytes(n * 97 % 20_000) for n in range(400)}


@dataclass
class Redis:
    """A server on loopback."""

    folder: Path
    port: int
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Starts it, with what it held before."""
        words = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        words += ["--dir", str(self.folder), "--requirepass", PASSWORD, "--save", ""]
        words += ["--appendonly", "yes", *self.options]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        wait_until(self.answers, "a Redis server")

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def end(self, blow: signal.Signals = signal.SIGTERM) -> None:
        """Ends it."""
        if self.process is not None:
            self.process.send_signal(blow)
            self.process.wait(10)
            self.process = None


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def redis(folder: Path, *options: str) -> Iterator[Redis]:
    """A server that holds VALUES."""
    folder.mkdir()
    server = Redis(folder, free_port())
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(command(b"AUTH", PASSWORD.encode()))
            for key, value in VALUES.items():
                sock.sendall(command(b"SET", key, value))
            with sock.makefile("rb") as replies:
                assert all(
                    replies.readline() == b"+OK\r\n" for _ in range(len(VALUES) + 1)
                )
        if options:
            server.end()
            server.options = options
            server.start()
        yield server
    finally:
        server.end()


@dataclass
class Way:
    """One server as a store."""

    endpoint: Endpoint
    password: str = PASSWORD
    connections_max: int = 4
    name: str = "redis://test"

    def endpoints(self, key: bytes) -> list[Endpoint]:
        """The server."""
        return [self.endpoint]

    def begin(self, endpoint: Endpoint) -> Callable[[Endpoint], Exchange]:
        """Begins with the password."""
        return lambda _: RespExchange(password=self.password)

    def moved(self, failure: Failure) -> Endpoint | None:
        """No other server has anything."""
        return None

    def advice(self, fault: Fault) -> str:
        """Nothing."""
        return ""


def fetch(
    way: Way, between: Callable[[Fetcher], object] = lambda fetcher: None
) -> list[str]:
    """Fetches all values twice, checks them, and returns the errors."""
    errors: list[str] = []
    found: dict[int, tuple[bytes, memoryview]] = {}
    over = threading.Event()
    keys = [*VALUES] * 2

    def done_of(number: int) -> Callable[[RecordsError | None, object], None]:
        def done(error: RecordsError | None, _: object) -> None:
            if error is not None:
                errors.append(str(error))
            found[number] = keys[number], places[number]
            if len(found) == len(keys):
                over.set()

        return done

    places = [memoryview(bytearray(len(VALUES[key]))) for key in keys]
    fetcher = Fetcher(way, Window(16, 64, NO_LIMIT))
    try:
        fetcher.start(
            [
                Fetch(Wanted(n, key, 0, len(places[n])), places[n], done_of(n))
                for n, key in enumerate(keys)
            ]
        )
        between(fetcher)
        assert over.wait(LIMIT_S), fetcher
    finally:
        fetcher.close()
    if not errors:
        assert all(bytes(place) == VALUES[key] for key, place in found.values())
    return errors


@pytest.fixture
def tools(tool: Callable[[str], str]) -> None:
    """Skips the test where there is no server."""
    tool("redis-server")


@pytest.mark.usefixtures("tools")
def test_values_come_with_the_password_and_not_without(tmp_path: Path) -> None:
    with redis(tmp_path / "redis") as server:
        endpoint = Endpoint("127.0.0.1", server.port)

        assert fetch(Way(endpoint)) == []
        wrong = fetch(Way(endpoint, password="hush"))
        none = fetch(Way(endpoint, password=""))

    assert len(wrong) == len(none) == 2 * len(VALUES)
    assert all("WRONGPASS" in text for text in wrong)
    assert all("NOAUTH" in text for text in none)
    assert not any("hush" in text for text in wrong)


@pytest.mark.usefixtures("tools")
def test_a_server_that_dies_and_comes_back_costs_no_value(tmp_path: Path) -> None:
    with redis(tmp_path / "redis") as server:

        def hurt(fetcher: Fetcher) -> None:
            # A store that has never answered is given up sooner.
            wait_until(lambda: fetcher.counts.requests > 0, "a first value")
            server.end(signal.SIGKILL)
            time.sleep(0.3)
            server.start()

        assert fetch(Way(Endpoint("127.0.0.1", server.port)), hurt) == []


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
    with redis(tmp_path / "redis") as server:
        server.end()
        server.options, server.port = tuple(options), port
        server.start()

        errors = {}
        for host, authority in (
            ("localhost", "good"),
            ("127.0.0.1", "good"),
            ("localhost", "other"),
        ):
            tls = ssl.create_default_context(cafile=tmp_path / f"{authority}.pem")
            errors[host, authority] = fetch(Way(Endpoint(host, port, tls)))

    assert errors["localhost", "good"] == []
    assert all("not trusted" in text for text in errors["localhost", "other"])
    assert all("not trusted" in text for text in errors["127.0.0.1", "good"])
