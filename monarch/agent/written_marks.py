"""The marks of written Files: sent to the other nodes, and received from them.

Programs set marks in the flags segment without a message, so it is searched for new
ones. A mark of another node is set there, too: from then on programs of this node read
the origin, and the data plane neither copies, fetches nor serves the File.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from monarch.agent.namespace import Namespace
from monarch.background import log_failure
from monarch.metrics import AgentCounters
from monarch.native import CONSTANTS
from monarch.peers.mesh import Mesh
from monarch.peers.protocol.marks import KIND_SPAN, KINDS, ROOTS
from monarch.stager import WrittenMarks

PIECE_BYTES: Final = 1 << 20
# More marks of one root than this are sent as a mark of the whole root.
SINGLE_MAX: Final = 16_384
# All kinds of change.
MARKED_ALL: Final = CONSTANTS["MARKED_ALL"]

SEARCH_S: Final = 0.1
# With very many Files, the search takes at most 1 / SEARCH_PARTS of the time.
SEARCH_PARTS: Final = 100
SEARCH_S_MAX: Final = 1.0
# How long an ending agent waits for the acknowledgement of its last marks.
LAST_S: Final = 1.0

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

log = logging.getLogger("monarch.agent")


class MarkTable:
    """The marks of this node, and those that the other nodes already have.

    Args:
        marks: shared with programs.
        bases: the first File of each root, and then its first directory.
    """

    def __init__(self, marks: WrittenMarks, bases: Sequence[int]) -> None:
        self._marks = marks
        self._roots = marks.roots
        self._written = marks.marks
        self._bases = np.array(bases, np.int64)
        self._root_count = len(bases) // 2
        self._known = np.zeros_like(marks.marks)
        self._known_roots = np.zeros(self._root_count, np.uint8)
        self._single_counts = np.zeros(self._root_count, np.int64)

    @classmethod
    def of(cls, namespace: Namespace) -> Self:
        """Return the table over the flags segment of a Namespace."""
        return cls(namespace.written, namespace.mark_bases)

    def __repr__(self) -> str:
        return f"<MarkTable {np.count_nonzero(self._known)} known>"

    def new_roots(self) -> list[int]:
        """Return the marks of roots that were set since the last call."""
        found = self._roots[: self._root_count].copy()
        bits = found & ~self._known_roots
        new = np.flatnonzero(bits)
        self._known_roots |= bits
        return _marks(new, bits[new])

    def new_in(self, start: int) -> list[int]:
        """Return marks that were set in a piece of the table since the last call.

        Too many marks of one root are replaced by marks of the whole root.
        """
        live = self._written[start : start + PIECE_BYTES]
        known = self._known[start : start + PIECE_BYTES]
        if np.array_equal(live, known):
            return []
        # Programs set marks meanwhile: each byte is read only once.
        found = live.copy()
        bits = found & ~known
        new = np.flatnonzero(bits)
        known[new] |= bits[new]
        return self._to_send(new + start, bits[new])

    def _to_send(self, new: Numbers, bits: Bytes) -> list[int]:
        roots = self._roots_of(new)
        single = self._known_roots[roots] != MARKED_ALL
        new, roots, bits = new[single], roots[single], bits[single]
        self._single_counts += np.bincount(roots, minlength=self._root_count)
        crowded = self._single_counts > SINGLE_MAX
        crowded &= self._known_roots != MARKED_ALL
        whole = np.flatnonzero(crowded)
        self._known_roots[whole] = MARKED_ALL
        rest = ~crowded[roots]
        marks = _marks(whole, self._known_roots[whole])
        return marks + _marks(new[rest] + ROOTS, bits[rest])

    def _roots_of(self, numbers: Numbers) -> Numbers:
        places = np.searchsorted(self._bases, numbers, side="right") - 1
        roots: Numbers = places % self._root_count
        return roots

    def set(self, marks: Sequence[int]) -> Numbers:
        """Set marks of another node; return the numbers that are new here."""
        kinds, numbers = np.divmod(np.array(marks, np.int64), KIND_SPAN)
        bits = (1 << kinds).astype(np.uint8)
        roots = numbers < self._root_count
        self._marks.add_to_roots(numbers[roots], bits[roots])
        np.bitwise_or.at(self._known_roots, numbers[roots], bits[roots])
        chosen = (numbers >= ROOTS) & (numbers < ROOTS + len(self._written))
        numbers, bits = numbers[chosen] - ROOTS, bits[chosen]
        new: Numbers = np.unique(numbers[self._known[numbers] == 0])
        self._marks.add(numbers, bits)
        np.bitwise_or.at(self._known, numbers, bits)
        self._marks.notify()
        return new

    @property
    def pieces(self) -> range:
        """Return the start of each piece of the table."""
        return range(0, len(self._written), PIECE_BYTES)


def _marks(numbers: Numbers, bits: Bytes) -> list[int]:
    """Return the marks of some numbers: one for each kind of change."""
    marks: list[int] = []
    for kind in range(KINDS):
        of_kind = numbers[(bits >> kind & 1).astype(bool)]
        marks += (of_kind + kind * KIND_SPAN).tolist()
    return marks


class MarkExchange:
    """Sends the marks of this node to the others, and sets theirs on this node."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._table: MarkTable | None = None
        self._counters = AgentCounters()
        self._files = 0
        self._searching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<MarkExchange {self._table!r}>"

    def watch(self, namespace: Namespace, counters: AgentCounters) -> None:
        """Begin to exchange marks; to be called before programs are served."""
        self._table = MarkTable.of(namespace)
        self._counters, self._files = counters, len(namespace.inventory)
        self.take(self._mesh.open_marks(namespace.digest))
        self._searching = asyncio.create_task(self._keep_searching(self._table))
        self._searching.add_done_callback(log_failure)

    def take(self, marks: Sequence[int]) -> None:
        """Set marks of another node."""
        if self._table is None or not marks:
            return
        new = self._table.set(marks)
        self._counters.files_written_elsewhere += int((new < self._files).sum())
        log.debug("files written elsewhere marks=%d new=%d", len(marks), len(new))

    async def _keep_searching(self, table: MarkTable) -> None:
        while True:
            try:
                busy_s = await self._send_new(table)
            except Exception:
                self._counters.agent_errors += 1
                log.exception("marks not sent")
                busy_s = SEARCH_S_MAX
            await asyncio.sleep(min(max(SEARCH_S, SEARCH_PARTS * busy_s), SEARCH_S_MAX))

    async def _send_new(self, table: MarkTable) -> float:
        """Send new marks of programs; return the CPU seconds of the search."""
        busy_s = 0.0
        self._mesh.mark(table.new_roots())
        for start in table.pieces:
            begin_s = time.thread_time()
            self._mesh.mark(table.new_in(start))
            busy_s += time.thread_time() - begin_s
            await asyncio.sleep(0)  # the loop answers cold opens between two pieces
        return busy_s

    async def close(self) -> None:
        """Send the last marks, and stop."""
        if self._searching is None or self._table is None:
            return
        self._searching.cancel()
        await self._send_new(self._table)
        if not await self._mesh.wait_for_acknowledgement(LAST_S):
            log.warning("last marks not acknowledged")
