"""Agents of several nodes on loopback: joining, leaving, catalog, sockets, reports."""

import asyncio
import os
import socket
from contextlib import suppress

import pytest

from monarch.peers import connection
from monarch.peers.catalog_broadcast import ancestors
from monarch.peers.connection import Connection
from monarch.peers.protocol import Identity, Kind, Phase, ProtocolError, Standing
from monarch.peers.protocol.chunks import CHUNK_BYTES
from support.meshes import PATIENCE_S, SECRET, job, make_node, open_descriptors


def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


def test_all_nodes_come_to_see_each_other_with_what_they_can_hold(tmp_path):
    async def main():
        async with job(5, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 5)
            for node in nodes:
                members = node.mesh.view.members
                assert [m.capacities for m in members] == [
                    (1000 + n,) for n in range(5)
                ]
                assert {m.host for m in members} == {"127.0.0.1"}

    run(main())


def test_closing_leaves_no_descriptor_and_no_address_behind(tmp_path):
    async def main():
        before = open_descriptors()
        async with job(4, tmp_path) as nodes:
            await nodes[3].sees(lambda view: len(view.joined) == 4)
        assert open_descriptors() == before

    run(main())
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_the_first_node_is_found_by_its_port(tmp_path):
    async def main():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            known = {0: ("127.0.0.1", port)}
            nodes = [
                make_node(0, 2, None, port=port, addresses=known),
                make_node(1, 2, None, addresses=known),
            ]
            for node in nodes:  # the first finds its port taken, and takes the next
                await node.mesh.open()
            await nodes[1].sees(lambda view: view.complete)
            for node in nodes:
                await node.mesh.close()

    run(main())


def test_the_first_node_may_come_last(tmp_path):
    async def main():
        nodes = [make_node(number, 5, tmp_path) for number in range(5)]
        for node in nodes[1:]:
            await node.mesh.open()
        await nodes[4].sees(lambda view: len(view.joined) == 4)
        await nodes[0].mesh.open()
        for node in nodes:
            await node.sees(lambda view: len(view.joined) == 5)
        for node in nodes:
            await node.mesh.close()

    run(main())


def test_a_node_with_another_secret_stays_alone(tmp_path):
    async def main():
        async with job(2, tmp_path) as nodes:
            stranger = make_node(1, 2, tmp_path, secret=b"x" * 32)
            await nodes[1].sees(lambda view: view.complete)
            await stranger.mesh.open()
            with pytest.raises(ProtocolError, match="does not know"):
                await stranger.mesh.data_socket(0)
            assert len(stranger.mesh.view.joined) == 1
            await stranger.mesh.close()

    run(main())


def test_a_node_that_leaves_in_order_is_known_at_once(tmp_path):
    async def main():
        async with job(4, tmp_path) as nodes:
            await nodes[3].sees(lambda view: len(view.joined) == 4)
            await nodes[2].sees(lambda view: len(view.joined) == 4)
            await nodes[2].mesh.close()
            for node in (nodes[0], nodes[1], nodes[3]):
                await node.sees(lambda v: v.members[2].standing is Standing.LEFT)

    run(main())


@pytest.mark.parametrize("lost", [0, 1], ids=["the hub", "its successor too"])
def test_when_the_hub_leaves_the_next_takes_its_place(tmp_path, lost):
    async def main():
        async with job(5, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 5)
            for node in nodes[: lost + 1]:
                await node.mesh.close()
            rest = nodes[lost + 1 :]
            numbers = {node.number for node in rest}
            for node in rest:
                await node.sees(lambda v: {m.number for m in v.joined} == numbers)
            await rest[0].becomes_hub()
            assert not any(node.mesh.is_hub for node in rest[1:])
            # and news still goes around
            nodes[4].mesh.set_phase(Phase.FINISHED)
            for node in rest:
                await node.sees(lambda v: v.members[4].phase is Phase.FINISHED)

    run(main())


def test_a_hub_that_returns_gets_its_place_back(tmp_path):
    async def main():
        async with job(4, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 4)
            old = nodes[0].mesh.view.members[0].life
            await nodes[0].mesh.close()
            await nodes[3].sees(lambda view: len(view.joined) == 3)
            nodes[0] = make_node(0, 4, tmp_path)
            await nodes[0].mesh.open()
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 4)
                await node.sees(lambda view: view.members[0].life != old)
            nodes[3].mesh.send_note({"after": 1})
            assert await nodes[0].notes.get() == (3, {"after": 1})
            await nodes[0].mesh.close()

    run(main())


def test_a_finished_node_is_known_to_be(tmp_path):
    async def main():
        async with job(3, tmp_path) as nodes:
            await nodes[2].sees(lambda view: view.complete)
            nodes[0].mesh.set_phase(Phase.FINISHED)
            nodes[1].mesh.set_phase(Phase.FINISHED)
            await nodes[2].sees(lambda view: view.members[1].phase is Phase.FINISHED)
            assert not nodes[2].mesh.view.finished
            nodes[2].mesh.set_phase(Phase.FINISHED)
            for node in nodes:
                await node.sees(lambda view: view.finished)

    run(main())


# -- faults -----------------------------------------------------------------------


async def end(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def intruder(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


def test_random_bytes_silence_and_long_frames_do_not_hurt_an_agent(tmp_path):
    async def main():
        async with job(2, tmp_path) as nodes:
            await nodes[1].sees(lambda view: view.complete)
            port = nodes[0].mesh.view.members[0].port
            silent = [await intruder(port) for _ in range(20)]
            for piece in (b"GET / HTTP/1.1\r\n\r\n", bytes(4096), os.urandom(4096)):
                reader, writer = await intruder(port)
                writer.write(piece)
                with suppress(ConnectionError):
                    assert len(await reader.read()) <= 18  # closed; a refusal at most
                await end(writer)
            nodes[1].mesh.send_note({"still": "here"})
            assert await nodes[0].notes.get() == (1, {"still": "here"})
            await end(*(writer for _, writer in silent))

    run(main())


def test_a_stranger_who_says_nothing_is_sent_away_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.2)

    async def main():
        async with job(1, tmp_path) as nodes:
            reader, writer = await intruder(nodes[0].mesh.view.members[0].port)
            assert await reader.read() == b""
            await end(writer)

    run(main())


class Gate:
    """A place between two nodes where their bytes can be stopped, or the link cut."""

    def __init__(self) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._target = 0

    async def open(self, target: int) -> None:
        self._target = target
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _pass(self, reader, writer):
        there = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, there[1]]
        for source, sink in ((reader, there[1]), (there[0], writer)):
            self._tasks.add(asyncio.create_task(self._pump(source, sink)))

    async def _pump(self, source, sink):
        with suppress(OSError):
            while piece := await source.read(65536):
                await self.flows.wait()
                sink.write(piece)
                await sink.drain()
        sink.close()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await end(*self._writers)


def test_a_partition_is_noticed_by_both_sides_and_heals(tmp_path):
    async def main():
        gate = Gate()
        hub = make_node(0, 2, tmp_path)
        await hub.mesh.open()
        await gate.open(hub.mesh.view.members[0].port)
        known = {0: ("127.0.0.1", gate.port)}
        other = make_node(1, 2, None, addresses=known)
        await other.mesh.open()
        await hub.sees(lambda view: len(view.joined) == 2)
        await other.sees(lambda view: len(view.joined) == 2)
        gate.flows.clear()
        loop = asyncio.get_running_loop()
        cut_s = loop.time()
        await hub.sees(lambda view: len(view.joined) == 1)
        assert loop.time() - cut_s < 8
        # The other one still reaches us past the gate: it knows our address by now.
        await hub.sees(lambda view: len(view.joined) == 2)
        await other.sees(lambda view: len(view.joined) == 2)
        await other.mesh.close()
        await hub.mesh.close()
        await gate.close()

    run(main())


# -- the catalog ------------------------------------------------------------------


def test_the_tree_reaches_every_node_from_the_first():
    assert ancestors(0) == []
    assert ancestors(4) == [0]
    assert ancestors(5) == [1, 0]
    assert max(len(ancestors(number)) for number in range(4096)) == 6


def test_a_catalog_reaches_all_nodes_as_it_was(tmp_path):
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


def test_the_catalog_goes_on_when_the_node_it_came_through_is_lost(tmp_path):
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


def test_a_catalog_that_was_altered_on_the_way_is_not_taken(tmp_path):
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


def test_reports_come_together_at_the_hub(tmp_path):
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


def test_a_node_that_is_lost_keeps_no_report_waiting(tmp_path):
    async def main():
        async with job(3, tmp_path) as nodes:
            await nodes[0].sees(lambda view: view.complete)
            gathering = asyncio.create_task(nodes[0].mesh.wait_for_reports(PATIENCE_S))
            assert await nodes[1].mesh.send_report(b"one", PATIENCE_S)
            await nodes[2].mesh.close()
            assert await gathering
            assert nodes[0].mesh.node_reports == {1: b"one"}

    run(main())


def test_reports_of_a_finished_job_are_taken_when_nobody_may_join_any_more(tmp_path):
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


def test_a_first_node_whose_address_nobody_can_know_is_no_hub(tmp_path):
    async def main():
        before = open_descriptors()
        node = make_node(0, 2, tmp_path / "missing")
        with pytest.raises(FileNotFoundError):
            await node.mesh.open()
        assert not node.mesh.is_hub
        assert open_descriptors() == before

    run(main())


def test_a_node_at_a_known_port_needs_no_directory(tmp_path):
    async def main():
        known = {0: ("127.0.0.1", free_port())}
        first = make_node(0, 2, tmp_path / "missing", port=known[0][1], addresses=known)
        other = make_node(1, 2, tmp_path / "missing", addresses=known)
        for node in (first, other):
            await node.mesh.open()
        await other.sees(lambda view: len(view.joined) == 2)
        for node in (other, first):
            await node.mesh.close()

    run(main())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
