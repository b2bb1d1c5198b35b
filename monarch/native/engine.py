"""The copy engine: takes orders, returns requests and completions, in batches."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from monarch.native.codecs import Packing, packing_records
from monarch.native.engine_figures import Health, HintTally, Pace, Readers
from monarch.native.layout import CONSTANTS, DTYPES, OrderKind, Reason
from monarch.native.library import LIB, Closable, Memory, span
from monarch.native.orders import BATCH_MAX, Completion, Order, completions, pack
from monarch.native.table import Table

TIMEOUT_MS = 5000

_ABANDONED: list[object] = []
"""Keeps memory that threads in hanging system calls may still use."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The writable mappings of the segments that the engine works on."""

    catalog: Memory
    flags: Memory
    requests: Memory
    inodes: Memory


@dataclass(frozen=True, slots=True)
class Seals:
    """The key of seals, and memory for one seal per Extent.

    Attributes:
        only: no checksums are computed.
    """

    key: bytes = field(repr=False)
    room: npt.NDArray[Any]
    only: bool = False

    @classmethod
    def make(cls, key: bytes, extents: int, *, only: bool = False) -> Self:
        """Return seals whose memory is allocated as Extents are staged."""
        if len(key) != CONSTANTS["SEAL_KEY_BYTES"]:
            raise ValueError("the key of seals has a wrong length")
        return cls(key, np.zeros(extents, DTYPES["monarch_seal"]), only)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an engine.

    Attributes:
        threads: limit of running Transfers.
        background_max: the highest limit of running background Transfers.
        background_first: their limit at the start; None = background_max.
        bandwidth_bytes_per_s: limit of all background copies; None = unlimited.
        digests: u64 per Extent of every File, written by copies, read by adoptions.
        digest_first: u64 per File, the place of its first Extent in `digests`.
        seals: the key and the memory of seals; None: no seals are made.
        table: the staging table; None: each File is staged by an order.
        readers_max: initial limit of Transfers that read the origin at once; None:
            never limited.
        packings: those of the packed Tiers.
        retains: whether their pack files get an index when the engine ends.
        shares_memory: whether Files that other jobs have in RAM are linked, too.
        alone: whether this node is the only one of the job, now and later.
    """

    threads: int
    background_max: int
    bandwidth_bytes_per_s: int | None
    digests: npt.NDArray[np.uint64]
    digest_first: npt.NDArray[np.uint64]
    seals: Seals | None = None
    table: Table | None = None
    background_first: int | None = None
    readers_max: int | None = None
    packings: tuple[Packing, ...] = ()
    retains: bool = False
    shares_memory: bool = False
    alone: bool = False


class Engine(Closable):
    """Threads that copy Files and drain requests, until close()."""

    def __init__(self, segments: Segments, options: Options) -> None:
        self._borrowed = (segments, options)  # the threads use their memory
        self._options = _options_record(options)
        self._packings = packing_records(options.packings)
        self._options["packings"] = span(self._packings)[0]
        self._options["packing_count"] = len(options.packings)
        self._segments = _segments_record(segments)
        handle = ctypes.c_void_p()
        key = ctypes.create_string_buffer(options.seals.key) if options.seals else None
        if key is not None:
            self._options["seal_key"] = ctypes.addressof(key)  # copied by the engine
        code = LIB.monarch_engine_new(
            span(self._segments)[0], span(self._options)[0], ctypes.byref(handle)
        )
        self._options["seal_key"] = 0
        if code:
            raise OSError(-code, f"cannot start the copy engine: {os.strerror(-code)}")
        self._handle: ctypes.c_void_p | None = handle
        self._files = np.zeros(BATCH_MAX, np.uint32)
        self._done = np.zeros(BATCH_MAX, DTYPES["monarch_completion"])
        self._health = np.zeros(1, DTYPES["monarch_health"])
        self._readers = np.zeros(1, DTYPES["monarch_readers"])
        self._filled: tuple[object, ...] = ()
        self._demands = np.zeros((BATCH_MAX, 2), np.uint64)
        self._pace = np.zeros(len(Pace._fields), np.uint64)

    @property
    def handle(self) -> ctypes.c_void_p:
        """The native engine, for the peer server and receiver; valid until close()."""
        return self._alive()

    @property
    def is_open(self) -> bool:
        """Whether its threads are running, which also store the heartbeat."""
        return self._handle is not None

    @property
    def event_fd(self) -> int:
        """Readable as long as requests or completions wait; must not be read."""
        return int(LIB.monarch_engine_event_fd(self._alive()))

    def requests(self) -> list[int]:
        """Collect up to BATCH_MAX Files that programs wait for, each once."""
        n = LIB.monarch_engine_requests(self._alive(), span(self._files)[0], BATCH_MAX)
        files: list[int] = self._files[:n].tolist()
        return files

    def submit(self, orders: Iterable[Order]) -> int:
        """Queue orders and return how many were accepted; submit the rest later."""
        rows = pack(orders)
        return int(LIB.monarch_engine_submit(self._alive(), span(rows)[0], len(rows)))

    def completions(self) -> list[Completion]:
        """Collect up to BATCH_MAX orders that have ended."""
        n = LIB.monarch_engine_completions(
            self._alive(), span(self._done)[0], BATCH_MAX
        )
        return completions(self._done[:n])

    def demand(self, file: int, kind: int = OrderKind.ASKED) -> None:
        """Request a File as a program does or, without ASKED, as fill does."""
        LIB.monarch_engine_demand(self._alive(), file, kind)

    def fill(
        self, to_read: npt.NDArray[np.uint32], to_fetch: npt.NDArray[np.uint32]
    ) -> None:
        """Stage these Files in the background, in their order, and no others.

        Args:
            to_read: the Files to read from the Origin.
            to_fetch: the Files to fetch from peers.
        """
        record = np.zeros(1, DTYPES["monarch_fill"])
        record["to_read"], record["read_count"] = span(to_read)[0], len(to_read)
        record["to_fetch"], record["fetch_count"] = span(to_fetch)[0], len(to_fetch)
        LIB.monarch_engine_fill(self._alive(), span(record)[0])
        self._filled = (to_read, to_fetch)  # the data plane reads them

    def hint(self, program: int, files: npt.NDArray[np.uint32]) -> None:
        """Stage the Files that a program opens next, in order, before all others.

        Args:
            program: its number; its earlier hints are replaced.
            files: each as often as it will be opened; empty: no more hints.

        Raises:
            OSError: too many programs send hints.
        """
        numbers = np.ascontiguousarray(files, np.uint32)
        place = span(numbers)[0] if len(numbers) else None
        code = LIB.monarch_engine_hint(self._alive(), program, place, len(numbers))
        if code:
            raise OSError(-code, f"hints: {os.strerror(-code)}")

    def hints(self) -> HintTally:
        """Return the progress of the hints."""
        out = np.zeros(1, DTYPES["monarch_hint_tally"])
        LIB.monarch_engine_hints(self._alive(), span(out)[0])
        return HintTally(*out[0].tolist())

    def pause_fetching(self, *, paused: bool) -> None:
        """Pause or resume background fetches from peers."""
        LIB.monarch_engine_fill_pause(self._alive(), paused)

    def fill_left(self) -> tuple[int, int]:
        """Return how many Files of each list fill has not reached."""
        left = np.zeros(2, np.uint64)
        LIB.monarch_engine_fill_left(self._alive(), span(left)[0])
        return int(left[0]), int(left[1])

    def set_background(self, limit: int, beside: int) -> None:
        """Limit running background Transfers, at most to `background_max`.

        Args:
            beside: their limit while programs wait for others.
        """
        LIB.monarch_engine_set_background(self._alive(), limit, beside)

    def set_readers(self, limit: int) -> None:
        """Limit Transfers that read the origin at once, if a limit is set."""
        LIB.monarch_engine_set_readers(self._alive(), limit)

    def readers(self) -> Readers:
        """Return the actual and wanted readers of the origin since the last call."""
        LIB.monarch_engine_readers(self._alive(), span(self._readers)[0])
        return Readers(*self._readers[0].tolist())

    def demands(self) -> list[tuple[int, int]]:
        """Collect bytes and nanoseconds of copies that programs waited for.

        All began under the current limits.
        """
        n = LIB.monarch_engine_demands(
            self._alive(), span(self._demands)[0], len(self._demands)
        )
        return [(size, ns) for size, ns in self._demands[:n].tolist()]

    def slowest(self) -> list[tuple[int, int, int]]:
        """Return File, bytes and nanoseconds of the slowest copies."""
        rows = np.zeros((CONSTANTS["SLOWEST_MAX"], 3), np.uint64)
        count = LIB.monarch_engine_slowest(self._alive(), span(rows)[0])
        return sorted(map(tuple, rows[:count].tolist()), key=lambda row: -row[2])

    def pace(self) -> Pace:
        """Return the totals of reads from the origin."""
        LIB.monarch_engine_pace(self._alive(), span(self._pace)[0])
        return Pace(*self._pace.tolist())

    def health(self) -> Health:
        """Return the health of the roots at the last heartbeat."""
        LIB.monarch_engine_health(self._alive(), span(self._health)[0])
        return Health(*self._health[0].tolist())

    def forget(self, tier: int, ino: int) -> None:
        """Remove the inode of a Replica from the table, before it is unlinked."""
        LIB.monarch_engine_forget(self._alive(), tier, ino)

    def add_sibling(self, run: bytes) -> bool:
        """Link Files of another job of this user on this node, from now on.

        Args:
            run: its run directory.

        Returns:
            False if the job is known already, or has no Catalog of this version yet.
        """
        return int(LIB.monarch_engine_add_sibling(self._alive(), run)) == 0

    def drop_partial(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Remove partial Replicas from a Tier until this many bytes are freed.

        Args:
            reason: why their Files are absent from then on.

        Returns:
            The bytes that they held.
        """
        handle = self._alive()
        freed = LIB.monarch_engine_drop_partial(handle, tier, size_bytes, int(reason))
        return int(freed)

    def drop_packed(self, tier: int, size_bytes: int, reason: Reason) -> int:
        """Empty pack files of a Tier; return the bytes that they held."""
        handle = self._alive()
        return int(
            LIB.monarch_engine_drop_packed(handle, tier, size_bytes, int(reason))
        )

    def adopt_pack(self, tier: int, name: str, files: npt.NDArray[np.uint32]) -> int:
        """Adopt a pack file that an earlier job has left in a Tier.

        Args:
            files: the File of each frame, by entry of the index, or NO_FILE.

        Returns:
            The number of adopted frames; if it is 0, the file is not used.
        """
        record, text = np.zeros(1, DTYPES["monarch_pack"]), os.fsencode(name) + b"\0"
        numbers = np.ascontiguousarray(files, np.uint32)
        record["tier"], record["count"] = tier, len(numbers)
        record["name"] = span(text)[0]
        record["files"] = span(numbers)[0] if len(numbers) else 0
        found = LIB.monarch_engine_adopt_pack(self._alive(), span(record)[0])
        return max(0, int(found))

    def keep(self, tier: int, ino: int) -> None:
        """Keep the inode of a removed Replica until its slot is needed."""
        LIB.monarch_engine_keep(self._alive(), tier, ino)

    def close(self, timeout_ms: int = TIMEOUT_MS) -> bool:
        """Stop all threads; running copies end at their next chunk.

        Returns False if a thread hangs in a system call (an origin that does not
        answer) for longer than `timeout_ms`. The thread is detached and ends when the
        call returns; the memory that it may use is never released.
        """
        if self._handle is None:
            return True
        handle, self._handle = self._handle, None
        code = LIB.monarch_engine_free(handle, timeout_ms)
        if code == -errno.ETIMEDOUT:
            held = (self._borrowed, self._segments, self._options, self._filled)
            _ABANDONED.append(held)
        return bool(code == 0)

    def _alive(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the engine is closed")
        return self._handle


def state_change(
    words: npt.NDArray[np.uint32], file: int, seen: int, following: int, *, wake: bool
) -> bool:
    """Change the state word of a File, and wake the programs that wait for it.

    Returns:
        False: the word has changed since it was seen, and is left unchanged.
    """
    return bool(
        LIB.monarch_state_change(words.ctypes.data, file, seen, following, wake)
    )


def states_change(
    words: npt.NDArray[np.uint32],
    files: npt.NDArray[np.int64],
    where: tuple[int, int],
    fixed: int,
) -> int:
    """Set the state of many Files without waking programs; return how many changed.

    Args:
        where: a mask, and the masked value of words to be changed; others stay.
        fixed: the new state, Tier and reason.
    """
    numbers = np.ascontiguousarray(files, np.uint64)
    if len(numbers) and int(numbers.max()) >= len(words):
        raise IndexError("no such file")
    rule = np.array([*where, fixed], np.uint32)
    places = words.ctypes.data, numbers.ctypes.data, len(numbers)
    return int(LIB.monarch_states_change(*places, rule.ctypes.data))


def states_confirm(words: npt.NDArray[np.uint32], files: npt.NDArray[np.int64]) -> None:
    """Note that some Files match the Catalog in this job."""
    numbers = np.ascontiguousarray(files, np.uint64)
    if len(numbers) and int(numbers.max()) >= len(words):
        raise IndexError("no such file")
    LIB.monarch_states_confirm(words.ctypes.data, numbers.ctypes.data, len(numbers))


def marks_set(
    marks: npt.NDArray[np.uint8],
    numbers: npt.NDArray[np.uint64],
    bits: npt.NDArray[np.uint8],
) -> None:
    """Add bits to some marks in shared memory, while programs add theirs.

    Args:
        marks: one byte for each File, directory or root.
        numbers: the positions of the marks, shape (n,).
        bits: the bits added to each, shape (n,).
    """
    if len(numbers) and int(numbers.max()) >= len(marks):
        raise IndexError("no such mark")
    places = np.ascontiguousarray(numbers, np.uint64)
    added = np.ascontiguousarray(bits, np.uint8)
    LIB.monarch_marks_set(
        marks.ctypes.data, places.ctypes.data, added.ctypes.data, len(places)
    )


def agent_state_store(requests: Memory, state: int) -> None:
    """Publish the state of the agent and wake the launchers that wait for it."""
    LIB.monarch_agent_state_store(span(requests)[0], state)


def catalog_state_store(requests: Memory, state: int) -> None:
    """Publish to programs that started early whether they can use the Catalog."""
    LIB.monarch_catalog_state_store(span(requests)[0], state)


def changes_apply(
    outline: Memory, changes: Memory, catalog: Memory, flags: Memory
) -> None:
    """Set the marks of changes that programs made before the Catalog was ready."""
    LIB.monarch_changes_apply(
        *(span(memory)[0] for memory in (outline, changes, catalog, flags))
    )


def beat(requests: Memory) -> None:
    """Store one heartbeat; an Engine does so every 100 ms."""
    LIB.monarch_beat(span(requests)[0])


def _segments_record(segments: Segments) -> npt.NDArray[Any]:
    record = np.zeros(1, DTYPES["monarch_segments"])
    for name in DTYPES["monarch_segments"].names or ():
        record[name] = span(getattr(segments, name))[0]
    return record


def _options_record(options: Options) -> npt.NDArray[Any]:
    for array in (options.digests, options.digest_first):
        if array.dtype != np.uint64:
            raise ValueError("digests and digest_first must be arrays of u64")
    record = np.zeros(1, DTYPES["monarch_options"])
    record["threads"] = options.threads
    record["background_max"] = options.background_max
    first = options.background_first
    record["background_first"] = options.background_max if first is None else first
    record["retains"] = options.retains
    record["shares_memory"] = options.shares_memory
    record["alone"] = options.alone
    record["readers_max"] = options.readers_max or 0
    record["bandwidth_bytes_per_s"] = options.bandwidth_bytes_per_s or 0
    record["digests"] = span(options.digests)[0]
    record["digest_first"] = span(options.digest_first)[0]
    if options.table is not None:
        record["table"] = options.table.handle.value
    if options.seals is not None:
        if len(options.seals.room) != len(options.digests):
            raise ValueError("there must be room for as many seals as digests")
        record["seals"] = span(options.seals.room)[0]
        record["seals_only"] = options.seals.only
    return record
