"""A Cassandra that only answers: every row has the same bytes.

fake_cql.py PORT BYTES
"""

import asyncio
import os
import struct
import sys

HEAD = struct.Struct(">BBhBi")
REPLY = 0x84
STARTUP, PREPARE, EXECUTE = 0x01, 0x09, 0x0A
READY, RESULT = 0x02, 0x08
STATEMENT = b"S" * 16


def reply(stream: int, op: int, body: bytes) -> bytes:
    """A frame."""
    return HEAD.pack(REPLY, 0, stream, op, len(body)) + body


class Talk(asyncio.Protocol):
    """One connection."""

    row = b""

    def __init__(self) -> None:
        self._got = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps where replies go."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.set_write_buffer_limits(1 << 28)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers all frames that are whole."""
        self._got += data
        at, out = 0, []
        while len(self._got) - at >= HEAD.size:
            _, _, stream, op, size = HEAD.unpack_from(self._got, at)
            if len(self._got) - at < HEAD.size + size:
                break
            at += HEAD.size + size
            out.append(self._answer(stream, op))
        del self._got[:at]
        if out and self._transport is not None:
            self._transport.writelines(out)

    def _answer(self, stream: int, op: int) -> bytes:
        if op == STARTUP:
            return reply(stream, READY, b"")
        if op == PREPARE:
            name = struct.pack(">H", len(STATEMENT)) + STATEMENT
            return reply(stream, RESULT, struct.pack(">i", 4) + name + bytes(20))
        assert op == EXECUTE
        return reply(stream, RESULT, self.row)


async def main() -> None:
    """Serves until it is killed."""
    size = int(sys.argv[2])
    # Kind rows, without metadata, one column, one row.
    Talk.row = struct.pack(">iiiii", 2, 4, 1, 1, size) + os.urandom(size)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Talk, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
