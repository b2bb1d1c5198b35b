"""The portions that the reader of a node holds or is reading, and who needs them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np

from monarch.loader.buffers import Buffer, BufferPool, rounded
from monarch.loader.portions import (
    ALIGN,
    EVERYBODY,
    ROW,
    Key,
    Portion,
    Portions,
    aligned,
    keys_of,
)
from monarch.loader.reading import End, Reads
from monarch.loader.wire import Channel
from monarch.records.columns import UnitDecoder
from monarch.records.errors import RecordsError

DECODERS: Final = 2
"""Portions that are being decoded, or wait for a buffer, at the same time."""


@dataclass(slots=True, eq=False)
class Load:
    """A portion, from the start of its reads to its last use.

    Attributes:
        buffer: its buffer; None while it is decoded.
        requests: number of its requests.
        done: completed requests, in the order of completion.
        decoded: the bytes of its Records, until a buffer is free for them.
        loose: the bytes of requests of unknown length, as they arrive.
        ended: number of requests that are read or have failed.
        failure: why it cannot be read.
    """

    key: Key
    portion: Portion
    buffer: Buffer | None = None
    rows: int = 0
    requests: int = 0
    done: list[int] = field(default_factory=list)
    decoded: Sequence[memoryview] | None = None
    loose: list[bytearray] | None = None
    ended: int = 0
    failure: str = ""

    @property
    def is_reading(self) -> bool:
        """Return whether threads still work on it."""
        return self.ended < max(1, self.requests)

    @property
    def is_decoding(self) -> bool:
        """Return whether it is decoded, or waits for a buffer."""
        return self.buffer is None and not self.failure


class Begun(Enum):
    """Whether a portion is read, or why not yet."""

    YES = "yes"
    NO_ROOM = "no room"
    LATER = "decoders are busy"


@dataclass(slots=True, eq=False)
class Decoded:
    """A decoded portion, as the end of its only request, see `reading.End`."""

    owner: Load
    error: RecordsError | None = None
    number: int = 0
    found: bytearray | None = None


Ended = Callable[[Sequence[End]], None]
"""Called with completed requests of portions, by any thread."""


class Loads:
    """Starts the reads of portions and keeps their buffers.

    Args:
        readers: reads requests, and reports their ends to `ended`.
        ended: see `Ended`; the caller then calls `end` in its own thread.
    """

    def __init__(
        self, portions: Portions, pool: BufferPool, readers: Reads, ended: Ended
    ) -> None:
        self._portions = portions
        self._pool = pool
        self._readers = readers
        self._ended = ended
        self._loads: dict[Key, Load] = {}
        self._decoders = ThreadPoolExecutor(DECODERS, "decode")
        self._own = threading.local()

    def __repr__(self) -> str:
        return f"<Loads, {len(self._loads)}>"

    def get(self, key: Key) -> Load | None:
        """Return a held portion; None: it is not held."""
        return self._loads.get(key)

    def keys(self) -> list[Key]:
        """Return the keys of all held portions."""
        return list(self._loads)

    def begin(self, key: Key) -> Begun:
        """Begin to read a portion, if it is not held already.

        Raises:
            OSError: the node is out of memory.
        """
        load = self._loads.get(key)
        if load is not None:
            return Begun.YES if load.decoded is None else self._place(load)
        if self._readers.is_full:
            return Begun.LATER
        portion = self._portions.find(key)
        if portion.index.is_decoded:
            return self._begin_decoding(Load(key, portion))
        if portion.has_unknown_lengths:
            return self._begin_loose(Load(key, portion))
        requests = portion.requests()
        layout = portion.layout(requests)
        buffer = self._pool.take(layout.bytes)
        if buffer is None:
            return self._never_fits(Load(key, portion), layout.bytes)
        load = Load(key, portion, buffer, len(layout.table), len(layout.begins))
        self._loads[key] = load
        view = buffer.view()
        view[: layout.table.nbytes] = layout.table.tobytes()
        begins, ends = layout.begins, layout.begins + requests.lengths
        bounds = zip(begins.tolist(), ends.tolist(), strict=True)
        places = [view[begin:end] for begin, end in bounds]
        self._readers.start(load, requests.ranges(), places)
        view.release()
        return Begun.YES

    def adopt(self, key: Key, fd: int) -> Load | None:
        """Take over a portion that a rank has read, together with its memory.

        Returns:
            None if it is already held or does not fit: the descriptor is closed.
        """
        portion = self._portions.find(key)
        is_new = key not in self._loads
        layout = portion.layout(portion.requests()) if is_new else None
        fits = layout and os.fstat(fd).st_size == rounded(layout.bytes)
        buffer = self._pool.adopt(fd) if fits else None
        if layout is None or buffer is None:
            os.close(fd)
            return None
        requests = len(layout.begins)
        load = Load(key, portion, buffer, len(layout.table), requests)
        load.done, load.ended = list(range(requests)), requests
        self._loads[key] = load
        return load

    def end(self, one: End) -> None:
        """Note that a request of a portion has ended."""
        load: Load = one.owner
        load.ended += 1
        if one.error is not None:
            row = int(load.portion.starts[one.number])
            record = int(load.portion.records[row])
            load.failure = load.failure or f"record {record}: {one.error}"
            load.loose = None
        elif load.loose is not None:
            self._end_loose(load, one)
        elif load.buffer is not None:
            load.done.append(one.number)

    def drop(self, key: Key) -> None:
        """Drop a portion that is not being read."""
        load = self._loads.pop(key)
        if load.buffer is not None:
            self._pool.give(load.buffer)

    def _never_fits(self, load: Load, size: int) -> Begun:
        """Fail a portion that does not fit, if it is larger than all memory."""
        if rounded(size) <= self._pool.limit:
            return Begun.NO_ROOM
        load.failure = (
            f"a group of {size} bytes is larger than memory_limit={self._pool.limit}; "
            "raise it, or lower group_bytes or batch_size"
        )
        load.ended, load.decoded = 1, None
        self._loads[load.key] = load
        return Begun.YES

    # -- Records of unknown length -----------------------------------------------------

    def _begin_loose(self, load: Load) -> Begun:
        """Read the Records of a portion one by one; they later share one buffer."""
        ranges = load.portion.unit_ranges()
        load.requests = len(ranges)
        load.loose = [bytearray()] * len(ranges)
        self._loads[load.key] = load
        self._readers.start(load, ranges, [None] * len(ranges))
        return Begun.YES

    def _end_loose(self, load: Load, one: End) -> None:
        assert load.loose is not None
        load.loose[one.number] = one.found or bytearray()
        if load.ended == load.requests:
            load.decoded, load.loose = [memoryview(each) for each in load.loose], None
            self._place(load)

    # -- decoded units -----------------------------------------------------------------

    def place(self, keys: Sequence[Key]) -> None:
        """Copy decoded portions into buffers, as far as buffers are free."""
        for key in keys:
            load = self._loads.get(key)
            if load is not None and load.decoded is not None:
                self._place(load)

    def free_decoder(self, key: Key) -> bool:
        """Drop a decoded portion without a buffer for one that is needed before it.

        Otherwise the decoders could wait for memory that only the earlier one frees.
        """
        waiting = [one.key for one in self._loads.values() if one.decoded is not None]
        last = max(waiting, default=key)
        if last > key:
            self.drop(last)
        return last > key

    def _begin_decoding(self, load: Load) -> Begun:
        busy = [one for one in self._loads.values() if one.is_decoding]
        if len(busy) >= DECODERS:
            return Begun.LATER
        self._loads[load.key] = load
        self._decoders.submit(self._decode, load)
        return Begun.YES

    def _decode(self, load: Load) -> None:
        """Decode a portion in a decoder thread."""
        try:
            decoder = getattr(self._own, "decoder", None)
            if decoder is None:
                decoder = self._own.decoder = UnitDecoder(load.portion.index)
            found = [
                record
                for unit in load.portion.units
                for record in decoder.records(int(unit))
            ]
        except Exception as error:
            # Report any exception of a library: the ranks wait for this portion.
            if not isinstance(error, RecordsError):
                error = RecordsError(f"it cannot be decoded: {error!r}")
            self._ended([Decoded(load, error)])
            return
        for length in load.portion.requests().lengths.tolist():
            self._readers.count(length)
        load.decoded = found
        self._ended([Decoded(load)])

    def _place(self, load: Load) -> Begun:
        """Copy a decoded portion into a buffer."""
        assert load.decoded is not None
        lengths = np.array([len(record) for record in load.decoded], np.int64)
        begin = aligned(len(lengths) * ROW.itemsize)
        sizes = (lengths + ALIGN - 1) // ALIGN * ALIGN
        size = int(begin + sizes.sum())
        buffer = self._pool.take(size)
        if buffer is None:
            return self._never_fits(load, size)
        table = np.zeros(len(lengths), ROW)
        table["start"] = begin + np.cumsum(sizes) - sizes
        table["length"] = lengths
        view = buffer.view()
        view[: table.nbytes] = table.tobytes()
        for start, record in zip(table["start"].tolist(), load.decoded, strict=True):
            view[start : start + len(record)] = record
        view.release()
        load.buffer, load.decoded = buffer, None
        load.rows, load.requests, load.done = len(table), 1, [0]
        return Begun.YES


@dataclass(slots=True, eq=False)
class Member:
    """A connected process of a rank.

    Attributes:
        serial: serial of its last `need` message.
        spans: the spans that it needs, as in `wire`.
        keys: the portions of these spans.
        told: completed requests of each portion that were reported to it; -1: a
            failure.
        buffers: buffers that it has mapped.
        yields: it was asked to give up its portions.
        offers_until_s: time until which it may offer portions.
    """

    channel: Channel
    rank: int = 0
    serial: int = 0
    spans: list[list[int]] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    told: dict[Key, int] = field(default_factory=dict)
    buffers: set[int] = field(default_factory=set)
    yields: bool = False
    offers_until_s: float = 0.0

    def needs(self, serial: int, spans: list[list[int]], *, is_shared: bool) -> None:
        """Note its current needs; portions that it no longer needs are forgotten."""
        self.serial = serial
        self.spans = [[int(number) for number in span] for span in spans]
        self.keys = keys_of(self.spans, EVERYBODY if is_shared else self.rank)
        known = set(self.keys)
        for key in [key for key in self.told if key not in known]:
            del self.told[key]

    def comes_to(self, key: Key) -> bool:
        """Return whether it may need a portion later."""
        if not self.spans:
            return True
        epoch, low, _, _ = self.spans[0]
        return (epoch, low) <= (key.epoch, key.position)
