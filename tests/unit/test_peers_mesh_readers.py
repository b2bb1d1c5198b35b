"""Nodes on loopback lease the tokens to read the origin to each other."""

import asyncio

from monarch.peers.protocol import Need
from support.meshes import Node, job, run

TOTAL = 9
PATIENCE_S = 20.0
BEAT_S = 0.02


class Beats:
    """The repeated messages of the agents of all nodes."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = {node.number: node for node in nodes}
        self.needs = {node.number: Need() for node in nodes}
        self.most = 0

    def limits(self) -> list[int]:
        """The tokens of each node now."""
        found = []
        for node in self.nodes.values():
            limit = node.mesh.readers_max
            assert limit is not None
            node.mesh.report_readers(self.needs[node.number], 0)
            found.append(limit)
        self.most = max(self.most, sum(found))
        return found

    async def until(self, *limits: int) -> None:
        """Continues until the nodes have so many tokens."""
        for _ in range(int(PATIENCE_S / BEAT_S)):
            if self.limits() == [*limits]:
                return
            await asyncio.sleep(BEAT_S)
        raise AssertionError(self.limits())


async def one_needs_most(nodes: list[Node]) -> Beats:
    """All tokens are leased: equally, then by the need of the last of three nodes."""
    for node in nodes:
        await node.sees(lambda view: view.complete)
    beats = Beats(nodes)
    assert beats.limits() == [3, 3, 3]
    beats.needs[2] = Need(9, 0)
    await beats.until(1, 1, 7)
    return beats


def test_the_hub_leases_tokens_by_need_and_takes_back_those_of_the_dead(tmp_path):
    async def main():
        async with job(3, tmp_path, readers_max=TOTAL) as nodes:
            beats = await one_needs_most(nodes)
            beats.needs[1] = Need(9, 0)
            await beats.until(1, 4, 4)
            beats.needs[2] = Need()
            await beats.until(1, 7, 1)

            del beats.nodes[1]
            await nodes[1].mesh.close()

            await beats.until(5, 4)
            assert beats.most <= TOTAL

    run(main())


def test_the_next_hub_leases_all_tokens_when_the_hub_is_lost(tmp_path):
    async def main():
        async with job(3, tmp_path, readers_max=TOTAL) as nodes:
            beats = await one_needs_most(nodes)

            del beats.nodes[0]
            await nodes[0].mesh.close()

            await beats.until(1, 8)
            assert beats.most <= TOTAL

    run(main())


def test_without_a_limit_nothing_is_leased(tmp_path):
    async def main():
        async with job(2, tmp_path) as nodes:
            await nodes[1].sees(lambda view: view.complete)
            assert nodes[1].mesh.readers_max is None
            nodes[1].mesh.report_readers(Need(9, 9), 9)

    run(main())
