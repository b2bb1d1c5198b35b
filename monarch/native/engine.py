"""The copy engine: orders in, requests of programs and completions out, in batches."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from monarch.native.layout import CONSTANTS, DTYPES, OrderKind, Step
from monarch.native.library import LIB, Memory, span

if TYPE_CHECKING:
    from types import TracebackType

BATCH_MAX = 1024
PATIENCE_MS = 5000

_ABANDONED: list[object] = []
"""Keeps what a thread that hangs in a system call may still touch."""


class Order(NamedTuple):  # made by the thousand: a dataclass costs three times as much
    """One Transfer that the engine is to carry out."""

    file: int
    tier: int
    kind: OrderKind


class Completion(NamedTuple):
    """How one order ended: status 0 = READY is published, else -errno at `step`."""

    file: int
    tier: int
    kind: OrderKind
    step: Step
    status: int
    bytes: int
    ns: int


class Health(NamedTuple):
    """Which origins do not answer, and how many Transfers may never end.

    Attributes:
        stalled: a bit for each root in which nothing moves.
    """

    stalled: int
    stuck_demand: int
    stuck_background: int


@dataclass(frozen=True, slots=True)
class Board:
    """The writable mappings of a run directory's segments that the engine works on."""

    catalog: Memory
    flags: Memory
    requests: Memory
    inodes: Memory


@dataclass(frozen=True, slots=True)
class Seals:
    """The key that seals are made with, and room for one of each Extent.

    Attributes:
        only: checksums are not made, as nobody will ask for them.
    """

    key: bytes = field(repr=False)
    room: npt.NDArray[Any]
    only: bool = False

    @classmethod
    def make(cls, key: bytes, extents: int, *, only: bool = False) -> Self:
        """Return room that takes memory only where an Extent is staged."""
        if len(key) != CONSTANTS["SEAL_KEY_BYTES"]:
            raise ValueError("the key of seals is of another length")
        return cls(key, np.zeros(extents, DTYPES["monarch_seal"]), only)


@dataclass(frozen=True, slots=True)
class Options:
    """How the engine works.

    Attributes:
        threads: number of Transfers at once.
        background_max: number of background Transfers at once.
        bandwidth_bytes_per_s: limit of background copies together; None = unlimited.
        digests: u64 per Extent of every File, written by copies, read by adoptions.
        digest_first: u64 per File, the place of its first Extent in `digests`.
        seals: with what Extents are sealed; None: they are not.
    """

    threads: int
    background_max: int
    bandwidth_bytes_per_s: int | None
    digests: npt.NDArray[np.uint64]
    digest_first: npt.NDArray[np.uint64]
    seals: Seals | None = None


class Engine:
    """Threads that copy Files and drain requests; ends them when it is closed."""

    def __init__(self, board: Board, options: Options) -> None:
        self._kept = (board, options)  # the threads use their memory
        self._options = _options_record(options)
        self._board = _board_record(board)
        handle = ctypes.c_void_p()
        key = ctypes.create_string_buffer(options.seals.key) if options.seals else None
        if key is not None:
            self._options["seal_key"] = ctypes.addressof(key)  # copied by the engine
        code = LIB.monarch_engine_new(
            span(self._board)[0], span(self._options)[0], ctypes.byref(handle)
        )
        self._options["seal_key"] = 0
        if code:
            raise OSError(-code, f"cannot start the copy engine: {os.strerror(-code)}")
        self._handle: ctypes.c_void_p | None = handle
        self._files = np.zeros(BATCH_MAX, np.uint32)
        self._done = np.zeros(BATCH_MAX, DTYPES["monarch_completion"])
        self._health = np.zeros(1, DTYPES["monarch_health"])

    @property
    def handle(self) -> ctypes.c_void_p:
        """What the native peer server and receiver work on; valid until close()."""
        return self._alive()

    @property
    def event_fd(self) -> int:
        """Readable as long as requests or completions wait; not to be read."""
        return int(LIB.monarch_engine_event_fd(self._alive()))

    def requests(self) -> list[int]:
        """Takes up to BATCH_MAX Files that programs wait for, each once."""
        n = LIB.monarch_engine_requests(self._alive(), span(self._files)[0], BATCH_MAX)
        files: list[int] = self._files[:n].tolist()
        return files

    def submit(self, orders: Iterable[Order]) -> int:
        """Queues orders and returns how many were taken; the rest must wait."""
        rows = np.array(
            [(file, tier, kind, 0) for file, tier, kind in orders],
            DTYPES["monarch_order"],
        )
        return int(LIB.monarch_engine_submit(self._alive(), span(rows)[0], len(rows)))

    def completions(self) -> list[Completion]:
        """Takes up to BATCH_MAX orders that have ended."""
        n = LIB.monarch_engine_completions(
            self._alive(), span(self._done)[0], BATCH_MAX
        )
        return [
            Completion(file, tier, OrderKind(kind), Step(step), status, size, ns)
            for file, tier, kind, step, status, _, size, ns in self._done[:n].tolist()
        ]

    def health(self) -> Health:
        """Tells which roots answered at the last heartbeat."""
        LIB.monarch_engine_health(self._alive(), span(self._health)[0])
        return Health(*self._health[0].tolist())

    def forget(self, tier: int, ino: int) -> None:
        """Takes the inode of a Replica out of the table, before it is unlinked."""
        LIB.monarch_engine_forget(self._alive(), tier, ino)

    def keep(self, tier: int, ino: int) -> None:
        """Takes the inode of a Replica that has gone out when its room is needed."""
        LIB.monarch_engine_keep(self._alive(), tier, ino)

    def close(self, patience_ms: int = PATIENCE_MS) -> bool:
        """Stops all threads; running copies end at their next chunk.

        Returns False if a thread hangs in a system call (an origin that does not
        answer) for longer than `patience_ms`: it is left behind, ends when the call
        does, and the memory that it may touch is never released.
        """
        if self._handle is None:
            return True
        handle, self._handle = self._handle, None
        code = LIB.monarch_engine_free(handle, patience_ms)
        if code == -errno.ETIMEDOUT:
            _ABANDONED.append((self._kept, self._board, self._options))
        return bool(code == 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _alive(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the engine is closed")
        return self._handle


def state_store(catalog: Memory, file: int, word: int) -> None:
    """Publishes the state word of a File and wakes the programs that wait for it."""
    LIB.monarch_state_store(span(catalog)[0], file, word)


def agent_state_store(requests: Memory, state: int) -> None:
    """Publishes the state of the agent and wakes the launchers that wait for it."""
    LIB.monarch_agent_state_store(span(requests)[0], state)


def beat(requests: Memory) -> None:
    """Says that the agent is alive; an Engine does so by itself every 100 ms."""
    LIB.monarch_beat(span(requests)[0])


def _board_record(board: Board) -> npt.NDArray[Any]:
    record = np.zeros(1, DTYPES["monarch_board"])
    for name in DTYPES["monarch_board"].names or ():
        record[name] = span(getattr(board, name))[0]
    return record


def _options_record(options: Options) -> npt.NDArray[Any]:
    for array in (options.digests, options.digest_first):
        if array.dtype != np.uint64:
            raise ValueError("digests and digest_first must be arrays of u64")
    record = np.zeros(1, DTYPES["monarch_options"])
    record["threads"] = options.threads
    record["background_max"] = options.background_max
    record["bandwidth_bytes_per_s"] = options.bandwidth_bytes_per_s or 0
    record["digests"] = span(options.digests)[0]
    record["digest_first"] = span(options.digest_first)[0]
    if options.seals is not None:
        if len(options.seals.room) != len(options.digests):
            raise ValueError("there must be room for as many seals as digests")
        record["seals"] = span(options.seals.room)[0]
        record["seals_only"] = options.seals.only
    return record
