"""The broadcast of the Catalog along a tree of nodes that forward its chunks."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from monarch.background import in_thread
from monarch.peers.addresses import AddressBook
from monarch.peers.connection import Connection, Tampering
from monarch.peers.membership import Membership
from monarch.peers.protocol import Kind, Message, ProtocolError
from monarch.peers.protocol.chunks import (
    Buffer,
    Chunk,
    Decoder,
    Offer,
    encode,
    pieces,
)
from monarch.peers.session import Timing
from monarch.peers.timeouts import CATALOG_RETRY_S

# Nodes that one node sends the Catalog to: six levels are enough for 4,096 nodes.
BRANCHES: Final = 4

# Chunks that a thread compresses before they are sent.
CHUNKS_AT_ONCE: Final = 16

log = logging.getLogger("monarch.peers")


class ChunkBuffer:
    """The chunks that have arrived so far; callers can wait for later ones."""

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self.chunks: list[Chunk] = []
        self._arrived = asyncio.Condition()

    def __repr__(self) -> str:
        return f"<ChunkBuffer {len(self.chunks)} chunks of {self.offer}>"

    @property
    def complete(self) -> bool:
        """Return whether all chunks have arrived."""
        return self.offer is not None and len(self.chunks) == self.offer.chunks

    async def set_offer(self, offer: Offer) -> None:
        """Set the offer.

        Raises:
            ProtocolError: a different one was set before.
        """
        if self.offer not in (None, offer):
            raise ProtocolError("an offer differs from the one before")
        async with self._arrived:
            self.offer = offer
            self._arrived.notify_all()

    async def add(self, chunk: Chunk) -> None:
        """Add the next chunk."""
        async with self._arrived:
            self.chunks.append(chunk)
            self._arrived.notify_all()

    async def copy(self, other: "ChunkBuffer") -> None:
        """Copy the offer and all chunks of a complete buffer.

        Raises:
            ProtocolError: another Catalog was offered before.
        """
        assert other.offer is not None
        await self.set_offer(other.offer)
        for chunk in other.chunks[len(self.chunks) :]:
            await self.add(chunk)

    async def wait_for(self, count: int) -> Offer:
        """Wait for the offer and this many chunks; return the offer."""
        async with self._arrived:
            await self._arrived.wait_for(
                lambda: self.offer is not None and len(self.chunks) >= count
            )
        assert self.offer is not None
        return self.offer

    async def load(self, about: Any, blocks: Sequence[Buffer]) -> None:
        """Compress a Catalog in threads, and add all its chunks."""
        parts = encode(about, blocks)
        await self.set_offer(await in_thread(Offer.of, parts))
        raws = pieces(parts)
        while chunks := await in_thread(_next_chunks, raws):
            for chunk in chunks:
                await self.add(chunk)

    async def unload(self) -> tuple[Any, list[memoryview]]:
        """Decompress the Catalog in threads while it arrives, and return it.

        Raises:
            ProtocolError: it is not the one that was offered.
        """
        offer = await self.wait_for(0)
        decoder = Decoder(offer)
        while decoder.count < offer.chunks:
            await self.wait_for(decoder.count + 1)
            await in_thread(decoder.add, self.chunks[decoder.count :])
        return await in_thread(decoder.decoded)


def _next_chunks(raws: Iterator[bytes]) -> list[Chunk]:
    return [Chunk.of(raw) for raw in islice(raws, CHUNKS_AT_ONCE)]


class CatalogBroadcast:
    """Offers the Catalog to other nodes, or fetches and forwards it."""

    def __init__(
        self,
        addresses: AddressBook,
        membership: Membership,
        timing: Timing,
        tampering: Tampering,
    ) -> None:
        self.buffer = ChunkBuffer()
        self._addresses = addresses
        self._membership = membership
        self._timing = timing
        self._tampering = tampering

    def __repr__(self) -> str:
        return f"<CatalogBroadcast {self.buffer!r}>"

    async def offer(self, about: Any, blocks: Sequence[Buffer]) -> None:
        """Send a Catalog to all nodes that request it, now or later.

        Args:
            about: a value that JSON can encode.
            blocks: must not change before this returns.
        """
        await self.buffer.load(about, blocks)

    async def offer_again(self, found: ChunkBuffer) -> None:
        """Send a complete Catalog of fetch_earlier() to all nodes that request it."""
        await self.buffer.copy(found)

    async def fetch_earlier(self, numbers: Iterable[int]) -> ChunkBuffer | None:
        """Return the Catalog that an earlier agent of this node offered.

        Args:
            numbers: the nodes that may have it.
        """
        for number in numbers:
            found = ChunkBuffer()
            if await self._fetch_from(number, found):
                return found
        return None

    async def fetch(self) -> tuple[Any, list[memoryview]]:
        """Return the Catalog offered by node 0, fetched from any node that has it.

        Raises:
            ProtocolError: it is not the one that was offered.
        """
        unloading = asyncio.create_task(self.buffer.unload())
        try:
            while not self.buffer.complete:
                await self._fetch_rest()
            return await unloading
        finally:
            unloading.cancel()

    async def _fetch_rest(self) -> None:
        """Fetch missing chunks from the nearest node that provides them."""
        for ancestor in ancestors(self._membership.number):
            if ancestor and not self._membership.is_joined(ancestor):
                continue
            if await self._fetch_from(ancestor, self.buffer):
                return
        await self._membership.wait_until(lambda _: False, CATALOG_RETRY_S)

    async def _fetch_from(self, number: int, buffer: ChunkBuffer) -> bool:
        try:
            connection = await self._addresses.connect(number)
            with self._tampering.watch(number):
                await _fetch(connection, buffer, self._timing)
        except (OSError, ProtocolError) as error:
            log.info("no catalog node=%d reason=%s", number, error or "timeout")
            return False
        return True

    async def serve(self, connection: Connection, request: Message) -> None:
        """Send the chunks, beginning with the requested one, as they arrive here."""
        first = int(request.fields["first"])
        offer = await self._wait_for(0, connection)
        await connection.send(Kind.OFFER, offer.fields())
        for number in range(first, offer.chunks):
            await self._wait_for(number + 1, connection)
            chunk = self.buffer.chunks[number]
            packed = int(chunk.packed)
            await connection.send(Kind.CHUNK, {"packed": packed}, chunk.body)
        # The other side closes when it has all: a close here could lose the last bytes.
        await connection.drain()

    async def _wait_for(self, count: int, connection: Connection) -> Offer:
        """Wait for chunks; the other side receives a WAIT for each heartbeat."""
        while True:
            try:
                async with asyncio.timeout(self._timing.heartbeat_s):
                    return await self.buffer.wait_for(count)
            except TimeoutError:
                await connection.send(Kind.WAIT)


async def _fetch(connection: Connection, buffer: ChunkBuffer, timing: Timing) -> None:
    """Add the missing chunks from another node."""
    try:
        await connection.send(Kind.FETCH, {"first": len(buffer.chunks)})
        while not buffer.complete:
            async with asyncio.timeout(timing.timeout_s):
                message = await connection.receive()
            if message.kind is Kind.OFFER:
                await buffer.set_offer(Offer.from_message(message))
            elif message.kind is Kind.CHUNK:
                packed = bool(message.fields["packed"])
                await buffer.add(Chunk(packed, message.body))
    finally:
        connection.close()


def ancestors(number: int) -> list[int]:
    """Return the nodes from which a node requests the Catalog, the nearest first."""
    found = []
    while number:
        number = (number - 1) // BRANCHES
        found.append(number)
    return found
