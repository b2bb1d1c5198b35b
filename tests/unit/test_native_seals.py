"""Seals: the engine's seals of each Extent, compared with their definition."""

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest

from monarch import native
from monarch.native import OrderKind, ReceiverOptions
from unit.test_native_staging import SIZES, Job, make_job, next_completions

KEY = bytes(range(32))
EXTENT_BYTES = native.CONSTANTS["EXTENT_BYTES"]
BLOCK_BYTES = native.CONSTANTS["BLOCK_BYTES"]
ASK = "from monarch import native; print(native.seal_library())"
PRIME = 2**130 - 5
CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
WORD = 0xFFFFFFFF

needs_libcrypto = pytest.mark.skipif(
    native.seal_library() is None, reason="no libcrypto"
)


def quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    """The quarter round of ChaCha20 (RFC 8439, 2.1)."""
    steps = (a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)
    for to, added, mixed, turn in steps:
        s[to] = (s[to] + s[added]) & WORD
        word = s[mixed] ^ s[to]
        s[mixed] = (word << turn | word >> (32 - turn)) & WORD


def one_time_key(key: bytes, nonce: bytes) -> bytes:
    """The Poly1305 key of a nonce (RFC 8439, 2.6)."""
    begin = struct.unpack("<16I", b"expand 32-byte k" + key + bytes(4) + nonce)
    state = list(begin)
    for _ in range(10):
        for turn in (0, 1):
            for i in range(4):
                rows = [4 * row + (i + row * turn) % 4 for row in range(4)]
                quarter(state, *rows)
    words = [(a + b) & WORD for a, b in zip(state, begin, strict=True)]
    return struct.pack("<16I", *words)[:32]


def poly1305(key: bytes, message: bytes) -> bytes:
    """The tag of a message of whole blocks (RFC 8439, 2.5)."""
    r = int.from_bytes(key[:16], "little") & CLAMP
    total = 0
    for at in range(0, len(message), 16):
        block = int.from_bytes(message[at : at + 16] + b"\1", "little")
        total = (total + block) * r % PRIME
    tag = total + int.from_bytes(key[16:], "little")
    return (tag % 2**128).to_bytes(16, "little")


def tag_of(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """The tag of associated data without a text (RFC 8439, 2.8)."""
    padded = message + bytes(-len(message) % 16)
    lengths = struct.pack("<QQ", len(message), 0)
    return poly1305(one_time_key(key, nonce), padded + lengths)


def message_of(digest: int, file: int, extent: int, content: bytes) -> bytes:
    """What the seal of an Extent covers."""
    blocks = max(1, -(-len(content) // BLOCK_BYTES))
    first = extent * EXTENT_BYTES // BLOCK_BYTES
    name = struct.pack("<16sQIIQQ", b"monarch extent", digest, file, first,
                       len(content), blocks)  # fmt: skip
    return name + content


@contextmanager
def sealing(job: Job) -> Iterator[tuple[native.Engine, npt.NDArray[Any]]]:
    """An engine that makes seals, and these."""
    seals = native.Seals.make(KEY, len(job.options.digests))
    with native.Engine(job.board, replace(job.options, seals=seals)) as engine:
        yield engine, seals.room


def stage(job: Job, engine: native.Engine, kind: OrderKind, *files: int) -> None:
    """Stage some Files."""
    for file in files:
        job.submit(engine, file, kind)
    done = next_completions(engine, len(files))
    assert [one.status for one in done] == [0] * len(files)


def test_the_arithmetic_of_this_file_is_that_of_the_standard() -> None:
    nonce = bytes([0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7])
    made = one_time_key(bytes(range(0x80, 0xA0)), nonce)
    assert made.hex() == (
        "8ad5a08b905f81cc815040274ab29471a833b637e3fd0da508dbb8e2fdd1a646"
    )

    message = b"\xff" * 16 + b"\xf0" + b"\xff" * 15 + b"\x11" + bytes(15)
    assert poly1305(b"\1" + bytes(31), message) == b"\5" + bytes(15)


def forget_inodes(job: Job) -> None:
    """Empties the table of Replicas, as it is at the start of a job."""
    table: Any = job.board.inodes
    table[native.DTYPES["inodes"].itemsize :] = 0


@needs_libcrypto
def test_a_seal_covers_the_catalog_the_file_its_extent_and_its_bytes(
    tmp_path: Path,
) -> None:
    job = make_job(tmp_path)
    digest = 0x1122334455667788
    head: Any = job.board.catalog
    head[: native.DTYPES["catalog"].itemsize].view(native.DTYPES["catalog"])[
        "digest"
    ] = digest
    with sealing(job) as (engine, seals):
        stage(job, engine, OrderKind.DEMAND, *range(len(SIZES)))

    for file in range(4):
        content = (job.origin / f"file{file}").read_bytes()
        nonce, tag = (bytes(seals[file][part]) for part in ("nonce", "tag"))
        assert any(nonce)
        assert tag == tag_of(KEY, nonce, message_of(digest, file, 0, content))
    last = (job.origin / "file4").read_bytes()[2 * EXTENT_BYTES :]
    nonce, tag = bytes(seals[6]["nonce"]), bytes(seals[6]["tag"])
    assert tag == tag_of(KEY, nonce, message_of(digest, 4, 2, last))


@needs_libcrypto
@pytest.mark.parametrize("kind", [OrderKind.DEMAND, OrderKind.BACKGROUND])
def test_no_nonce_is_used_twice(tmp_path: Path, kind: OrderKind) -> None:
    job, nonces = make_job(tmp_path), set[bytes]()
    for _ in range(20):
        forget_inodes(job)
        with sealing(job) as (engine, seals):
            stage(job, engine, kind, *range(4))
        nonces |= {bytes(nonce) for nonce in seals["nonce"][:4]}
        for file in range(4):
            job.replica(file).unlink()

    assert len(nonces) == 80


@needs_libcrypto
def test_a_replica_of_an_earlier_job_is_sealed_when_it_is_adopted(
    tmp_path: Path,
) -> None:
    job = make_job(tmp_path)
    with native.Engine(job.board, job.options) as engine:
        stage(job, engine, OrderKind.DEMAND, 2)
    forget_inodes(job)

    with sealing(job) as (engine, seals):
        stage(job, engine, OrderKind.ADOPT, 2)

    nonce, tag = bytes(seals[2]["nonce"]), bytes(seals[2]["tag"])
    content = job.replica(2).read_bytes()
    assert tag == tag_of(KEY, nonce, message_of(0, 2, 0, content))


def test_keys_and_room_of_a_wrong_size_are_refused(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with pytest.raises(ValueError, match="wrong length"):
        native.Seals.make(b"short", 1)
    with pytest.raises(ValueError, match="as many seals"):
        native.Engine(job.board, replace(job.options, seals=native.Seals.make(KEY, 1)))


def test_seals_are_not_checked_by_an_engine_without_the_key(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with (
        native.Engine(job.board, job.options) as engine,
        pytest.raises(OSError) as refusal,
    ):
        native.PeerReceiver(engine, ReceiverOptions(peers=2, sealed=True))
    assert refusal.value.errno == errno.EINVAL


def test_no_library_that_a_node_may_lack_is_linked() -> None:
    library = native.library.LIB._name
    listed = subprocess.run(
        ["objdump", "-p", library], check=True, capture_output=True, text=True
    )
    assert "libcrypto" not in listed.stdout


def test_a_node_without_libcrypto_reports_that_it_makes_no_seals(
    tmp_path: Path,
) -> None:
    for name in ("libcrypto.so.3", "libcrypto.so.1.1"):
        (tmp_path / name).write_bytes(b"not a library")

    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout == "None\n"
