"""How long an agent lives: until its programs have ended, or its share is staged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch import report as reports
from monarch.agent.control import Notifier
from monarch.agent.joining import Joining
from monarch.agent.processes import Processes
from monarch.agent.setup import Setup
from monarch.metrics import STAGED_KINDS, AgentCounters
from monarch.native import AgentState
from monarch.stager import Progress, ProgressMeter, Rates, Stager

ShowProgress = Callable[[Progress, float | None, float | None], None]

SHOW_S: Final = 0.25
"""How often the progress of staging is shown."""
RETRY_S: Final = 0.5
"""The interval between retries of Files that could not be staged."""
RETRIES_MAX: Final = 120
"""The maximum number of retries without any success."""
GIVE_UP_S: Final = 60.0
"""Staging without programs ends if an origin or a peer does not answer for so long."""


class StateWord:
    """The state of an agent, in the memory that launchers read."""

    def __init__(self, requests: npt.NDArray[np.uint8]) -> None:
        self._requests = requests
        self.value = AgentState.STARTING

    def __repr__(self) -> str:
        return f"<StateWord {self.value.name.lower()}>"

    def set(self, state: AgentState) -> None:
        """Change the state."""
        self.value = state
        native.agent_state_store(self._requests, state)


@dataclass(frozen=True, slots=True)
class AgentParts:
    """The parts of an agent that its lifetime uses.

    Attributes:
        turn: runs one turn of the Stager.
        end: begins the orderly end, with a reason.
    """

    setup: Setup
    notifier: Notifier
    state: StateWord
    processes: Processes
    joining: Joining
    counters: AgentCounters
    turn: Callable[[], None]
    end: Callable[[str], None]


class Lifetime(Protocol):
    """Decides when an agent ends, and what it reports."""

    @property
    def late_after_s(self) -> float | None:
        """How long programs wait for the Catalog at most; None: no programs."""

    @property
    def needs_all_datasets(self) -> bool:
        """Whether there must be an index of every dataset."""

    def look(self, stager: Stager | None) -> None:
        """Check whether the agent must end; called several times a second."""

    def note_end_of_process(self, stager: Stager | None) -> None:
        """Handle the end of a process of the job."""

    @property
    def has_report(self) -> bool:
        """Whether this node has something to report."""

    def render(self, report: reports.Report) -> str:
        """Return the report as text."""


MakeLifetime = Callable[[AgentParts], Lifetime]


class ProgramLifetime:
    """Ends the agent with the last program of the job on all nodes."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts
        self._linger_until = 0.0

    def __repr__(self) -> str:
        return f"<ProgramLifetime {self._parts.processes!r}>"

    @property
    def late_after_s(self) -> float | None:
        """The time that programs wait for the Catalog."""
        return self._parts.setup.config.catalog.wait_max

    @property
    def needs_all_datasets(self) -> bool:
        """No: programs read the origin of a dataset without an index."""
        return False

    def look(self, stager: Stager | None) -> None:
        """Check for new processes, and for the end of the last one."""
        processes = self._parts.processes
        processes.scan()
        self.note_end_of_process(stager)
        if not processes.programs_seen and not self._parts.notifier.has_reader():
            self._parts.end("the launcher ended")

    def note_end_of_process(self, stager: Stager | None) -> None:
        """End with the last program of the job, or `agent.linger` after it."""
        processes = self._parts.processes
        if not processes.programs_seen or processes.programs:
            self._linger_until = 0.0
            self._note_programs(stager, running=True)
            return
        now = time.monotonic()
        if not self._linger_until:
            self._linger_until = now + self._parts.setup.config.agent.linger
        if self._lingers():
            return
        self._note_programs(stager, running=False)
        cluster = self._parts.joining.cluster
        if cluster is None or not cluster.rest():
            self._end_unless_joined()

    @property
    def has_report(self) -> bool:
        """Whether processes of the job ran on this node."""
        processes = self._parts.processes
        return processes.programs_seen > 0 or bool(processes.seen())

    def render(self, report: reports.Report) -> str:
        """Return the report as text."""
        return reports.render(report)

    def _lingers(self) -> bool:
        """Return whether to wait for processes that the programs have left running.

        An agent that was started before the first program waits for the next one, too.
        """
        foreground = self._parts.notifier.foreground
        if not self._parts.processes.living and not foreground:
            return False
        return time.monotonic() < self._linger_until

    def _note_programs(self, stager: Stager | None, *, running: bool) -> None:
        """Note whether programs run on this node: if not, only peers need it."""
        if stager is not None:
            stager.pause_fetching(paused=not running)
        cluster = self._parts.joining.cluster
        if cluster is not None and running:
            cluster.resume()

    def _end_unless_joined(self) -> None:
        """End, unless a launcher has joined: it joins before it reads our state.

        The agent also continues if a new process is running for which it lingers.
        """
        state, processes = self._parts.state, self._parts.processes
        before, seen = state.value, processes.programs_seen
        state.set(AgentState.ENDING)
        processes.scan()
        joined = processes.programs_seen > seen and processes.programs
        if joined or self._lingers():
            state.set(before)
            return
        processes.note_end_of_job()
        self._parts.end("the last program has ended")


class FillLifetime:
    """Ends the agent when all nodes have staged their share.

    Args:
        show: called with the progress of staging, the bytes per second, and the seconds
            left; the last two may be unknown.
    """

    def __init__(self, parts: AgentParts, show: ShowProgress) -> None:
        self._parts = parts
        self._show = show
        self._meter = ProgressMeter()
        self._rates = Rates()
        self._shown_s = float("-inf")
        self._moved_s = self._retried_s = time.monotonic()
        self._files = 0
        self._retries = 0

    def __repr__(self) -> str:
        return f"<FillLifetime {self._files} files, {self._retries} retries>"

    @property
    def late_after_s(self) -> float | None:
        """None: no program waits for the Catalog."""
        return None

    @property
    def needs_all_datasets(self) -> bool:
        """Yes: every dataset must be staged."""
        return True

    def look(self, stager: Stager | None) -> None:
        """End when this node and the other nodes have nothing left to stage."""
        if stager is None:
            return
        tally = stager.table.tally()
        files = sum(tally[f"{kind}_files"] for kind in STAGED_KINDS)
        if files != self._files:
            self._files, self._retries = files, 0
        self._show_progress(stager)
        cluster = self._parts.joining.cluster
        if self._has_more(stager):
            if cluster is not None:
                cluster.resume()
        elif cluster is None or not cluster.rest():
            self._parts.end("everything is staged")

    def _show_progress(self, stager: Stager) -> None:
        """Show the progress of staging, slowly enough to be read."""
        now_s = time.monotonic()
        if now_s - self._shown_s < SHOW_S:
            return
        self._shown_s = now_s
        found = self._meter.measure(stager)
        if self._rates.is_due(now_s):
            self._rates.note(now_s, {"bytes": found.bytes})
        rate = self._rates.per_s().get("bytes")
        self._show(found, rate, self._rates.left_s("bytes", found.coming_bytes))

    def note_end_of_process(self, stager: Stager | None) -> None:
        """Ignore processes: none is started beside this agent."""

    @property
    def has_report(self) -> bool:
        """Whether this node has something to report: always."""
        return True

    def render(self, report: reports.Report) -> str:
        """Return the report as text."""
        return reports.render_staged(report)

    def _has_more(self, stager: Stager) -> bool:
        """Return whether a File is in flight or may still be staged.

        Failed Files are retried; each fails permanently after a few attempts.
        """
        now = time.monotonic()
        if not stager.idle and not stager.hangs:
            self._moved_s = now
            return True
        if now - self._moved_s >= GIVE_UP_S or self._retries > RETRIES_MAX:
            return False
        if not stager.idle:
            return True
        if not stager.share.may_come:
            return False
        if now - self._retried_s >= RETRY_S:
            self._retried_s = now
            self._retries += 1
            stager.refill()
            self._parts.turn()
        return True
