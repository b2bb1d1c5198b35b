"""Stores scripted by a test: delays, errors, resets and halves of replies."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ENDING_TURNS = 10

Reply = Callable[[int, bytes], "Act | None"]
"""Says what becomes of a request, by its serial number and its key; None: a reply."""


@dataclass(frozen=True, slots=True)
class Act:
    """The store's action instead of a good reply.

    Args:
        late_s: it replies so much later.
        line: it sends this, such as an error.
        resets: it closes the connection, after this many bytes of the reply.
        stalls: it never replies on this connection any more.
    """

    late_s: float = 0.0
    line: bytes = b""
    resets: int = -1
    stalls: bool = False


@dataclass(slots=True)
class FakeRedis:
    """A server that speaks enough of RESP2 for GET, GETRANGE, AUTH, SELECT and ASKING.

    Args:
        delay_s: between a request and its reply.
        act: see Reply.
    """

    values: dict[bytes, bytes]
    delay_s: float = 0.0
    act: Reply = lambda serial, key: None
    password: bytes = b""
    tls: ssl.SSLContext | None = None
    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    asking: int = 0
    stop: Callable[[], object] = lambda: None

    @contextmanager
    def served(self) -> Iterator["FakeRedis"]:
        """Serves until the block ends."""
        started = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(started)))
        thread.start()
        assert started.wait(10)
        try:
            yield self
        finally:
            self.stop()
            thread.join(10)

    async def _run(self, started: threading.Event) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.stop = lambda: loop.call_soon_threadsafe(stopped.set)
        server = await asyncio.start_server(
            self._talk, "127.0.0.1", self.port, ssl=self.tls
        )
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stopped.wait()
        server.close()
        # A connection just accepted begins to talk in a later turn, and ends then.
        for _ in range(ENDING_TURNS):
            talks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in talks:
                task.cancel()
            await asyncio.gather(*talks, return_exceptions=True)
            await asyncio.sleep(0.002)

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        replies: asyncio.Queue[tuple[float, bytes, Act]] = asyncio.Queue()
        sending = asyncio.ensure_future(self._send(writer, replies))
        clock = asyncio.get_running_loop().time
        try:
            while words := await _command(reader):
                body, act = self._answer(words)
                replies.put_nowait((clock() + self.delay_s + act.late_s, body, act))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            sending.cancel()
            writer.transport.abort()

    def _answer(self, words: list[bytes]) -> tuple[bytes, Act]:
        name, *rest = words
        if name == b"AUTH":
            good = rest[-1] == self.password
            return b"+OK\r\n" if good else b"-WRONGPASS invalid password\r\n", Act()
        if name in (b"SELECT", b"ASKING"):
            self.asking += name == b"ASKING"
            return b"+OK\r\n", Act()
        key = rest[0]
        self.requests.append(key)
        act = self.act(len(self.requests) - 1, key) or Act()
        value = self.values.get(key)
        if act.line:
            return act.line, act
        if value is None:
            return b"$-1\r\n", act
        if name == b"GETRANGE":
            value = value[int(rest[1]) : int(rest[2]) + 1]
        return b"$%d\r\n%b\r\n" % (len(value), value), act

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        replies: "asyncio.Queue[tuple[float, bytes, Act]]",
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            at_s, body, act = await replies.get()
            await asyncio.sleep(max(0.0, at_s - clock()))
            if act.stalls:
                await asyncio.sleep(3600)
            writer.write(body if act.resets < 0 else body[: act.resets])
            await writer.drain()
            if act.resets >= 0:
                writer.transport.abort()
                return


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """The words of the next command; none: the client has disconnected."""
    head = await reader.readline()
    if not head:
        return []
    words = []
    for _ in range(int(head[1:])):
        length = int((await reader.readline())[1:])
        words.append((await reader.readexactly(length + 2))[:-2])
    return words
