"""Measures records from stores over long networks: rate, processor time, first batch.

    scripts/bench/run.py stores [--quick]

Servers are real, Redis and nginx as a bucket without keys, or answer as Cassandra does
(tests/support/fake_cql.py), behind tests/support/delay_proxy.c, which delays bytes both
ways. Each loader is a process of its own; servers, proxy and loader share the machine.
Rates are those of whole epochs after the first, ends included.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from table import Row

from monarch.records.stores.resp import command
from support import compiler
from support.fake_s3 import Act, FakeS3
from support.processes import wait_until
from support.redis_servers import free_port, redis_server

ROOT: Final = Path(__file__).parents[2]
WINDOW: Final = 1088
BATCH: Final = 64
SIZES: Final = {"12 KB": 12_000, "110 KB": 110_000}
RATES: Final = {"12 KB": 9500, "110 KB": 9500}
CPU_US: Final = {"12 KB": 20, "110 KB": 60}
PLAIN_IN_FLIGHT, PLAIN_ROUNDS = 64, 100
LINK_MB_S, QUEUE_KB = 125, 1000
USUAL_S, LATE_S = 0.12, 1.2
FIRST_S: Final = {"redis": 0.35, "http": 0.35, "cql": 0.65}
READER: Final = Path(__file__).with_name("stores_reader.py")


@dataclass(frozen=True, slots=True)
class Case:
    """What is read, and how.

    Attributes:
        store: "redis", "http" or "cql".
        size: of a record, by its name in SIZES.
        rtt_ms: of the network.
        link: MB/s and KB of the queue of a bottleneck; none: there is no bottleneck.
    """

    store: str
    size: str
    rtt_ms: int
    link: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.store}, {self.size}, {self.rtt_ms} ms"


def measure(monarch: str, work: Path, *, quick: bool) -> list[Row]:
    """Return the rows of the table."""
    python = str(Path(monarch).with_name("python"))
    stores = ("redis",) if quick else ("redis", "http", "cql")
    rows: list[Row] = []
    with ExitStack() as stack:
        for store in stores:
            serve = SERVERS[store]
            for size in SIZES:
                folder = Path(tempfile.mkdtemp(dir=work))
                port, keys = stack.enter_context(serve(folder, SIZES[size]))
                found = {
                    rtt: run(python, Case(store, size, rtt), port, keys, quick=quick)
                    for rtt in (0, 10, 100)
                }
                rows += rows_of(store, size, found)
                rows += more_rows(python, (store, size), port, keys, quick)
    return [*rows, tail(python)]


def more_rows(
    python: str, what: tuple[str, str], port: int, keys: str, quick: bool
) -> list[Row]:
    """Return what is measured of Redis alone; prints how fast a plain loop is."""
    store, size = what
    if store != "redis":
        return []
    plain = plain_loop_us(port, keys, SIZES[size])
    print(f"# a plain loop, {size}: {plain:.1f} us", file=sys.stderr)
    if size != "110 KB":
        return []
    return bottleneck(python, port, keys, quick=quick)


def bottleneck(python: str, port: int, keys: str, *, quick: bool) -> list[Row]:
    """Return the rows of a link with a short queue, which closes connections."""
    case = Case("redis", "110 KB", 100, (LINK_MB_S, QUEUE_KB))
    found = run(python, case, port, keys, quick=quick)
    link = LINK_MB_S * 1e6 / SIZES[case.size]
    name = f"redis, 110 KB, 100 ms, {LINK_MB_S} MB/s, queue of {QUEUE_KB} KB"
    share = found["retries"] / found["requests"]
    return [
        Row(
            f"{name}: records/s",
            f"{found['rate']:.0f}",
            f"{link:.0f} (link)",
            found["rate"] / link,
            0.9,
            at_least=True,
        ),
        Row(f"{name}: requests repeated", f"{share:.1%}", "5%", share / 0.05, 1.0),
    ]


def rows_of(store: str, size: str, found: dict[int, Any]) -> list[Row]:
    """Return the rows of one store and one size, at three round trips."""
    name = f"{store}, {size}"
    far, near = found[100], found[0]
    ideal = WINDOW / 0.1
    rows = [
        Row(
            f"{name}, 100 ms: records/s",
            f"{far['rate']:.0f}",
            f"{ideal:.0f} (window / RTT)",
            far["rate"] / ideal,
            RATES[size] / ideal,
            at_least=True,
        ),
        Row(
            f"{name}, 100 ms: reader's CPU for a record",
            f"{far['cpu_us']:.1f} us",
            f"{CPU_US[size]} us",
            far["cpu_us"] / CPU_US[size],
            1.0,
        ),
        Row(
            f"{name}, 100 ms: first batch",
            f"{far['first_s']:.2f} s",
            f"{FIRST_S[store]} s",
            far["first_s"] / FIRST_S[store],
            1.0,
        ),
    ]
    if size == "110 KB":
        rows += [
            Row(
                f"{name}, 0 ms: records/s",
                f"{near['rate']:.0f}",
                "14000",
                near["rate"] / 14_000,
                1.0,
                at_least=True,
            ),
            Row(
                f"{name}, 10 ms: records/s",
                f"{found[10]['rate']:.0f}",
                f"{near['rate']:.0f} (0 ms)",
                found[10]["rate"] / near["rate"],
                0.9,
                at_least=True,
            ),
        ]
    return rows


def plain_loop_us(port: int, keys: str, size: int) -> float:
    """Return the processor time for a record of a loop that does nothing else.

    It shows how fast the machine is now: many GETs in flight on one connection of a
    Redis without a network, received into the same memory.
    """
    words = [(keys % number).encode() for number in range(PLAIN_IN_FLIGHT)]
    asked = b"".join(command(b"GET", word) for word in words)
    expected = PLAIN_IN_FLIGHT * (len(b"$%d\r\n" % size) + size + 2)
    place = memoryview(bytearray(1 << 18))
    with socket.create_connection(("127.0.0.1", port)) as sock:
        began_s = time.thread_time()
        for _ in range(PLAIN_ROUNDS):
            sock.sendall(asked)
            left = expected
            while left:
                left -= sock.recv_into(place, min(left, len(place)))
        took_s = time.thread_time() - began_s
    return took_s / (PLAIN_ROUNDS * PLAIN_IN_FLIGHT) * 1e6


def run(python: str, case: Case, port: int, keys: str, *, quick: bool) -> Any:
    """Return the medians of some runs of one case."""
    told = []
    for _ in range(1 if quick else 3):
        with delayed(port, case.rtt_ms, *case.link) as place:
            given = {
                "store": case.store,
                "port": place,
                "keys": keys,
                "bytes": SIZES[case.size],
                "batch": BATCH,
                "window": "auto" if case.link else WINDOW,
                "records": 4096 if quick else 20_000 if case.rtt_ms else 30_000,
                "epochs": 3,
            }
            told.append(read(python, given))
    print(f"# {case}: {told}", file=sys.stderr)
    return {name: statistics.median(one[name] for one in told) for name in told[0]}


def read(python: str, given: dict[str, Any]) -> Any:
    """Return what one process tells of its loader."""
    done = subprocess.run(
        [python, "-P", str(READER), json.dumps(given)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])


def tail(python: str) -> Row:
    """Return the row of a store of which 5% of the replies come ten times as late."""

    def late(serial: int, key: str) -> Act:
        return Act(late_s=LATE_S if serial % 20 == 7 else USUAL_S)

    given = {"store": "http", "keys": "v%d", "bytes": 200, "batch": 16, "window": 64}
    more = {"bucket": "bucket", "records": 480, "epochs": 3}
    rates = {}
    with FakeS3({f"v{n}": bytes(200) for n in range(256)}, late).served() as server:
        for in_order in (True, False):
            found = read(
                python, given | more | {"port": server.port, "in_order": in_order}
            )
            rates[in_order] = found["rate"]
    return Row(
        "5% of replies ten times as late, window of 4 batches: out of order",
        f"{rates[False]:.0f}/s",
        f"{rates[True]:.0f}/s in order",
        rates[False] / rates[True],
        2.0,
        at_least=True,
    )


@contextmanager
def delayed(port: int, rtt_ms: int, *link: int) -> Iterator[int]:
    """A port behind which a server is that far away, over a link."""
    if not rtt_ms:
        yield port
        return
    source = ROOT / "tests" / "support" / "delay_proxy.c"
    program = compiler.build("delay_proxy", "gcc", "-O2", "-std=c11", source)
    words = [str(program), "0", f"127.0.0.1:{port}", str(rtt_ms / 2), *map(str, link)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# -- servers -----------------------------------------------------------------------


@contextmanager
def served_redis(folder: Path, size: int) -> Iterator[tuple[int, str]]:
    """A Redis that holds some values, which all records share."""
    with redis_server(folder / "redis") as server:
        server.set({b"v%d" % n: os.urandom(size) for n in range(256)})
        yield server.port, "v%d"


@contextmanager
def served_nginx(folder: Path, size: int) -> Iterator[tuple[int, str]]:
    """An nginx with some files."""
    files = folder / "files"
    files.mkdir()
    for number in range(256):
        (files / f"v{number}").write_bytes(os.urandom(size))
    port = free_port()
    (folder / "nginx.conf").write_text(
        f"daemon off; user root; pid {folder}/pid; error_log {folder}/log;\n"
        "worker_processes 1; worker_rlimit_nofile 8192;\n"
        "events { worker_connections 4096; }\n"
        "http { access_log off; sendfile on; tcp_nopush on;\n"
        "open_file_cache max=1000; keepalive_requests 100000000;\n"
        f"server {{ listen 127.0.0.1:{port} backlog=4096; root {folder}; }} }}\n"
    )
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert nginx, "needs nginx"
    process = subprocess.Popen([nginx, "-c", f"{folder}/nginx.conf"])
    try:
        _wait_for(port)
        yield port, "v%d"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def served_cql(folder: Path, size: int) -> Iterator[tuple[int, str]]:
    """A server that answers each request with the same row."""
    port = free_port()
    program = ROOT / "tests" / "support" / "fake_cql.py"
    process = subprocess.Popen([sys.executable, program, str(port), str(size)])
    try:
        _wait_for(port)
        yield port, "v%d"
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    wait_until(answers, "a server")


Serve = Callable[[Path, int], Any]
SERVERS: Final[dict[str, Serve]] = {
    "redis": served_redis,
    "http": served_nginx,
    "cql": served_cql,
}
