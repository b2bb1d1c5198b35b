"""The encoding of a broadcast Catalog: its offer and its chunks."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import zstandard
from xxhash import xxh3_128

from monarch.peers.protocol.conversation import ProtocolError
from monarch.peers.protocol.messages import Message

CHUNK_BYTES: Final = 256 << 10
ABOUT_BYTES_MAX: Final = 64 << 20
_LEVEL: Final = 1
_ALIGNED: Final = 64
_PREFIX_BYTES: Final = 16

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Offer:
    """The size and the digest of a broadcast Catalog."""

    digest: str
    size: int
    chunks: int

    @classmethod
    def of(cls, parts: Sequence[memoryview]) -> "Offer":
        """Return the offer of an encoded Catalog."""
        size = sum(map(len, parts))
        # Against faults: frames already prove that a node of the job has sent them.
        digest = xxh3_128()
        for part in parts:
            digest.update(part)
        return cls(digest.hexdigest(), size, -(-size // CHUNK_BYTES))

    @classmethod
    def from_message(cls, message: Message) -> "Offer":
        """Return the offer of a peer.

        Raises:
            ProtocolError: its size and its number of chunks do not match.
        """
        fields = message.fields
        offer = cls(fields["digest"], fields["bytes"], fields["chunks"])
        if offer.chunks != -(-offer.size // CHUNK_BYTES) or not offer.chunks:
            raise ProtocolError("the figures of an offer do not match")
        return offer

    def fields(self) -> dict[str, Any]:
        """Return the fields of an OFFER message."""
        return {"digest": self.digest, "bytes": self.size, "chunks": self.chunks}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the encoded Catalog, as sent."""

    packed: bool
    body: bytes

    @classmethod
    def of(cls, raw: Buffer) -> "Chunk":
        """Compress some bytes if that makes them smaller."""
        body = zstandard.ZstdCompressor(_LEVEL).compress(raw)
        return cls(True, body) if len(body) < len(raw) else cls(False, bytes(raw))

    def raw(self) -> bytes:
        """Return the bytes, at most CHUNK_BYTES.

        Raises:
            ProtocolError: they cannot be decompressed.
        """
        if not self.packed:
            return self.body
        try:
            # The decompressor allocates the size in the head of the frame.
            if not 0 <= zstandard.frame_content_size(self.body) <= CHUNK_BYTES:
                raise ProtocolError("a chunk is too long")
            return zstandard.ZstdDecompressor().decompress(self.body)
        except zstandard.ZstdError as error:
            raise ProtocolError("a chunk cannot be decompressed") from error


def encode(about: Any, blocks: Sequence[Buffer]) -> list[memoryview]:
    """Return an encoded Catalog as consecutive parts, which include the blocks.

    Args:
        about: a value that JSON can encode.
    """
    views = [memoryview(block).cast("B") for block in blocks]
    payload = {"about": about, "blocks": [len(view) for view in views]}
    text = json.dumps(payload).encode()
    if len(text) > ABOUT_BYTES_MAX:
        raise ValueError(f"the description of the catalog is {len(text)} bytes long")
    head = b"%*d" % (_PREFIX_BYTES, len(text)) + text
    parts = [memoryview(head + bytes(_padding(len(head))))]
    for view in views:
        parts += [view, _padding(len(view))]
    return parts


def _padding(length: int) -> memoryview:
    return memoryview(bytes(-length % _ALIGNED))


def pieces(parts: Sequence[memoryview]) -> Iterator[bytes]:
    """Return the bytes of consecutive parts in pieces of CHUNK_BYTES."""
    raw = bytearray()
    for part in parts:
        start = 0
        while start < len(part):
            end = min(len(part), start + CHUNK_BYTES - len(raw))
            raw += part[start:end]
            start = end
            if len(raw) == CHUNK_BYTES:
                yield bytes(raw)
                raw.clear()
    if raw:
        yield bytes(raw)


class Decoder:
    """Decodes the chunks of an offered Catalog in order.

    Attributes:
        count: the number of chunks added so far.
    """

    def __init__(self, offer: Offer) -> None:
        self.count = 0
        self._offer = offer
        self._whole = bytearray()
        self._digest = xxh3_128()

    def __repr__(self) -> str:
        return f"<Decoder {self.count} chunks of {self._offer}>"

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Add the next chunks.

        Raises:
            ProtocolError: they are not valid.
        """
        for chunk in chunks:
            raw = chunk.raw()
            self._digest.update(raw)
            self._whole += raw
        self.count += len(chunks)

    def decoded(self) -> tuple[Any, list[memoryview]]:
        """Return the decoded Catalog, after all chunks were added.

        Raises:
            ProtocolError: they do not match the offer, or are not valid.
        """
        if self._digest.hexdigest() != self._offer.digest:
            raise ProtocolError("the catalog is not the one offered")
        return _split(memoryview(self._whole))


def _split(whole: memoryview) -> tuple[Any, list[memoryview]]:
    try:
        length = int(bytes(whole[:_PREFIX_BYTES]))
        end = _PREFIX_BYTES + length
        payload = json.loads(bytes(whole[_PREFIX_BYTES:end]))
        about, lengths = payload["about"], list(payload["blocks"])
        blocks = []
        for length in lengths:
            start = end + -end % _ALIGNED
            end = start + length
            blocks.append(whole[start:end])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProtocolError("the catalog is not valid") from error
    if [len(block) for block in blocks] != lengths:
        raise ProtocolError("the catalog is incomplete")
    return about, blocks
