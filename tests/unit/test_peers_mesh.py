"""Agents of several nodes on loopback: how they join and leave, and their faults."""

import asyncio
import os
import socket
from contextlib import suppress
from itertools import islice

import pytest

from monarch.peers import connection, timeouts
from monarch.peers.protocol import FILL_FREE, Phase, ProtocolError, Standing
from support.meshes import job, make_node, open_descriptors, run


def test_all_nodes_see_each_other_with_their_capacities(tmp_path):
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
            for node in nodes:  # the first finds its port in use, and takes the next
                await node.mesh.open()
            await nodes[1].sees(lambda view: view.complete)
            for node in nodes:
                await node.mesh.close()

    run(main())


def test_the_first_node_may_start_last(tmp_path):
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


def test_pauses_between_attempts_to_reach_the_hub_grow_and_are_bounded_in_large_jobs():
    small = list(islice(timeouts.hub_pauses_s(4), 10))
    large = list(islice(timeouts.hub_pauses_s(4096), 3))

    assert small[0] == timeouts.FIRST_RETRY_S
    assert small[1] == 2 * small[0]
    assert small[-1] == timeouts.RETRY_S
    assert set(large) == {4096 / timeouts.RETRIES_PER_S}


def test_attempts_that_fail_alike_are_one_line_of_the_log(tmp_path, caplog):
    caplog.set_level("INFO", "monarch.peers")

    async def main():
        node = make_node(1, 2, tmp_path)
        await node.mesh.open()
        await asyncio.sleep(5 * timeouts.FIRST_RETRY_S)
        await node.mesh.close()

    run(main())
    said = [line for line in caplog.messages if line.startswith("not joined")]
    assert said == ["not joined hub=0 reason=no address of node 0 is known"]


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
            # and news is still forwarded
            nodes[4].mesh.set_phase(Phase.FINISHED)
            for node in rest:
                await node.sees(lambda v: v.members[4].phase is Phase.FINISHED)

    run(main())


def test_a_hub_that_returns_is_the_hub_again(tmp_path):
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


def test_a_finished_node_is_seen_as_finished(tmp_path):
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


def test_nodes_tell_each_other_their_limits_of_fill(tmp_path):
    """Each receives the lowest limit of the others, without its own."""

    async def main():
        async with job(4, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: view.complete)
                assert node.mesh.fill.least == FILL_FREE
            nodes[1].mesh.fill.own = 5
            nodes[3].mesh.fill.own = 2
            for node, limit in zip(nodes, (2, 2, 2, 5), strict=True):
                await node.may_fill(limit)
            nodes[0].mesh.fill.own = 1
            await nodes[3].may_fill(1)
            nodes[0].mesh.fill.own = FILL_FREE

            await nodes[3].mesh.close()

            await nodes[2].may_fill(5)
            await nodes[1].may_fill(FILL_FREE)

    run(main())


def test_a_first_node_that_cannot_publish_its_address_is_no_hub(tmp_path):
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


def test_a_silent_stranger_is_disconnected_in_time(tmp_path, monkeypatch):
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
