"""An agent's report on the other nodes: their states and the exchanged data."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monarch.agent.stats import AgentStats, ClusterStats, PeerTraffic, RunLabel
from monarch.cluster import NodeList
from monarch.metrics import AgentCounters
from monarch.native import COUNTERS, Reason, ReplicaState, Traffic, state_word
from monarch.peers.protocol import Member, Phase, Standing, View
from monarch.placement import Mode, Node, Units
from monarch.report import PeerFigures
from monarch.report.model import NO_ROOM
from monarch.stager import FileTable, Policy, Replicas, Share, Sources, WrittenMarks
from support.fake_engine import PeerNotes
from support.placements import EXTENT_BYTES, place_sizes, place_whole

NAMES = ("n0", "n1", "n2")
NOTHING = Traffic(*[0] * len(Traffic._fields))
FILES = 300


class FakeEnd:
    """One end of the data plane: its counts, until it is closed."""

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

    def waits_by_source(self):
        return {}

    def seen(self):
        return {}

    def exit_status(self):
        return None

    def unslotted(self):
        return 0


@pytest.fixture
def placement():
    needs = np.full(FILES, 4096, np.uint64)
    nodes = [Node(name, 1 << 30) for name in NAMES]
    return place_whole(nodes, needs, 7, Mode.PARTITION)


def stats_of(**parts):
    """The stats of an agent that has no Tier and sees no program."""
    setup: Any = SimpleNamespace(
        command=(), datasets=(), tiers=(), config_text='{"schema": 1}'
    )
    processes: Any = FakeProcesses()
    label = RunLabel("7.0", "n1")
    return AgentStats(setup, label, processes, AgentCounters(), **parts)


def sources_of(placement, table, own=1):
    return Sources(Policy.cluster(placement, own), table, AgentCounters())


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
    return NodeList(names, min(1, len(names) - 1), "hosts", {})


def staging(policy, sizes=None, words=None):
    """A Stager as far as stats look at it: nothing is staged, for all reasons."""
    reasons = [Reason.NONE, Reason.NO_ROOM, Reason.BUSY]
    absent = [
        state_word(ReplicaState.ABSENT, reason=reasons[n % 3]) for n in range(FILES)
    ]
    words = np.array(absent if words is None else words, np.uint32)
    sizes = np.full(FILES, 10, np.uint64) if sizes is None else sizes
    marks = WrittenMarks(np.zeros(1, np.uint8), np.zeros(FILES, np.uint8), print)
    table = FileTable(
        sizes=sizes,
        words=words,
        marks=marks,
        name_of=str,
        inodes_of=lambda files, tier: [],
        inodes_in=lambda tier: [],
    )
    storage = SimpleNamespace(
        tiers=(), ledger=SimpleNamespace(accounts=[]), packed_in=lambda tier=None: []
    )
    replicas = Replicas(table)
    return SimpleNamespace(
        replicas=replicas,
        share=Share.of(replicas, policy, 1),
        changed=[],
        failures={},
        storage=storage,
        table=SimpleNamespace(tally=lambda: {"staged_files": 3}),
        errors={},
        policy=policy,
        pool_account=None,
    )


def test_a_node_alone_reports_no_others(view):
    alone = stats_of()
    only = stats_of(cluster=ClusterStats(membership(("n0",)), View(view.members[:1])))

    assert (alone.snapshot().nodes, alone.snapshot().peers) == ((), ())
    assert (only.snapshot().nodes, only.snapshot().peers) == ((), ())
    assert only.nodes() == []


def test_nodes_are_reported_with_their_states(view):
    stats = stats_of(cluster=ClusterStats(membership(), view, links_altered=3))

    found = stats.snapshot()

    assert (found.nodes, found.number) == (NAMES, 1)
    assert found.peers == (
        PeerFigures(0, "n0", "joined"),
        PeerFigures(2, "n2", "never joined"),
    )
    assert found.tally["links_altered"] == 3
    assert stats.nodes()[2] == {
        "number": 2,
        "name": "n2",
        "standing": "never joined",
        "phase": "running",
    }


@pytest.mark.parametrize(
    ("phase", "standing"), [(Phase.FINISHED, "joined"), (Phase.RUNNING, "left")]
)
def test_the_first_node_to_end_with_the_job_has_not_left(phase, standing):
    own = Member(1, Standing.JOINED, phase=Phase.FINISHED)
    view = View((Member(0, Standing.LEFT, phase=phase), own))
    stats = stats_of(cluster=ClusterStats(membership(("n0", "n1")), view))

    assert stats.peers()[0].standing == standing


def test_traffic_to_and_from_a_peer_is_reported(view, placement):
    server: Any = FakeEnd()
    receiver: Any = FakeEnd()
    table = PeerNotes()
    sources = sources_of(placement, table)
    links = PeerTraffic(server, receiver, sources)
    server.counts[0] = NOTHING._replace(
        replies=5, ranges=3, bytes=500, refused=2, malformed=1
    )
    receiver.counts[0] = NOTHING._replace(malformed=2, bytes=40)
    sources.connected(0)
    table.answer(0, 70)
    sources.lost(0)
    sources.connected(0)

    peer = stats_of(cluster=ClusterStats(membership(), view, 0, links)).peers()[0]

    assert (peer.served_files, peer.served_ranges) == (2, 3)
    assert (peer.served_bytes, peer.refused) == (500, 2)
    assert (peer.fetched_files, peer.fetched_bytes, peer.malformed) == (1, 40, 3)
    assert (peer.breaker_opened, peer.breaker_closed) == (1, 1)


def test_final_figures_of_peers_outlive_both_ends_and_how_the_others_leave(
    view, placement
):
    server: Any = FakeEnd()
    receiver: Any = FakeEnd()
    links = PeerTraffic(server, receiver, sources_of(placement, PeerNotes()))
    server.counts[0] = NOTHING._replace(replies=5)
    before = stats_of(cluster=ClusterStats(membership(), view, 0, links))

    final = before.peers()
    server.closed = receiver.closed = True
    left = View(tuple(member.left() for member in view.members))
    cluster = ClusterStats(membership(), left, 0, links)
    after = stats_of(cluster=cluster, final_peers=final)

    peer = after.snapshot().peers[0]
    assert (peer.standing, peer.served_files) == ("joined", 5)
    assert after.nodes()[0]["standing"] == "left"


def test_all_nodes_together_report_each_unstaged_file_once(placement):
    found: dict[str, int] = {}
    for number in range(len(NAMES)):
        stats = stats_of(stager=staging(Policy.cluster(placement, number)))
        for one in stats.snapshot().unstaged:
            found[one.reason] = found.get(one.reason, 0) + one.files

    assert sum(found.values()) == FILES
    assert found[NO_ROOM] == FILES // 3


def test_a_running_job_is_not_reported_as_ended() -> None:
    """Finding 10 of first use."""
    sizes = np.full(3, 4096, np.uint64)
    policy = Policy.alone(Units.whole(np.arange(4, dtype=np.uint64)))
    words = [state_word(ReplicaState.ABSENT)] * 3
    stats = stats_of(stager=staging(policy, sizes, words))

    def reasons(*, complete: bool) -> list[str]:
        unstaged = stats.snapshot(complete=complete).unstaged
        return [one.reason for one in unstaged if one.files]

    assert reasons(complete=False) == ["not requested yet"]
    assert reasons(complete=True) == ["not requested before the job ended"]


def test_counters_of_the_data_plane_and_of_python_are_reported_together(placement):
    stats = stats_of(stager=staging(Policy.cluster(placement, 1)))
    stats.counters.files_changed = 2
    stats.counters.staged_files = 1

    tally = stats.snapshot().tally

    assert (tally["staged_files"], tally["files_changed"]) == (4, 2)


def in_parts(room):
    """Small Files and a large one that no node of three has room for."""
    sizes = np.array([*[4096] * 12, 30 * EXTENT_BYTES], np.uint64)
    nodes = [Node(name, room) for name in NAMES]
    placement = place_sizes(nodes, sizes, mode=Mode.REPLICATE)
    words = [state_word(ReplicaState.ABSENT)] * 12 + [state_word(ReplicaState.STAGING)]
    return placement, sizes, words


def test_a_file_that_nodes_keep_in_part_is_not_reported_as_being_copied():
    placement, sizes, words = in_parts(20 * EXTENT_BYTES)
    found = {"being copied": 0}
    for number in range(len(NAMES)):
        policy = Policy.cluster(placement, number)
        stats = stats_of(stager=staging(policy, sizes, words))
        for one in stats.snapshot().unstaged:
            found[one.reason] = found.get(one.reason, 0) + one.files

    assert found["being copied"] == 0
    assert found["not requested before the job ended"] == 12


@pytest.mark.parametrize(("room", "partly"), [(5, 1), (20, 0), (40, 0)])
def test_the_share_of_large_files_that_a_node_keeps_is_reported(room, partly):
    placement, sizes, words = in_parts(room * EXTENT_BYTES)
    policy = Policy.cluster(placement, 1)
    namespace: Any = SimpleNamespace(inventory=None, roots=(), segments=None)
    stats = stats_of(stager=staging(policy, sizes, words))
    stats.setup.config = SimpleNamespace(peers=SimpleNamespace(mode="replicate"))

    share = replace(stats, namespace=namespace)._share()["share"]

    whole = policy.kept_whole
    assert share.kept_files == whole.sum()
    assert share.part_files == 1 - whole[12]
    assert share.partly_held_files == partly
    left = placement.units.spread(sizes)[~placement.placed].sum()
    assert share.partly_left_bytes == left
    assert share.unplaced_files == 0
    assert share.copies_short == 13 - partly - whole.sum()
