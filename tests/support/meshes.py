"""Several nodes of a job in one event loop, each with its own Mesh on loopback."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monarch.peers.addresses import PeerSettings
from monarch.peers.mesh import Mesh, MeshCallbacks
from monarch.peers.protocol import Identity, View

SECRET = b"k" * 32
PATIENCE_S = 20.0
POLL_S = 0.01


@dataclass
class Node:
    """One node, and the messages that its agent has received."""

    mesh: Mesh
    number: int
    views: list[View]
    notes: "asyncio.Queue[tuple[int, dict[str, Any]]]"
    sockets: "asyncio.Queue[tuple[int, int]]"
    marks: "asyncio.Queue[list[int]]"

    async def sees(self, test: Callable[[View], bool]) -> None:
        """Waits until the view of this node passes a test."""
        assert await self.mesh.wait_until(test, PATIENCE_S), self.mesh.view

    async def may_fill(self, limit: int) -> None:
        """Waits until the others let this node copy so many files in the background."""
        for _ in range(int(PATIENCE_S / POLL_S)):
            if self.mesh.fill.least == limit:
                return
            await asyncio.sleep(POLL_S)
        raise AssertionError(self.mesh.fill)

    async def becomes_hub(self) -> None:
        """Waits until this node is the hub, which it is only after its last attempt."""
        for _ in range(int(PATIENCE_S / POLL_S)):
            if self.mesh.is_hub:
                return
            await asyncio.sleep(POLL_S)
        raise AssertionError(self.mesh)


def make_node(
    number: int, nodes: int, directory: Path | None, secret: bytes = SECRET, **more: Any
) -> Node:
    """A node that is not open yet."""
    settings = PeerSettings(
        Identity("job", number, secret),
        nodes,
        (1000 + number,),
        host="127.0.0.1",
        directory=directory,
        **more,
    )
    views: list[View] = []
    notes: asyncio.Queue[tuple[int, dict[str, Any]]] = asyncio.Queue()
    sockets: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    marks: asyncio.Queue[list[int]] = asyncio.Queue()
    callbacks = MeshCallbacks(
        view_changed=views.append,
        socket_received=lambda peer, fd: sockets.put_nowait((peer, fd)),
        note_received=lambda peer, said: notes.put_nowait((peer, said)),
        marks_received=marks.put_nowait,
    )
    return Node(Mesh(settings, callbacks), number, views, notes, sockets, marks)


@asynccontextmanager
async def job(
    count: int, directory: Path, of: int = 0, **more: Any
) -> AsyncIterator[list[Node]]:
    """The first nodes of a job, open; closed in reverse order."""
    nodes = [make_node(n, of or count, directory, **more) for n in range(count)]
    opened: list[Node] = []
    try:
        for node in nodes:
            await node.mesh.open()
            opened.append(node)
        yield nodes
    finally:
        for node in reversed(opened):
            await node.mesh.close()


def open_descriptors() -> int:
    """Descriptors this process has open, without those of garbage."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test in an event loop, for a minute at most."""
    asyncio.run(asyncio.wait_for(main, 60))
