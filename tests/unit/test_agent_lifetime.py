"""When an agent without programs ends: nothing is left to stage, or nothing moves."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monarch.agent import lifetime
from monarch.agent.lifetime import AgentParts, FillLifetime
from monarch.native import Health, Reason, Step
from monarch.placement import Node
from monarch.stager import Event
from support.placements import EXTENT_BYTES, place_sizes
from support.stages import FILL, Stage, make_stage


@dataclass
class FakeCluster:
    """The other nodes, which still stage or do not."""

    others_stage: bool = False
    rests: bool = False

    def rest(self) -> bool:
        """Note that this node has staged its share."""
        self.rests = True
        return self.others_stage

    def resume(self) -> None:
        """Note that this node stages again."""
        self.rests = False


@dataclass
class Filling:
    """A FillLifetime over a Stager whose engine is scripted by a test."""

    stage: Stage
    cluster: FakeCluster | None
    shown: list[tuple[Any, ...]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts: Any = SimpleNamespace(
            joining=SimpleNamespace(cluster=self.cluster),
            counters=self.stage.counters,
            turn=self.stage.stager.turn,
            end=self.reasons.append,
        )
        assert set(vars(parts)) <= set(AgentParts.__slots__)
        self.lifetime = FillLifetime(parts, lambda *state: self.shown.append(state))

    def look(self) -> bool:
        """Run one turn of the Stager, and look; return whether the agent ends."""
        self.stage.stager.turn()
        self.lifetime.look(self.stage.stager)
        return bool(self.reasons)


@pytest.fixture(autouse=True)
def shown_at_once(monkeypatch):
    """Each look shows the progress."""
    monkeypatch.setattr(lifetime, "SHOW_S", 0.0)


@pytest.fixture
def filling(tmp_path):
    """A function that makes one for files of one page each."""

    def make(files: int, cluster: FakeCluster | None = None) -> Filling:
        stage = make_stage(tmp_path, [4096] * files, settings=FILL)
        stage.stager.start()
        return Filling(stage, cluster)

    return make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A function that lets time pass."""
    now = [1000.0]
    fake = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(lifetime, "time", fake)

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


def test_staging_ends_when_each_file_is_staged(filling):
    one = filling(2)
    assert not one.look()

    one.stage.end(0)
    assert not one.look()
    one.stage.end(1)

    assert one.look()
    counts = [(found.files, found.kept_files) for found, _, _ in one.shown]
    assert (counts[0], counts[-1]) == ((0, 2), (2, 2))


def test_staging_checks_nothing_before_the_catalog_is_ready(filling):
    one = filling(1)

    one.lifetime.look(None)

    assert not one.reasons


def test_failed_files_are_retried_until_they_fail_for_good(filling, clock):
    one = filling(1)
    tries = 0
    while not one.look():
        if one.stage.ordered():
            one.stage.end(0, status=-errno.EIO, step=Step.READ)
            tries += 1
        clock(lifetime.RETRY_S)

    assert 1 < tries < 10
    assert one.stage.replicas.absent(Reason.ERROR).tolist() == [0]


def test_a_file_that_has_changed_is_not_waited_for(filling):
    one = filling(1)
    one.look()

    one.stage.end(0, status=-errno.ESTALE, step=Step.STAT)

    assert one.look()


def test_staging_gives_up_when_the_origin_does_not_answer_for_long(filling, clock):
    one = filling(1)
    one.look()
    one.stage.engine.found = Health(1, 0, 1)
    assert not one.look()

    clock(lifetime.GIVE_UP_S / 2)
    assert not one.look()
    clock(lifetime.GIVE_UP_S / 2)

    assert one.look()


def test_staging_gives_up_files_for_which_the_node_lacks_resources(filling, clock):
    one, rounds = filling(1), 0
    while not one.look():
        rounds += 1
        if one.stage.ordered():
            one.stage.end(0, status=-errno.EMFILE, step=Step.OPEN)
        clock(lifetime.RETRY_S)
        one.stage.clock.now_s += lifetime.RETRY_S

    assert (
        lifetime.GIVE_UP_S / lifetime.RETRY_S / 2 < rounds <= 2 * lifetime.RETRIES_MAX
    )
    assert one.stage.replicas.absent(Reason.BUSY).tolist() == [0]


def test_a_node_that_has_staged_its_share_waits_for_the_others(filling):
    cluster = FakeCluster(others_stage=True)
    one = filling(1, cluster)
    one.look()
    one.stage.end(0)

    assert not one.look()
    assert cluster.rests
    cluster.others_stage = False

    assert one.look()


def test_a_node_that_loses_a_replica_announces_it_to_the_others(filling, clock):
    cluster = FakeCluster(others_stage=True)
    one = filling(1, cluster)
    one.look()
    one.stage.end(0)
    one.look()
    assert cluster.rests

    one.stage.replicas.change(0, Event.LOST)
    one.look()

    assert not cluster.rests


def test_of_a_partly_kept_file_only_the_part_has_to_be_staged(tmp_path):
    sizes = [*[4096] * 6, 9 * EXTENT_BYTES]
    nodes = [Node(name, 10 * EXTENT_BYTES) for name in ("n0", "n1")]
    stage = make_stage(tmp_path, sizes, settings=FILL)
    placement = place_sizes(nodes, np.array(sizes, np.uint64))
    stage.join(placement, 0)
    one = Filling(stage, None)

    one.look()

    kept = placement.kept(0)
    assert 0 < kept[6:].sum() < 9
    found, _, _ = one.shown[-1]
    assert found.kept_bytes == kept[:6].sum() * 4096 + kept[6:].sum() * EXTENT_BYTES
