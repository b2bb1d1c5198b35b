"""Marks of written Files: those set on this node are told to all, those told are set.

Programs set marks in the flags segment and tell nobody, so it is swept for new ones. A
mark that another node has told is set there too: from then on programs of this node
read the origin, and the data plane neither copies, fetches nor serves the File.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final

from monarch.agent.mark_table import MarkTable
from monarch.agent.namespace import Namespace
from monarch.background import log_failure
from monarch.metrics import AgentCounters
from monarch.peers.mesh import Mesh

SWEEP_S: Final = 0.1
# Of very many Files, sweeping takes one part in so many of the time.
SWEEP_PARTS: Final = 100
SWEEP_S_MAX: Final = 1.0
# An agent that ends does not wait longer for the others to learn of the last marks.
LAST_S: Final = 1.0

log = logging.getLogger("monarch.agent")


class WrittenMarks:
    """Keeps the marks of this node and those of the others the same."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._table: MarkTable | None = None
        self._counters = AgentCounters()
        self._files = 0
        self._sweeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<WrittenMarks {self._table!r}>"

    def watch(self, namespace: Namespace, counters: AgentCounters) -> None:
        """Tell and take marks from now on; due before programs are served."""
        self._table = namespace.marks()
        self._counters, self._files = counters, len(namespace.inventory)
        self.take(self._mesh.open_marks(namespace.digest))
        self._sweeping = asyncio.create_task(self._keep_sweeping(self._table))
        self._sweeping.add_done_callback(log_failure)

    def take(self, marks: Sequence[int]) -> None:
        """Set marks that another node has told."""
        if self._table is None or not marks:
            return
        new = self._table.set(marks)
        self._counters.files_written_elsewhere += int((new < self._files).sum())
        log.debug("files written elsewhere marks=%d new=%d", len(marks), len(new))

    async def _keep_sweeping(self, table: MarkTable) -> None:
        while True:
            try:
                busy_s = await self._sweep(table)
            except Exception:
                self._counters.agent_errors += 1
                log.exception("marks are not told")
                busy_s = SWEEP_S_MAX
            await asyncio.sleep(min(max(SWEEP_S, SWEEP_PARTS * busy_s), SWEEP_S_MAX))

    async def _sweep(self, table: MarkTable) -> float:
        """Tell what programs have marked; return the seconds of work that it was."""
        busy_s = 0.0
        self._mesh.mark(table.new_roots())
        for start in table.pieces:
            begin_s = time.thread_time()
            self._mesh.mark(table.new_in(start))
            busy_s += time.thread_time() - begin_s
            await asyncio.sleep(0)  # the loop answers cold opens between two pieces
        return busy_s

    async def close(self) -> None:
        """Tell what is marked by now, and look no more."""
        if self._sweeping is None or self._table is None:
            return
        self._sweeping.cancel()
        await self._sweep(self._table)
        if not await self._mesh.told(LAST_S):
            log.warning("the last marks are not acknowledged")
