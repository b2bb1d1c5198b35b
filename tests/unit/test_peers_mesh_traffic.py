"""What agents of several nodes exchange: catalog, sockets, notes and reports."""

import asyncio
import os
import socket

import pytest

from monarch.peers.catalog_broadcast import ancestors
from monarch.peers.connection import Connection
from monarch.peers.protocol import Identity, Kind, Phase, ProtocolError
from monarch.peers.protocol.chunks import CHUNK_BYTES
from support.meshes import PATIENCE_S, SECRET, job, make_node, run

# -- the catalog ------------------------------------------------------------------


def test_the_tree_reaches_every_node_from_the_first():
    assert ancestors(0) == []
    assert ancestors(4) == [0]
    assert ancestors(5) == [1, 0]
    assert max(len(ancestors(number)) for number in range(4096)) == 6


def test_a_catalog_reaches_all_nodes_unchanged(tmp_path):
    blocks = [os.urandom(3 * CHUNK_BYTES + 17), b"", bytes(5 * CHUNK_BYTES)]
    about = {"roots": ["/pfs/a"], "capacities": [1, 2, 3]}

    async def main():
        async with job(7, tmp_path) as nodes:
            fetching = [asyncio.create_task(n.mesh.catalog.fetch()) for n in nodes[1:]]
            await nodes[0].mesh.catalog.offer(about, blocks)
            for told, received in await asyncio.gather(*fetching):
                assert told == about
                assert [bytes(block) for block in received] == blocks

    run(main())


def test_the_transfer_of_the_catalog_continues_when_its_relay_is_lost(tmp_path):
    block = os.urandom(40 * CHUNK_BYTES)

    async def main():
        async with job(6, tmp_path) as nodes:
            await nodes[5].sees(lambda view: view.complete)
            await nodes[0].sees(lambda view: view.complete)
            loading = asyncio.create_task(nodes[0].mesh.catalog.offer({}, [block]))
            relay = asyncio.create_task(nodes[1].mesh.catalog.fetch())
            last = asyncio.create_task(nodes[5].mesh.catalog.fetch())
            await nodes[5].mesh.catalog.buffer.wait_for(3)
            assert not nodes[5].mesh.catalog.buffer.complete
            relay.cancel()
            await nodes[1].mesh.close()
            _, [received] = await last
            assert received == block
            await loading

    run(main())


def test_a_catalog_that_was_altered_on_the_way_is_rejected(tmp_path):
    async def main():
        async with job(2, tmp_path) as nodes:
            await nodes[0].mesh.catalog.offer({}, [b"right" * 100])
            chunk = nodes[0].mesh.catalog.buffer.chunks[0]
            wrong = type(chunk).of(chunk.raw().replace(b"right", b"wrong"))
            nodes[0].mesh.catalog.buffer.chunks[0] = wrong
            with pytest.raises(ProtocolError, match="not the one offered"):
                await nodes[1].mesh.catalog.fetch()

    run(main())


# -- data, notes, reports ---------------------------------------------------------


def test_a_handed_over_socket_has_lost_and_gained_no_byte(tmp_path):
    async def main():
        async with job(2, tmp_path) as nodes:
            await nodes[1].sees(lambda view: view.complete)
            for asking, serving in ((1, 0), (0, 1)):
                fd = await nodes[asking].mesh.data_socket(serving)
                peer, other = await nodes[serving].sockets.get()
                assert peer == asking
                with (
                    socket.socket(fileno=fd) as one,
                    socket.socket(fileno=other) as two,
                ):
                    exchange(one, two)

    run(main())


def exchange(one: socket.socket, two: socket.socket) -> None:
    for end in (one, two):
        end.setblocking(True)
        end.settimeout(PATIENCE_S)
    for source, sink in ((one, two), (two, one)):
        sent = os.urandom(1000)
        source.sendall(sent)
        assert sink.recv(2000, socket.MSG_WAITALL | socket.MSG_PEEK)[:1] == sent[:1]
        received = b""
        while len(received) < len(sent):
            received += sink.recv(2000)
        assert received == sent


def test_a_note_reaches_all_the_others(tmp_path):
    async def main():
        async with job(4, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 4)
            nodes[2].mesh.send_note({"breaker": 1})
            nodes[0].mesh.send_note({"breaker": 3})
            for node in (nodes[1], nodes[3]):
                heard = sorted([await node.notes.get() for _ in range(2)], key=str)
                assert heard == [(0, {"breaker": 3}), (2, {"breaker": 1})]
            assert await nodes[0].notes.get() == (2, {"breaker": 1})
            assert await nodes[2].notes.get() == (0, {"breaker": 3})

    run(main())


def test_a_note_in_anothers_name_ends_the_connection(tmp_path):
    async def main():
        async with job(1, tmp_path, of=3) as nodes:
            port = nodes[0].mesh.view.members[0].port
            identity = Identity("job", 1, SECRET)
            joining = await Connection.connect(("127.0.0.1", port), identity, 0)
            join = {"host": "", "port": 1, "capacities": [], "phase": 0, "life": 1}
            join["seals"] = 0
            await joining.send(Kind.JOIN, join)
            await nodes[0].sees(lambda view: len(view.joined) == 2)
            await joining.send(Kind.NOTE, {"number": 2}, b"{}")
            await nodes[0].sees(lambda view: len(view.joined) == 1)
            assert nodes[0].notes.empty()
            joining.close()

    run(main())


def test_reports_are_collected_at_the_hub(tmp_path):
    async def main():
        async with job(4, tmp_path) as nodes:
            await nodes[0].sees(lambda view: view.complete)
            gathering = asyncio.create_task(nodes[0].mesh.wait_for_reports(PATIENCE_S))
            for node in nodes[1:]:
                assert await node.mesh.send_report(b"of %d" % node.number, PATIENCE_S)
            assert await gathering
            expected = {n: b"of %d" % n for n in (1, 2, 3)}
            assert nodes[0].mesh.node_reports == expected

    run(main())


def test_a_lost_node_delays_no_report(tmp_path):
    async def main():
        async with job(3, tmp_path) as nodes:
            await nodes[0].sees(lambda view: view.complete)
            gathering = asyncio.create_task(nodes[0].mesh.wait_for_reports(PATIENCE_S))
            assert await nodes[1].mesh.send_report(b"one", PATIENCE_S)
            await nodes[2].mesh.close()
            assert await gathering
            assert nodes[0].mesh.node_reports == {1: b"one"}

    run(main())


def test_reports_of_a_finished_job_are_accepted_when_no_node_may_join(tmp_path):
    """Who reports begins the next job of this name at once, which must not meet us."""

    async def main():
        async with job(2, tmp_path) as nodes:
            hub, other = (node.mesh for node in nodes)
            hub.set_phase(Phase.FINISHED)
            other.set_phase(Phase.FINISHED)
            await nodes[0].sees(lambda view: view.complete and view.finished)
            assert not await other.send_report(b"one", 0.3)
            hub.end_job()
            assert await other.send_report(b"one", PATIENCE_S)
            await other.close()
            await nodes[0].sees(lambda view: len(view.joined) == 1)
            following = make_node(1, 2, tmp_path)
            await following.mesh.open()
            assert not await following.mesh.wait_until(lambda view: view.complete, 1.0)
            await following.mesh.close()

    run(main())
