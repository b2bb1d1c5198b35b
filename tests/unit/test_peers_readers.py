"""The tokens of a job to read the origin are leased, and never too many exist."""

import random

import pytest

from monarch.peers.protocol import Held, Lease, Need, ReaderTokens
from monarch.peers.protocol.readers import deal, fair_share

LEASE_S = 2.5


def needs(*pairs: tuple[int, int]) -> dict[int, Need]:
    return {number: Need(*pair) for number, pair in enumerate(pairs)}


@pytest.mark.parametrize(
    ("total", "wanted", "given"),
    [
        (8, needs((0, 0), (0, 0)), [4, 4]),
        (8, needs((8, 0), (0, 0)), [7, 1]),
        (8, needs((9, 0), (9, 0)), [4, 4]),
        (9, needs((2, 0), (9, 0)), [2, 7]),
        (8, needs((6, 0), (0, 64)), [6, 2]),  # demand before fill
        (8, needs((0, 64), (0, 64)), [4, 4]),
        (2, needs((1, 0), (1, 0), (1, 0)), [0, 1, 1]),
        (5, needs((0, 0), (0, 0), (0, 0)), [2, 2, 1]),
    ],
)
def test_programs_precede_fill_and_no_node_takes_tokens_that_another_lacks(
    total, wanted, given
):
    assert list(deal(total, wanted).values()) == given


def test_all_tokens_are_dealt_whatever_is_needed():
    numbers = random.Random(4)
    for _ in range(500):
        total, nodes = numbers.randrange(1, 40), numbers.randrange(1, 9)
        wanted = needs(*((numbers.randrange(20),) * 2 for _ in range(nodes)))
        given = deal(total, wanted)
        assert sum(given.values()) == total
        assert sum(fair_share(total, nodes, n) for n in range(nodes)) == total


class Job:
    """Nodes whose messages to the hub, and back, are late, and which die."""

    def __init__(self, total: int, nodes: int, seed: int) -> None:
        self.total = total
        self.numbers = random.Random(seed)
        self.now_s = 100.0
        self.nodes = {n: ReaderTokens(total, nodes, n, LEASE_S) for n in range(nodes)}
        self.reading = dict.fromkeys(self.nodes, 0)
        self.to_hub: dict[int, list[Held]] = {n: [] for n in self.nodes}
        self.to_node: dict[int, list[Lease]] = {n: [] for n in self.nodes}
        self.need: Need | None = None  # by chance
        self.hub = self.nodes[0]
        self.hub.lead(self.now_s)
        for number in [*self.nodes][1:]:
            self.hub.lender.admit(number)

    @property
    def used(self) -> int:
        """How many tokens all living nodes may use now, or still use."""
        return sum(
            max(node.follow(self.now_s), self.reading[number])
            for number, node in self.nodes.items()
        )

    def beat(self, number: int) -> None:
        """A node follows its lease, reads, and sends a report, which arrives later."""
        node, numbers = self.nodes[number], self.numbers
        limit = node.follow(self.now_s)
        running = [n for n in range(self.reading[number]) if numbers.random() < 0.7]
        begun = min(numbers.randrange(2 * self.total), max(0, limit - len(running)))
        self.reading[number] = len(running) + begun
        need = self.need or Need(numbers.randrange(9), numbers.randrange(9))
        node.report(need, self.reading[number])
        self.to_hub[number].append(node.held)

    def carry(self, number: int) -> None:
        """Some messages between a node and the hub arrive, in their order."""
        lender, numbers = self.hub.lender, self.numbers
        while self.to_hub[number] and numbers.random() < 0.6:
            lender.hear(number, self.to_hub[number].pop(0))
        self.to_node[number].append(lender.lease(number))
        while self.to_node[number] and numbers.random() < 0.6:
            self.nodes[number].take(self.to_node[number].pop(0), self.now_s)

    def step(self) -> None:
        """A tenth of a second of the job."""
        self.now_s += 0.1
        for number in self.nodes:
            self.beat(number)
            if number:
                self.carry(number)
        self.hub.deal(self.now_s)

    def kill(self, number: int) -> None:
        """A node dies with what it has leased."""
        del self.nodes[number], self.reading[number]
        self.hub.lender.lose(number, self.now_s)


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_messages_makes_more_tokens_than_there_are(seed):
    job = Job(total=7, nodes=4, seed=seed)

    for step in range(300):
        if step == 150:
            job.kill(3)
        job.step()
        assert job.used <= job.total


def test_the_tokens_of_a_dead_node_are_returned():
    job = Job(total=12, nodes=3, seed=1)
    for _ in range(60):
        job.step()
    held = job.nodes[2].follow(job.now_s)
    assert held > 0
    job.kill(2)
    at_once = job.used
    job.need = Need(1, 1)
    for _ in range(100):
        job.step()

    assert at_once <= 12 - held
    assert sum(node.follow(job.now_s) for node in job.nodes.values()) == 12


def test_a_node_without_a_hub_has_its_part_once_its_lease_has_ended():
    hub, node = (ReaderTokens(8, 2, number, LEASE_S) for number in range(2))
    assert node.follow(0.0) == 4
    hub.lead(0.0)
    hub.lender.admit(1)
    node.report(Need(9, 0), 0)
    hub.report(Need(), 0)
    hub.lender.hear(1, node.held)
    hub.deal(LEASE_S)
    hub.follow(LEASE_S)
    hub.report(Need(), 0)  # it follows the smaller lease of its own
    hub.deal(LEASE_S)
    node.take(hub.lender.lease(1), LEASE_S)

    assert node.follow(LEASE_S) == 7
    assert node.follow(2 * LEASE_S) == 4


def test_a_new_hub_leases_no_more_than_its_part_to_anybody_at_first():
    hub = ReaderTokens(9, 3, 1, LEASE_S)
    hub.lead(50.0)
    hub.lender.admit(2)
    hub.report(Need(9, 9), 0)

    hub.deal(50.0 + LEASE_S - 0.1)
    before = hub.lender.lease(1).tokens, hub.lender.lease(2).tokens
    hub.deal(50.0 + LEASE_S)

    assert before == (3, 3)
    assert hub.lender.lease(1).tokens > 3


def test_only_changes_that_the_hub_waits_for_are_reported_at_once():
    node = ReaderTokens(8, 2, 1, LEASE_S)
    node.follow(0.0)

    assert not node.report(Need(4, 0), 4)
    assert node.report(Need(4, 1), 4)  # it lacks one
    assert not node.report(Need(4, 1), 4)
    node.follow(0.0)
    assert node.report(Need(4, 1), 6) is False
    assert node.report(Need(4, 1), 4)  # it has returned two
