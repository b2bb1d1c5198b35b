"""Chunks of a catalog that arrive from another node."""

import os

import pytest
import zstandard

from monarch.peers.protocol import ProtocolError
from monarch.peers.protocol.chunks import (
    CHUNK_BYTES,
    Chunk,
    Decoder,
    Offer,
    encode,
    pieces,
)


@pytest.mark.parametrize(
    "raw",
    [b"x" * CHUNK_BYTES, os.urandom(CHUNK_BYTES), b"x"],
    ids=["even", "random", "short"],
)
def test_a_chunk_survives_a_round_trip(raw):
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


BLOCKS = [os.urandom(CHUNK_BYTES), b"x" * (CHUNK_BYTES + 1)]


def shipped() -> tuple[Offer, list[Chunk]]:
    """A Catalog as it is sent."""
    parts = encode({"number": 1}, BLOCKS)
    return Offer.of(parts), list(map(Chunk.of, pieces(parts)))


@pytest.mark.parametrize("at_once", [1, 2, 99])
def test_chunks_are_decoded_as_they_arrive(at_once):
    offer, chunks = shipped()
    decoder = Decoder(offer)
    for first in range(0, len(chunks), at_once):
        decoder.add(chunks[first : first + at_once])

    about, blocks = decoder.decoded()

    assert decoder.count == offer.chunks == len(chunks)
    assert about == {"number": 1}
    assert [bytes(block) for block in blocks] == BLOCKS


def test_chunks_that_differ_from_the_offered_ones_are_refused():
    offer, chunks = shipped()
    decoder = Decoder(offer)
    decoder.add([Chunk.of(b"y" * CHUNK_BYTES), *chunks[1:]])

    with pytest.raises(ProtocolError, match="not the one offered"):
        decoder.decoded()
