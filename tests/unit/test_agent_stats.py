"""What an agent tells of the other nodes: as they stand, and what went to and fro."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monarch.agent.stats import Figures
from monarch.cluster import Membership
from monarch.metrics import Tally
from monarch.native import COUNTERS, Reason, ReplicaState, Traffic, state_word
from monarch.peers.protocol import Member, Phase, Standing, View
from monarch.placement import Mode, Node, Placement
from monarch.report import PeerFigures
from monarch.stager import FileTable, Replicas, Sources, WrittenMarks

NAMES = ("n0", "n1", "n2")
NOTHING = Traffic(*[0] * len(Traffic._fields))
FILES = 300


class FakeEnd:
    """One end of the data plane: what it has counted, until it is closed."""

    def __init__(self):
        self.counts = [NOTHING] * len(NAMES)
        self.closed = False

    def traffic(self):
        if self.closed:
            raise ValueError("closed")
        return self.counts


class FakeProcesses:
    """No program at all."""

    def totals(self):
        return dict.fromkeys((spec.name for spec in COUNTERS), 0)

    def waits(self):
        return [0] * 40, 0

    def seen(self):
        return {}

    def unslotted(self):
        return 0


@pytest.fixture
def placement():
    needs = np.full(FILES, 4096, np.uint64)
    return Placement([Node(name, 1 << 30) for name in NAMES], needs, 7, Mode.PARTITION)


@pytest.fixture
def figures():
    return figures_of_nobody()


def figures_of_nobody():
    """The figures of an agent that has no Tier and sees no program."""
    setup: Any = SimpleNamespace(command=(), datasets=(), tiers=())
    processes: Any = FakeProcesses()
    return Figures(setup, "7.0.n1", processes)


@pytest.fixture
def view():
    standings = (Standing.JOINED, Standing.JOINED, Standing.UNSEEN)
    return View(
        tuple(
            Member(number, standing, phase=Phase.RUNNING)
            for number, standing in enumerate(standings)
        )
    )


def membership(names=NAMES):
    return Membership(names, min(1, len(names) - 1), "hosts", {})


def staging():
    """A Stager as far as figures look at it: nothing is staged, for all reasons."""
    reasons = [Reason.NONE, Reason.NO_ROOM, Reason.BUSY]
    words = np.array(
        [state_word(ReplicaState.ABSENT, reason=reasons[n % 3]) for n in range(FILES)],
        np.uint32,
    )
    marks = WrittenMarks(np.zeros(1, np.uint8), np.zeros(FILES, np.uint8), print)
    table = FileTable(
        sizes=np.full(FILES, 10, np.uint64),
        words=words,
        marks=marks,
        publish=lambda file, word: None,
        name_of=str,
        inodes_of=lambda files, tier: [],
        inodes_in=lambda tier: [],
    )
    return SimpleNamespace(
        replicas=Replicas(table),
        changed=[],
        ledger=SimpleNamespace(accounts=[], transit=None),
    )


def test_a_node_alone_tells_of_no_others(figures, view):
    alone = figures.snapshot()
    figures.join(membership(("n0",)), lambda: View(view.members[:1]))
    figures.settle()

    assert (alone.nodes, alone.peers) == ((), ())
    assert (figures.snapshot().nodes, figures.snapshot().peers) == ((), ())
    assert figures.nodes() == []


def test_nodes_are_told_with_how_they_stand(figures, view):
    figures.join(membership(), lambda: view)

    told = figures.snapshot()

    assert (told.nodes, told.number) == (NAMES, 1)
    assert told.peers == (
        PeerFigures(0, "n0", "joined"),
        PeerFigures(2, "n2", "never joined"),
    )
    assert figures.nodes()[2] == {
        "number": 2,
        "name": "n2",
        "standing": "never joined",
        "phase": "running",
    }


def test_what_went_to_and_came_from_a_peer_is_told(figures, view, placement):
    server, receiver = FakeEnd(), FakeEnd()
    sources = Sources(placement, 1, Tally())
    figures.join(membership(), lambda: view)
    figures.share(server, receiver, sources)
    server.counts[0] = NOTHING._replace(replies=5, bytes=500, refused=2, malformed=1)
    receiver.counts[0] = NOTHING._replace(malformed=2)
    sources.connected(0)
    sources.answered(0, 70)
    sources.lost(0)
    sources.connected(0)

    peer = figures.snapshot().peers[0]

    assert (peer.served_files, peer.served_bytes, peer.refused) == (5, 500, 2)
    assert (peer.fetched_files, peer.fetched_bytes, peer.malformed) == (1, 70, 3)
    assert (peer.breaker_opened, peer.breaker_closed) == (1, 1)


def test_what_was_settled_outlives_both_ends_and_how_the_others_leave(
    figures, view, placement
):
    server, receiver = FakeEnd(), FakeEnd()
    views = [view]
    figures.join(membership(), lambda: views[-1])
    figures.share(server, receiver, Sources(placement, 1, Tally()))
    server.counts[0] = NOTHING._replace(replies=5)

    figures.settle()
    server.closed = receiver.closed = True
    views.append(View(tuple(member.left() for member in view.members)))
    figures.settle()

    peer = figures.snapshot().peers[0]
    assert (peer.standing, peer.served_files) == ("joined", 5)
    assert figures.nodes()[0]["standing"] == "left"


def test_all_nodes_together_tell_of_each_unstaged_file_once(view, placement):
    told: dict[str, int] = {}
    for number in range(len(NAMES)):
        figures = figures_of_nobody()
        figures.join(Membership(NAMES, number, "hosts", {}), lambda: view)
        sources = Sources(placement, number, Tally())
        end: Any = FakeEnd()
        figures.share(end, end, sources)
        figures.stager = staging()
        for one in figures.snapshot().unstaged:
            told[one.reason] = told.get(one.reason, 0) + one.files

    assert sum(told.values()) == FILES
    assert told["no tier had room for them"] == FILES // 3
