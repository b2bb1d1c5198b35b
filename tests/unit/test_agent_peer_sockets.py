"""The data sockets of a node: when they are created."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

from monarch.agent import peer_sockets
from monarch.agent.peer_sockets import PeerSockets, WaitingSockets
from monarch.peers.protocol import Member, Phase, Standing, View
from support.meshes import run


class Sources:
    """Peers of which each may be asked once."""

    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.usable_peers: set[int] = set()
        self.gone_peers: set[int] = set()
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

    def gone(self, peer: int) -> None:
        self.gone_peers.add(peer)


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


def test_a_node_that_leaves_before_this_one_exchanges_files_is_gone(monkeypatch):
    """Else this node would wait for ever for the Files that are of that one."""
    joined = View(tuple(Member(number, Standing.JOINED) for number in range(3)))
    sources, dropped = Sources(), list[int]()
    endpoints = SimpleNamespace(
        sources=sources,
        receiver=SimpleNamespace(disconnect=dropped.append),
        server=SimpleNamespace(drop=dropped.append),
    )
    monkeypatch.setattr(WaitingSockets, "_make_endpoints", lambda *_, **__: endpoints)

    async def main():
        mesh = SimpleNamespace(view=joined, own=joined.members[0])

        async def in_thread(*_words: object) -> object:
            """The Placement is made; meanwhile a node leaves."""
            mesh.view = joined.updated([joined.members[2].left()])
            waiting.update(mesh.view)
            return SimpleNamespace(nodes=3)

        monkeypatch.setattr(peer_sockets, "in_thread", in_thread)
        monkeypatch.setattr(PeerSockets, "connect", lambda _self: None)
        waiting = WaitingSockets(
            cast("Any", SimpleNamespace(number=0, nodes=("a", "b", "c"))),
            cast("Any", None),
            cast("Any", mesh),
        )
        stager = SimpleNamespace(
            replicas=SimpleNamespace(sizes=()),
            table=SimpleNamespace(first_rows=()),
            follow=None,
        )
        await waiting.open(
            cast("Any", SimpleNamespace(stager=stager, engine=None)),
            cast("Any", None),
            cast("Any", SimpleNamespace(place=None, integrity=None, nodes=())),
        )

    run(main())
    assert sources.gone_peers == {2}
    assert dropped == [2, 2]
