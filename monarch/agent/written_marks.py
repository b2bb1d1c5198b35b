"""The marks of written Files on one node, and which of them the others are told."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from monarch.agent.namespace import Namespace
from monarch.background import log_failure
from monarch.metrics import Tally
from monarch.native import CONSTANTS
from monarch.peers.mesh import Mesh
from monarch.peers.protocol.marks import ROOTS

PIECE_BYTES: Final = 1 << 20
# So many marks of one root are told one by one; with more of them, the root is told.
SINGLY_MAX: Final = 16_384
# Others do not tell what has changed in a File.
MARKED_ALL: Final = CONSTANTS["MARKED_ALL"]

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class MarkTable:
    """The marks of this node, and which of them the other nodes know or are told.

    Args:
        roots: one byte for each root, shared with programs.
        written: one byte for each File, and then for each directory.
        bases: the first File of each root, and then its first directory.
        note: tells programs that there is a mark.
    """

    def __init__(
        self,
        roots: Bytes,
        written: Bytes,
        bases: Sequence[int],
        note: Callable[[], None],
    ) -> None:
        self._roots = roots
        self._written = written
        self._bases = np.array(bases, np.int64)
        self._note = note
        self._root_count = len(bases) // 2
        self._known = np.zeros_like(written)
        self._whole = np.zeros(self._root_count, bool)
        self._singly = np.zeros(self._root_count, np.int64)

    @classmethod
    def of(cls, namespace: Namespace) -> Self:
        """Return the table over the flags segment of a Namespace."""
        segments = namespace.segments
        return cls(*segments.marks(), namespace.mark_bases, segments.note_marks)

    def __repr__(self) -> str:
        return f"<MarkTable {np.count_nonzero(self._known)} known>"

    def new_roots(self) -> list[int]:
        """Return the marks of roots that were set since the last call."""
        marked = self._roots[: self._root_count] != 0
        new = np.flatnonzero(marked & ~self._whole)
        self._whole[new] = True
        found: list[int] = new.tolist()
        return found

    def new_in(self, start: int) -> list[int]:
        """Return marks that were set in a piece of the table since the last call.

        A root of which there are too many is marked whole, for the others.
        """
        live = self._written[start : start + PIECE_BYTES]
        known = self._known[start : start + PIECE_BYTES]
        if np.array_equal(live, known):
            return []
        # Programs go on setting marks: what is looked at is looked at once.
        found = live.copy()
        new = np.flatnonzero(found != known)
        known[new] = found[new]
        return self._told(new + start)

    def _told(self, new: Numbers) -> list[int]:
        roots = self._roots_of(new)
        single = ~self._whole[roots]
        new, roots = new[single], roots[single]
        self._singly += np.bincount(roots, minlength=self._root_count)
        crowded = (self._singly > SINGLY_MAX) & ~self._whole
        self._whole |= crowded
        told: list[int] = np.flatnonzero(crowded).tolist()
        told += (new[~crowded[roots]] + ROOTS).tolist()
        return told

    def _roots_of(self, numbers: Numbers) -> Numbers:
        places = np.searchsorted(self._bases, numbers, side="right") - 1
        roots: Numbers = places % self._root_count
        return roots

    def set(self, marks: Sequence[int]) -> Numbers:
        """Set marks that another node has told; return those that are new here."""
        told = np.array(marks, np.int64)
        roots = told[told < self._root_count]
        self._roots[roots] = MARKED_ALL
        self._whole[roots] = True
        numbers = told[told >= ROOTS] - ROOTS
        numbers = numbers[numbers < len(self._written)]
        new: Numbers = numbers[self._known[numbers] == 0]
        self._written[new] = MARKED_ALL
        self._known[new] = MARKED_ALL
        self._note()
        return new

    @property
    def pieces(self) -> range:
        """Return where the pieces of the table start."""
        return range(0, len(self._written), PIECE_BYTES)


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
        self._tally = Tally()
        self._files = 0
        self._sweeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<WrittenMarks {self._table!r}>"

    def watch(self, namespace: Namespace, tally: Tally) -> None:
        """Tell and take marks from now on; due before programs are served."""
        self._table = MarkTable.of(namespace)
        self._tally, self._files = tally, len(namespace.inventory)
        self.take(self._mesh.open_marks(namespace.digest))
        self._sweeping = asyncio.create_task(self._keep_sweeping(self._table))
        self._sweeping.add_done_callback(log_failure)

    def take(self, marks: Sequence[int]) -> None:
        """Set marks that another node has told."""
        if self._table is None or not marks:
            return
        new = self._table.set(marks)
        self._tally.files_written_elsewhere += int((new < self._files).sum())
        log.debug("files written elsewhere marks=%d new=%d", len(marks), len(new))

    async def _keep_sweeping(self, table: MarkTable) -> None:
        while True:
            try:
                busy_s = await self._sweep(table)
            except Exception:
                self._tally.agent_errors += 1
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
        if not await self._mesh.wait_for_acknowledgement(LAST_S):
            log.warning("the last marks are not acknowledged")
