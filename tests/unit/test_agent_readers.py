"""An agent passes its node's tokens to the engine and reports its need."""

from types import SimpleNamespace
from typing import Any

from monarch.agent.readers import KEPT_S, ReaderLimit, ReaderNeed
from monarch.native import Readers
from monarch.peers.protocol import Need


def test_the_need_is_the_recent_maximum():
    need = ReaderNeed().after(Readers(0, 6, 1, 0), 8, 10.0)
    need = need.after(Readers(0, 2, 3, 0), 8, 10.1)
    assert need.need == Need(6, 3)

    need = need.after(Readers(0, 1, 0, 0), 8, 10.0 + KEPT_S)
    assert need.need == Need(6, 3)

    need = need.after(Readers(0, 0, 0, 0), 8, 10.0 + 2 * KEPT_S)
    assert need.need == Need(1, 0)


def test_fill_that_lacks_tokens_needs_as_many_as_it_may_run():
    assert ReaderNeed().after(Readers(1, 0, 1, 1), 8, 0.0).need == Need(0, 8)
    assert ReaderNeed().after(Readers(1, 0, 1, 0), 8, 0.0).need == Need(0, 1)


class Engine:
    """Notes how many tokens it has."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def set_readers(self, limit: int) -> None:
        self.limits.append(limit)

    def readers(self) -> Readers:
        return Readers(2, 3, 1, 0)


def staging(engine: Engine) -> Any:
    return SimpleNamespace(engine=engine, concurrency=SimpleNamespace(limit=8))


def test_without_a_limit_no_tokens_are_requested():
    engine = Engine()
    limit = ReaderLimit(None, lambda: None)

    limit.look(staging(engine), 0.0)

    assert limit.first() is None
    assert not engine.limits


def test_a_node_that_works_alone_has_all_tokens():
    engine = Engine()
    limit = ReaderLimit(5, lambda: None)

    limit.look(staging(engine), 0.0)

    assert limit.first() == 5
    assert engine.limits == [5]


def test_a_node_beside_others_has_its_leased_tokens_and_reports_its_need():
    engine = Engine()
    told = []
    mesh: Any = SimpleNamespace(
        readers_max=2, report_readers=lambda need, reading: told.append((need, reading))
    )

    ReaderLimit(5, lambda: mesh).look(staging(engine), 0.0)

    assert engine.limits == [2]
    assert told == [(Need(3, 1), 2)]
