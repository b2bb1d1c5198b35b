"""Chunks of a catalog that come from another node."""

import os

import pytest
import zstandard

from monarch.peers.protocol import ProtocolError
from monarch.peers.protocol.chunks import CHUNK_BYTES, Chunk


@pytest.mark.parametrize(
    "raw",
    [b"x" * CHUNK_BYTES, os.urandom(CHUNK_BYTES), b"x"],
    ids=["even", "random", "short"],
)
def test_a_chunk_comes_out_as_it_went_in(raw):
    chunk = Chunk.of(raw)

    assert len(chunk.body) <= len(raw)
    assert chunk.raw() == raw


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no frame at all",
        zstandard.compress(b"x" * (CHUNK_BYTES + 1)),
        zstandard.compress(b"x" * CHUNK_BYTES)[:-1],
        zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 99),
    ],
    ids=["empty", "rubbish", "too long", "cut", "of unknown length"],
)
def test_a_chunk_that_cannot_be_unpacked_is_refused(body):
    with pytest.raises(ProtocolError, match="a chunk "):
        Chunk(True, body).raw()
