"""A catalog on its way along the tree of nodes: chunks that come and are passed on."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import zstandard

from monarch.background import in_thread
from monarch.peers.protocol import Message, ProtocolError

CHUNK_BYTES: Final = 256 << 10
ABOUT_BYTES_MAX: Final = 64 << 20
# Nodes that one node sends the catalog to: six levels are enough for 4,096 nodes.
BRANCHES: Final = 4
_LEVEL: Final = 1
_ALIGNED: Final = 64
_PREFIX_BYTES: Final = 16

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Offer:
    """What a shipment will be once it is complete."""

    digest: str
    size: int
    chunks: int

    @classmethod
    def from_message(cls, message: Message) -> "Offer":
        """Return the offer of a peer.

        Raises:
            ProtocolError: its figures do not fit each other.
        """
        fields = message.fields
        offer = cls(fields["digest"], fields["bytes"], fields["chunks"])
        if offer.chunks != -(-offer.size // CHUNK_BYTES) or not offer.chunks:
            raise ProtocolError("an offer that cannot be")
        return offer

    def fields(self) -> dict[str, Any]:
        """Return the fields of the message that makes this offer."""
        return {"digest": self.digest, "bytes": self.size, "chunks": self.chunks}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a shipment as it is sent."""

    packed: bool
    body: bytes

    @classmethod
    def of(cls, raw: Buffer) -> "Chunk":
        """Pack some bytes if that makes them fewer."""
        body = zstandard.ZstdCompressor(_LEVEL).compress(raw)
        return cls(True, body) if len(body) < len(raw) else cls(False, bytes(raw))

    def raw(self) -> bytes:
        """Return the bytes, never more than a chunk has.

        Raises:
            ProtocolError: they cannot be unpacked.
        """
        if not self.packed:
            return self.body
        try:
            # A frame says how long it gets, and that much memory is taken for it.
            if not 0 <= zstandard.frame_content_size(self.body) <= CHUNK_BYTES:
                raise ProtocolError("a chunk that is too long")
            return zstandard.ZstdDecompressor().decompress(self.body)
        except zstandard.ZstdError as error:
            raise ProtocolError("a chunk that cannot be unpacked") from error


class Shipment:
    """The chunks that are here so far; who needs a later one waits for it."""

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self._chunks: list[Chunk] = []
        self._arrived = asyncio.Condition()

    def __repr__(self) -> str:
        return f"<Shipment {len(self._chunks)} chunks of {self.offer}>"

    @property
    def count(self) -> int:
        """Return how many chunks are here."""
        return len(self._chunks)

    @property
    def complete(self) -> bool:
        """Return whether all chunks are here."""
        return self.offer is not None and self.count == self.offer.chunks

    async def announce(self, offer: Offer) -> None:
        """Say what will come.

        Raises:
            ProtocolError: something else was announced before.
        """
        if self.offer not in (None, offer):
            raise ProtocolError("an offer that differs from the one before")
        async with self._arrived:
            self.offer = offer
            self._arrived.notify_all()

    async def add(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        async with self._arrived:
            self._chunks.append(chunk)
            self._arrived.notify_all()

    async def take(self, other: "Shipment") -> None:
        """Take all of a shipment that is complete.

        Raises:
            ProtocolError: something else was announced before.
        """
        assert other.offer is not None
        await self.announce(other.offer)
        for number in range(self.count, other.count):
            await self.add(other.chunk(number))

    async def wait_for(self, count: int) -> Offer:
        """Wait until there is an offer and this many chunks; return the offer."""
        async with self._arrived:
            await self._arrived.wait_for(
                lambda: self.offer is not None and self.count >= count
            )
        assert self.offer is not None
        return self.offer

    def chunk(self, number: int) -> Chunk:
        """Return one of the chunks that are here."""
        return self._chunks[number]

    async def load(self, about: Any, blocks: Sequence[Buffer]) -> None:
        """Be the first to have it: pack beside the loop, chunk by chunk."""
        parts = _parts(about, blocks)
        size = sum(map(len, parts))
        digest = await in_thread(_digest, parts)
        await self.announce(Offer(digest, size, -(-size // CHUNK_BYTES)))
        pieces = _Pieces(parts)
        while raw := pieces.next():
            await self.add(await in_thread(Chunk.of, raw))

    def unload(self) -> tuple[Any, list[memoryview]]:
        """Return what was loaded, in memory of our own; call it beside the loop.

        Raises:
            ProtocolError: it is not what was offered.
        """
        assert self.offer is not None
        whole = bytearray()
        for chunk in self._chunks:
            whole += chunk.raw()
        if hashlib.sha256(whole).hexdigest() != self.offer.digest:
            raise ProtocolError("a catalog that is not the one offered")
        return _split(memoryview(whole))


class _Pieces:
    """Consecutive chunks of several buffers as if they were one."""

    def __init__(self, parts: list[memoryview]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._part = 0
        self._start = 0

    def next(self) -> bytes:
        """Return the next chunk; nothing after the last."""
        raw = bytearray()
        while len(raw) < CHUNK_BYTES and self._part < len(self._parts):
            part = self._parts[self._part]
            end = min(len(part), self._start + CHUNK_BYTES - len(raw))
            raw += part[self._start : end]
            self._start = end
            if end == len(part):
                self._part, self._start = self._part + 1, 0
        return bytes(raw)


def _parts(about: Any, blocks: Sequence[Buffer]) -> list[memoryview]:
    views = [memoryview(block).cast("B") for block in blocks]
    told = {"about": about, "blocks": [len(view) for view in views]}
    text = json.dumps(told).encode()
    if len(text) > ABOUT_BYTES_MAX:
        raise ValueError("there is too much to say about this catalog")
    head = b"%*d" % (_PREFIX_BYTES, len(text)) + text
    parts = [_padded(head)]
    for view in views:
        parts += [view, _padding(len(view))]
    return parts


def _padded(head: bytes) -> memoryview:
    return memoryview(head + bytes(_padding(len(head))))


def _padding(length: int) -> memoryview:
    return memoryview(bytes(-length % _ALIGNED))


def _digest(parts: list[memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _split(whole: memoryview) -> tuple[Any, list[memoryview]]:
    try:
        length = int(bytes(whole[:_PREFIX_BYTES]))
        end = _PREFIX_BYTES + length
        told = json.loads(bytes(whole[_PREFIX_BYTES:end]))
        about, lengths = told["about"], list(told["blocks"])
        blocks = []
        for length in lengths:
            start = end + -end % _ALIGNED
            end = start + length
            blocks.append(whole[start:end])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProtocolError("a catalog that makes no sense") from error
    if [len(block) for block in blocks] != lengths:
        raise ProtocolError("a catalog that is incomplete")
    return about, blocks


def ancestors(number: int) -> list[int]:
    """Return the nodes that a node asks for the catalog, the nearest first."""
    found = []
    while number:
        number = (number - 1) // BRANCHES
        found.append(number)
    return found
