"""The log of an agent is in memory and bounded."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from monarch.agent import main
from monarch.peers.connection import Tampering
from monarch.peers.protocol import Identity
from monarch.peers.server import Server, listen
from monarch.peers.timeouts import REFUSALS_S

CONNECTIONS = 400


@pytest.fixture
def own_root_logger():
    """The handlers and the level of the root logger, restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


async def knock(port: int, count: int) -> None:
    """Connect and go away, over and over."""
    for _ in range(count):
        socket.create_connection(("127.0.0.1", port)).close()
        await asyncio.sleep(0)


def test_connections_that_are_refused_cost_a_line_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def attacked() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        listener = listen("127.0.0.1", 0)
        identity = Identity("job", 0, bytes(32))
        server = Server(listener, identity, 2, {}, Tampering())
        server.start()
        port = listener.getsockname()[1]
        began_s = loop.time()
        await knock(port, CONNECTIONS)
        for _ in range(1000):
            if server.refused == CONNECTIONS:
                break
            await asyncio.sleep(0.01)
        await server.close()
        return server.refused, loop.time() - began_s

    refused, took_s = asyncio.run(attacked())

    records = [one for one in caplog.records if one.name == "monarch.peers"]
    lines = [record.getMessage() for record in records]
    told = [int(line.split("count=")[1].split()[0]) for line in lines]
    assert refused == sum(told) == CONNECTIONS
    assert len(lines) <= 3 + took_s / REFUSALS_S


@pytest.mark.usefixtures("own_root_logger")
def test_the_log_has_a_bound_and_keeps_its_last_lines(tmp_path: Path) -> None:
    main._open_log(tmp_path, "info")
    for number in range(6000):
        logging.getLogger("monarch").info("line %d %s", number, "x" * 1000)

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["agent.log", "agent.log.1"]
    assert sum(file.stat().st_size for file in files) <= 2 * main.LOG_BYTES_MAX
    assert "line 5999 " in files[0].read_text().splitlines()[-1]
