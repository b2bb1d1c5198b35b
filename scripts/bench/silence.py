"""One node of many falls silent: the real breakers of all others, in simulated time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from monarch.breaker import Breaker, Event, State, after, ask

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
        self._all_know_s = float("inf")
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
            self._tell(agent, Event.FAILURE, late_s)
        if now_s >= self._all_know_s:
            for agent in range(len(self._breakers)):
                self._tell(agent, Event.GONE, self._all_know_s)
            self._all_know_s = float("inf")

    def _tell(self, agent: int, event: Event, now_s: float) -> None:
        changed = after(self._breakers[agent], event, now_s)
        self._breakers[agent] = changed
        if changed.state is State.OPEN and agent not in self._opened_s:
            if not self._opened_s and self._told_s is not None:
                self._all_know_s = now_s + self._told_s
            self._opened_s[agent] = now_s


def silence(nodes: int, rate: float, told_s: float | None = None) -> Silence:
    """Simulate two minutes after a node has fallen silent.

    Args:
        rate: remote opens per second on each node, spread over all others.
        told_s: how long the first open breaker takes to become known to all agents;
            None if each has to find out by itself.
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
