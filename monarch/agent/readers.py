"""How many Transfers of this node read the Origin at once, if the job has a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from monarch import native
from monarch.peers.protocol import TOKENS_MAX, Need

if TYPE_CHECKING:
    from monarch.agent.staging import Staging
    from monarch.peers.mesh import Mesh

NONE: Final = Need()
KEPT_S: Final = 2.0
"""Tokens that are unused for so long move to other nodes, within twice the time."""


@dataclass(frozen=True, slots=True)
class ReaderNeed:
    """The highest needs in a span of time and in the one before.

    Args:
        since_s: when the span began.
    """

    now: Need = NONE
    before: Need = NONE
    since_s: float = float("-inf")

    @property
    def need(self) -> Need:
        """Return how many tokens the node could use."""
        return _most(self.now, self.before)

    def after(self, seen: native.Readers, fill_limit: int, now_s: float) -> ReaderNeed:
        """Return the needs, updated by the engine's counts since the last time.

        Args:
            fill_limit: how many Files fill copies at once, if it may read.
            now_s: a monotonic clock.
        """
        fill = max(seen.background, fill_limit if seen.lacking else 0)
        wanted = Need(min(seen.demand, TOKENS_MAX), fill)
        if now_s - self.since_s < KEPT_S:
            return replace(self, now=_most(self.now, wanted))
        return ReaderNeed(wanted, self.now, now_s)


def _most(one: Need, other: Need) -> Need:
    return Need(max(one.demand, other.demand), max(one.fill, other.fill))


class ReaderLimit:
    """Sends the engine its number of tokens, and the other nodes its needs.

    Args:
        total: the tokens of the job; None: no limit.
        mesh: returns the connections to the other nodes; None: this one works alone,
            and has all tokens.
    """

    def __init__(self, total: int | None, mesh: Callable[[], Mesh | None]) -> None:
        self._total = total
        self._mesh = mesh
        self._need = ReaderNeed()

    def __repr__(self) -> str:
        return f"<ReaderLimit of {self._total} {self._need.need}>"

    def first(self) -> int | None:
        """Return how many tokens this node has when it begins."""
        if self._total is None:
            return None
        mesh = self._mesh()
        return self._total if mesh is None else mesh.readers_max

    def look(self, staging: Staging, now_s: float) -> None:
        """Apply the leases of the job; called repeatedly.

        Args:
            now_s: a monotonic clock.
        """
        limit = self.first()
        if limit is None:
            return
        engine = staging.engine
        engine.set_readers(limit)
        seen = engine.readers()
        self._need = self._need.after(seen, staging.concurrency.limit, now_s)
        if (mesh := self._mesh()) is not None:
            mesh.report_readers(self._need.need, seen.reading)
