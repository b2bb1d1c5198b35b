"""Real Redis servers on loopback: one, or a cluster of six."""

import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from monarch.records.stores.resp import command
from support.processes import wait_until

HOST = "127.0.0.1"
MASTERS = 3


BUS: Final = 10_000
"""So much higher is the second port of a server of a cluster."""


def free_port() -> int:
    """An unused port."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def cluster_port() -> int:
    """A port that is unused, as is the second port of such a server."""
    while True:
        port = free_port()
        with suppress(OSError, OverflowError), socket.socket() as bus:
            bus.bind((HOST, port + BUS))
            return port


@dataclass
class Redis:
    """A server on loopback."""

    folder: Path
    password: str = ""
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()
    program: str = "redis-server"
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, with its former content."""
        words = [self.program, "--port", str(self.port), "--bind", HOST]
        words += ["--dir", str(self.folder), "--save", "", "--appendonly", "yes"]
        if self.password:
            words += ["--requirepass", self.password]
        words += self.options
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        wait_until(self.answers, "a Redis server")

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True

    def end(self, blow: signal.Signals = signal.SIGTERM) -> None:
        """Ends it."""
        if self.process is not None:
            self.process.send_signal(blow)
            self.process.wait(10)
            self.process = None

    def set(self, values: Mapping[bytes, bytes]) -> None:
        """Writes values."""
        words = [command(b"AUTH", self.password.encode())] * bool(self.password)
        words += [command(b"SET", *item) for item in values.items()]
        with socket.create_connection((HOST, self.port)) as sock:
            sock.sendall(b"".join(words))
            with sock.makefile("rb") as replies:
                assert all(replies.readline() == b"+OK\r\n" for _ in words)


@contextmanager
def redis_server(folder: Path, password: str = "") -> Iterator[Redis]:
    """One server."""
    folder.mkdir()
    server = Redis(folder, password)
    server.start()
    try:
        yield server
    finally:
        server.end()


@contextmanager
def redis_cluster(folder: Path) -> Iterator[list[Redis]]:
    """A cluster of three masters and three replicas; a master's failure takes a second.

    In the order in which they were made: masters first.
    """
    folder.mkdir()
    servers = []
    for number in range(2 * MASTERS):
        own = folder / str(number)
        own.mkdir()
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]
        # A replica that has not synchronised yet never takes over.
        options += ["--repl-diskless-sync-delay", "0"]
        servers.append(Redis(own, port=cluster_port(), options=tuple(options)))
    try:
        for server in servers:
            server.start()
        places = [f"{HOST}:{server.port}" for server in servers]
        join(servers, places)
        wait_until(lambda: all(map(is_ready, servers)), "a Redis cluster", limit_s=30)
        yield servers
    finally:
        for server in servers:
            server.end(signal.SIGKILL)


def join(servers: list[Redis], places: list[str]) -> None:
    """Make a cluster of servers; again if one took them too long on a busy machine."""
    made = ["redis-cli", "--cluster", "create", *places]
    made += ["--cluster-replicas", "1", "--cluster-yes"]
    for left in (2, 1, 0):
        done = subprocess.run(made, capture_output=True, text=True, timeout=60)
        if not done.returncode:
            return
        assert left, done.stdout + done.stderr
        for server in servers:
            told(server, "cluster", "reset", "hard")


def told(server: Redis, *words: str) -> str:
    """The answer of a server."""
    asked = ["redis-cli", "-p", str(server.port), *words]
    return subprocess.run(asked, capture_output=True, text=True, timeout=10).stdout


def is_ready(server: Redis) -> bool:
    """Whether a server knows the whole cluster, and a replica has its master's data."""
    if "cluster_state:ok" not in told(server, "cluster", "info"):
        return False
    said = told(server, "info", "replication")
    return "role:master" in said or "master_link_status:up" in said
