"""Measures Monarch beside others that read records from Redis and from a bucket.

    scripts/bench/run.py store-peers [--quick]

The servers are those of `stores`: a Redis, and an nginx as a bucket without keys, at 0
and 100 ms. Each reader is a process in a Python of its own. It reads batches of 64 for
some seconds; its rate is that after its first batch, which is told apart.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loader_site import Failed, last_line, python_of
from table import Row

from stores import BATCH, SERVERS, SIZES, WINDOW, delayed

READER: Final = Path(__file__).with_name("store_peer_reader.py")
LIMIT_S, PROCESS_LIMIT_S = 12.0, 120.0
MOST: Final = 60_000
MDS_RECORDS: Final = {"12 KB": 60_000, "110 KB": 12_000}


@dataclass(frozen=True, slots=True)
class Peer:
    """One reader.

    Attributes:
        reader: its name in store_peer_reader.py.
        server: a name in stores.SERVERS.
        venv: of loader_site; none: that of Monarch.
        options: of the reader.
    """

    name: str
    reader: str
    server: str
    venv: str
    options: tuple[tuple[str, int], ...] = ()


OURS: Final = {
    server: Peer(f"monarch over {server}", f"monarch-{server}", server, "")
    for server in ("redis", "http")
}
PEERS: Final = (
    Peer("redis-py, a pipeline a batch", "redis-loop", "redis", "clients"),
    Peer("redis-py, 17 pipelines at once", "redis-threads", "redis", "clients"),
    Peer("boto3, 64 threads", "boto3", "http", "clients", (("threads", 64),)),
    Peer("boto3, 256 threads", "boto3", "http", "clients", (("threads", 256),)),
    Peer(
        *("s3torchconnector, 8 workers", "s3torchconnector", "http", "s3torch"),
        (("workers", 8),),
    ),
    Peer(
        *("s3torchconnector, 32 workers", "s3torchconnector", "http", "s3torch"),
        (("workers", 32),),
    ),
    Peer(
        "mosaicml-streaming, 8 workers, shards",
        *("streaming", "http", "streaming"),
        (("workers", 8),),
    ),
    Peer(
        *("tf.data, 256 reads at once", "tf.data", "http", "tfio"),
        (("threads", 256),),
    ),
)


def measure(work: Path, *, quick: bool) -> list[Row]:
    """Return the rows of the table."""
    rows: list[Row] = []
    for size in ("110 KB",) if quick else SIZES:
        with ExitStack() as stack:
            folders = {name: Path(tempfile.mkdtemp(dir=work)) for name in OURS}
            ports = {
                name: stack.enter_context(SERVERS[name](folder, SIZES[size]))[0]
                for name, folder in folders.items()
            }
            _convert(folders["http"] / "files" / "mds", size)
            for rtt_ms in (100,) if quick else (0, 100):
                rows += _rows(size, rtt_ms, ports, folders)
    return rows


def _convert(folder: Path, size: str) -> None:
    """Make what mosaicml-streaming reads."""
    given = {
        "folder": str(folder),
        "bytes": SIZES[size],
        "records": MDS_RECORDS[size],
    }
    words = [python_of("streaming"), str(READER), "make-mds", json.dumps(given)]
    subprocess.run(words, check=True, capture_output=True)


def _rows(
    size: str, rtt_ms: int, ports: dict[str, int], folders: dict[str, Path]
) -> list[Row]:
    """Return one row for each peer, with Monarch measured just before it."""
    rows = []
    for peer in PEERS:
        with delayed(ports[peer.server], rtt_ms) as port:
            given = {
                "port": port,
                "bytes": SIZES[size],
                "rtt_ms": rtt_ms,
                "batch": BATCH,
                "window": WINDOW,
                "records": 20_000,
                "most": MOST,
                "limit_s": LIMIT_S,
                "folder": str(folders[peer.server]),
            }
            ours = _run(OURS[peer.server], given)
            try:
                theirs = _run(peer, given)
            except Failed as error:
                print(f"# {peer.name}, {size}, {rtt_ms} ms: {error}", file=sys.stderr)
                continue
        rows.append(
            Row(
                f"{size}, {rtt_ms} ms: {OURS[peer.server].name}",
                f"{ours['rate']:.0f}/s, first batch {ours['first_s']:.2f} s",
                f"{theirs['rate']:.0f}/s, {theirs['first_s']:.2f} s ({peer.name})",
                ours["rate"] / theirs["rate"],
                1.0,
                at_least=True,
            )
        )
    return rows


def _run(peer: Peer, given: dict[str, Any]) -> Any:
    """Return what one process tells.

    Raises:
        Failed: it does not read, or takes too long.
    """
    plan = {**given, **dict(peer.options), "reader": peer.reader}
    words = [python_of(peer.venv), "-P", str(READER), json.dumps(plan)]
    places = [str(READER.parent)] if not peer.venv else []
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=PROCESS_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end within {PROCESS_LIMIT_S:g} s") from None
    finally:
        _kill(process)
    if process.returncode:
        raise Failed(last_line(errors))
    found = json.loads(out.splitlines()[-1])
    print(
        f"# {peer.name}, {plan['bytes']} B, {plan['rtt_ms']} ms: {found}",
        file=sys.stderr,
    )
    return found


def _kill(process: subprocess.Popen[str]) -> None:
    """End a reader and its workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
