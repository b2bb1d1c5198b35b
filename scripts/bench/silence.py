"""One node of many falls silent: the real breakers of all others, in simulated time."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from monarch.stager.breaker import Breaker, PeerEvent, State, after, ask

SPAN_S = 120.0
TIME_OUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Silence:
    """What a silence cost the job.

    Args:
        late_opens: opens that waited for the time-out before a breaker was open, on all
            nodes together.
        closed_last_s: when the last agent stopped to wait for the lost node.
        trials: requests by which agents looked whether it is back.
        trials_per_s: their rate in the second half.
    """

    late_opens: int
    closed_last_s: float
    trials: int
    trials_per_s: float


class Agents:
    """The breakers of all other nodes, and what their requests came to."""

    def __init__(self, count: int, told_s: float | None) -> None:
        self._breakers = [Breaker() for _ in range(count)]
        self._told_s = told_s
        self._waiting: list[tuple[float, int]] = []
        self._opened_s: dict[int, float] = {}
        self._notes_s: deque[float] = deque()
        self.late_opens = 0
        self.tried_s: list[float] = []

    def open(self, agent: int, now_s: float) -> None:
        """Let an agent want a File of the lost node."""
        self._pass_time(now_s)
        allowed, self._breakers[agent] = ask(self._breakers[agent], now_s)
        if allowed:
            if agent in self._opened_s:
                self.tried_s.append(now_s)
            else:
                self.late_opens += 1
            heapq.heappush(self._waiting, (now_s + TIME_OUT_S, agent))

    def closed_last_s(self) -> float:
        """Return when the last of those who ask at all stopped to ask freely."""
        never = SPAN_S if len(self._opened_s) < len(self._breakers) else 0.0
        return max(never, *self._opened_s.values(), 0.0)

    def _pass_time(self, now_s: float) -> None:
        """Let the requests end that are late by now, and word of it go round."""
        while self._waiting and self._waiting[0][0] <= now_s:
            late_s, agent = heapq.heappop(self._waiting)
            if self._fail(agent, late_s) and self._told_s is not None:
                self._notes_s.append(late_s + self._told_s)
        while self._notes_s and self._notes_s[0] <= now_s:
            told_s = self._notes_s.popleft()
            for agent, breaker in enumerate(self._breakers):
                # Who hears of it passes it on no further: all others hear it too.
                if breaker.state is State.CLOSED:
                    self._fail(agent, told_s)

    def _fail(self, agent: int, now_s: float) -> bool:
        """Count a failure, an agent's own or one that it heard of: has it opened?"""
        changed = after(self._breakers[agent], PeerEvent.FAILURE, now_s)
        self._breakers[agent] = changed
        if changed.state is not State.OPEN or agent in self._opened_s:
            return False
        self._opened_s[agent] = now_s
        return True


def silence(nodes: int, rate: float, told_s: float | None = None) -> Silence:
    """Simulate two minutes after a node has fallen silent.

    Args:
        rate: remote opens per second on each node, spread over all others.
        told_s: how long it takes until all agents hear of a breaker that has opened,
            which counts as a failure with each; None if none hears of others'.
    """
    chance = np.random.default_rng(nodes)
    others = nodes - 1
    count = chance.poisson(rate * SPAN_S)
    times = np.sort(chance.uniform(0, SPAN_S, count))
    agents = Agents(others, told_s)
    for now_s, agent in zip(
        times.tolist(), chance.integers(0, others, count).tolist(), strict=True
    ):
        agents.open(agent, now_s)
    late = sum(tried_s > SPAN_S / 2 for tried_s in agents.tried_s)
    return Silence(
        agents.late_opens,
        agents.closed_last_s(),
        len(agents.tried_s),
        late / (SPAN_S / 2),
    )
