"""A man in the middle that reads all messages of two nodes and changes any of them.

He does not know the job's secret. Connections to him are carried on to the node that
was meant. Control frames he can forge, repeat, drop or swap; of the replies with bytes
that follow where a connection becomes the data plane's, he changes some, and makes
their checksums right, which anybody can.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monarch import native
from monarch.native.layout import CONSTANTS, DTYPES
from monarch.peers.protocol import Kind

HEAD = struct.Struct("<4sBBHII")
REPLY = DTYPES["frame_reply"]
TAG_BYTES = 16
UNTAGGED = {Kind.HELLO, Kind.CHALLENGE, Kind.PROOF, Kind.REFUSE}
WAYS = ("forge", "repeat", "drop", "swap")

Connect = Callable[[], socket.socket]


def checksum(content: bytes) -> int:
    """What the head of a reply says of its bytes."""
    chain, step = 0, CONSTANTS["CHUNK_BYTES"]
    for start in range(0, max(1, len(content)), step):
        chain = native.hash64(content[start : start + step], chain)
    return chain


@dataclass
class Meddler:
    """What is done to what passes, and how often it was.

    Attributes:
        change_every: of the replies with bytes, each such one is changed; 0: none.
        way: what is done to the next beat of a session, once; see WAYS.
        joins: how often a node has joined the other.
    """

    change_every: int = 0
    way: str = ""
    passed: int = 0
    changed: int = 0
    meddled: int = 0
    joins: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def listen(self, listener: socket.socket, onward: Connect) -> None:
        """Carry all connections to a socket on to where `onward` connects to."""

        async def meet(reader: Any, writer: Any) -> None:
            loop = asyncio.get_running_loop()
            onward_socket = await loop.run_in_executor(None, onward)
            far = await asyncio.open_connection(sock=onward_socket)
            await self._carry((reader, writer), far)

        server = await asyncio.start_server(meet, sock=listener)
        task = asyncio.create_task(server.serve_forever())
        self.tasks.add(task)

    async def _carry(self, near: Any, far: Any) -> None:
        """Carry both directions of a connection until one of them ends."""
        asks = asyncio.create_task(self._carry_asking(near[0], far[1]))
        answers = asyncio.create_task(self._carry_answering(far[0], near[1]))
        await asyncio.wait((asks, answers), return_when=asyncio.FIRST_COMPLETED)
        for task in (asks, answers):
            task.cancel()
        await asyncio.gather(asks, answers, return_exceptions=True)
        for writer in (near[1], far[1]):
            writer.close()

    async def _carry_asking(self, reader: Any, writer: Any) -> None:
        """From who has connected: frames, and requests after a wish for the socket."""
        kind = await self._carry_frames(reader, writer, Kind.SOCKET)
        while kind and (piece := await reader.read(1 << 16)):
            writer.write(piece)
            await writer.drain()

    async def _carry_answering(self, reader: Any, writer: Any) -> None:
        """From who was connected to: frames, and replies after a socket was given."""
        kind = await self._carry_frames(reader, writer, Kind.SOCKET_READY)
        while kind:
            head = np.frombuffer(await reader.readexactly(REPLY.itemsize), REPLY).copy()
            content = await reader.readexactly(int(head["size"][0]))
            if content:
                content = self._changed(head, content)
            writer.write(head.tobytes() + content)
            await writer.drain()

    def _changed(self, head: Any, content: bytes) -> bytes:
        """Change some of the bytes that pass."""
        self.passed += 1
        if not self.change_every or self.passed % self.change_every:
            return content
        self.changed += 1
        middle = len(content) // 2
        other = bytes([content[middle] ^ 1])
        content = content[:middle] + other + content[middle + 1 :]
        head["digest"] = checksum(content)
        return content

    async def _carry_frames(self, reader: Any, writer: Any, last: Kind) -> bool:
        """Carry control frames up to one of the last kind."""
        held = b""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(HEAD.size)
                *_, kind, _, fields, body = HEAD.unpack(head)
                rest = fields + body + (0 if kind in UNTAGGED else TAG_BYTES)
                frame = head + await reader.readexactly(rest)
                pieces, held = self._meddle(Kind(kind), held, frame)
                writer.write(pieces)
                await writer.drain()
                if kind == last:
                    return True
        return False

    def _meddle(self, kind: Kind, held: bytes, frame: bytes) -> tuple[bytes, bytes]:
        """The bytes sent in place of a frame, and those held back for later."""
        self.joins += kind is Kind.JOIN
        if held or not self.way or kind is not Kind.HEARTBEAT:
            return frame + held, b""
        way, self.way = self.way, ""
        self.meddled += 1
        match way:
            case "forge":
                return frame.replace(b'"phase":', b'"phase" '), b""
            case "repeat":
                return frame + frame, b""
            case "swap":
                return b"", frame
            case _:
                return b"", b""
