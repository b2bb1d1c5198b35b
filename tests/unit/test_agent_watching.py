"""The figures that nodes send each other while one of them is watched."""

from types import SimpleNamespace
from typing import Any

import pytest

from monarch.agent.watching import (
    LOOK_S,
    LOOKING_S,
    NODES_MAX,
    NodeFigures,
    Watching,
    period_s,
)
from support.stages import Clock

FIGURES = NodeFigures(bytes=5, kept_bytes=10, opens=3, ready_opens=2)


class FakeMesh:
    """The connections to other nodes, which keep the sent messages."""

    def __init__(self, nodes: int) -> None:
        self.view = SimpleNamespace(members=[None] * nodes)
        self.sent: list[dict[str, Any]] = []

    def send_note(self, content: dict[str, Any]) -> None:
        self.sent.append(content)


@pytest.fixture
def clock():
    return Clock()


def watching(clock: Clock, nodes: int = 4) -> tuple[Watching, FakeMesh]:
    """A node among others that have not sent anything yet."""
    mesh: Any = FakeMesh(nodes)
    return Watching(lambda: mesh, lambda: FIGURES, clock), mesh


def test_a_watching_node_announces_itself_periodically(clock):
    one, mesh = watching(clock)

    one.look()
    one.look()
    assert mesh.sent == [{"watch": 1}]
    clock.now_s += LOOK_S
    one.look()

    assert len(mesh.sent) == 2


def test_a_node_sends_its_figures_only_while_another_watches(clock):
    one, mesh = watching(clock)
    one.tell()
    assert mesh.sent == []

    one.hear(2, {"watch": 1})
    for _ in range(100):
        one.tell()
        clock.now_s += LOOKING_S / 50

    assert mesh.sent == [{"seen": FIGURES.as_dict()}] * int(LOOKING_S)


def test_received_figures_are_returned_with_their_age(clock):
    one, _ = watching(clock)

    one.hear(3, {"seen": FIGURES.as_dict()})
    clock.now_s += 2

    assert one.heard() == {3: (2.0, FIGURES)}


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {**FIGURES.as_dict(), "opens": -1},
        {**FIGURES.as_dict(), "opens": "3"},
        {**FIGURES.as_dict(), "opens": 1 << 63},
        {**FIGURES.as_dict(), "opens": True},
    ],
)
def test_invalid_figures_are_discarded(clock, told):
    one, _ = watching(clock)

    one.hear(1, {"seen": told})

    assert one.heard() == {}


def test_large_jobs_send_figures_less_often_and_huge_ones_never(clock):
    assert period_s(2) == period_s(32) == 1.0
    assert period_s(128) == 16.0

    one, mesh = watching(clock, NODES_MAX + 1)
    one.hear(1, {"watch": 1})
    one.look()
    one.tell()

    assert mesh.sent == []


def test_a_node_alone_sends_nothing(clock):
    one = Watching(lambda: None, lambda: FIGURES, clock)

    one.look()
    one.hear(1, {"watch": 1})
    one.tell()

    assert one.heard() == {}
