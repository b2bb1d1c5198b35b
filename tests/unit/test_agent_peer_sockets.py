"""The data sockets of a node: when they are made."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

from monarch.agent import peer_sockets
from monarch.agent.peer_sockets import PeerSockets
from monarch.peers.protocol import Member, Phase, Standing, View
from support.meshes import run


class Sources:
    """Peers of which each may be asked once."""

    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.usable_peers: set[int] = set()
        self.answered = asyncio.Event()

    def openings(self):
        return []

    def due(self, peer: int) -> bool:
        fresh = peer not in self.asked
        self.asked.add(peer)
        return fresh

    def usable(self, peer: int) -> bool:
        return peer in self.usable_peers

    def connected(self, peer: int) -> None:
        self.usable_peers.add(peer)
        self.answered.set()

    def appeared(self, peer: int) -> None:
        pass


def test_a_node_connects_as_soon_as_it_sees_that_another_one_has_started(monkeypatch):
    monkeypatch.setattr(peer_sockets, "RECONNECT_S", 1000.0)
    view = View((Member(0, Standing.JOINED), Member(1, Standing.JOINED)))
    started = view.updated([Member(1, Standing.JOINED, phase=Phase.RUNNING)])
    ends = socket.socketpair()

    async def data_socket(_peer: int) -> int:
        return ends[0].fileno()

    async def main():
        mesh = SimpleNamespace(view=view, data_socket=data_socket)
        receiver = SimpleNamespace(connect=lambda _peer, _fd: None)
        sources = Sources()
        sockets = PeerSockets(
            cast("Any", SimpleNamespace(number=0, nodes=("a", "b"))),
            cast(
                "Any",
                SimpleNamespace(
                    config=SimpleNamespace(peers=SimpleNamespace(timeout=10.0))
                ),
            ),
            cast("Any", mesh),
            cast("Any", SimpleNamespace(sources=sources, receiver=receiver)),
            {},
        )
        sockets.connect()
        await asyncio.sleep(0)
        assert not sources.asked
        mesh.view = started
        sockets.update(started)
        await sources.answered.wait()
        assert sources.usable(1)

    run(main())
    for end in ends:
        end.close()
