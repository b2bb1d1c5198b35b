"""Marks of written Files among agents of several nodes on loopback."""

import asyncio

from monarch.peers.connection import Connection
from monarch.peers.protocol import Identity, Kind
from monarch.peers.protocol.messages import SCHEMAS
from support.meshes import PATIENCE_S, SECRET, job, make_node, run


async def knows(node, marks: set[int]) -> None:
    """Waits until a node has received these marks, and no other."""
    told: set[int] = set()
    async with asyncio.timeout(PATIENCE_S):
        while told < marks:
            told.update(await node.marks.get())
    assert told == marks


def test_marks_reach_all_other_nodes_and_later_ones(tmp_path):
    async def main():
        async with job(3, tmp_path, of=4) as nodes:
            for node in nodes:
                node.mesh.open_marks(7)
            nodes[0].mesh.mark([100])
            nodes[2].mesh.mark([200, 201])
            await knows(nodes[0], {200, 201})
            await knows(nodes[1], {100, 200, 201})
            await knows(nodes[2], {100})
            late = make_node(3, 4, tmp_path)
            late.mesh.open_marks(7)
            await late.mesh.open()
            await knows(late, {100, 200, 201})
            await late.mesh.close()

    run(main())


def test_marks_that_the_hub_has_not_forwarded_are_sent_to_its_successor(tmp_path):
    async def main():
        async with job(4, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 4)
            for node in nodes:
                node.mesh.open_marks(7)
            nodes[2].mesh.mark([200])
            await nodes[0].mesh.close()  # before it has heard of them
            await knows(nodes[3], {200})
            await knows(nodes[1], {200})
            assert nodes[0].marks.empty()


def test_last_marks_are_acknowledged_before_a_node_leaves(tmp_path):
    async def main():
        async with job(3, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 3)
                node.mesh.open_marks(7)
            for leaving, mark in ((nodes[2], 200), (nodes[0], 100)):
                leaving.mesh.mark([mark])
                assert await leaving.mesh.wait_for_acknowledgement(PATIENCE_S)
                await leaving.mesh.close()
            await knows(nodes[1], {100, 200})

    run(main())


def test_a_node_does_not_wait_long_for_a_missing_acknowledgement(tmp_path):
    async def main():
        async with job(2, tmp_path) as nodes:
            for node in nodes:
                await node.sees(lambda view: len(view.joined) == 2)
            nodes[1].mesh.open_marks(7)
            assert await nodes[1].mesh.wait_for_acknowledgement(0.0)
            nodes[1].mesh.mark([200])
            assert not await nodes[1].mesh.wait_for_acknowledgement(0.0)

    run(main())

    run(main())


def test_invalid_marks_end_the_connection(tmp_path):
    async def main():
        async with job(1, tmp_path, of=3) as nodes:
            nodes[0].mesh.open_marks(7)
            port = nodes[0].mesh.view.members[0].port
            identity = Identity("job", 1, SECRET)
            connection = await Connection.connect(("127.0.0.1", port), identity, 0)
            zeroes = dict.fromkeys(SCHEMAS[Kind.JOIN].fields, 0)
            await connection.send(Kind.JOIN, {**zeroes, "host": "", "capacities": []})
            await nodes[0].sees(lambda view: len(view.joined) == 2)
            await connection.send(
                Kind.MARKS, {"catalog": 7, "first": 0, "next": 1}, b"\x80"
            )
            await nodes[0].sees(lambda view: len(view.joined) == 1)
            assert nodes[0].marks.empty()
            connection.close()

    run(main())
