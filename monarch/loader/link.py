"""The connection of a rank to the reader of its node, which it starts if necessary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.loader.buffers import MappedBuffers
from monarch.loader.early import WHOLE_MAX, EarlyReads
from monarch.loader.portions import EVERYBODY, ROW, Key, keys_of
from monarch.loader.wire import VERSION, Channel, LoaderError, Message, connect, listen
from monarch.records.index import RecordIndex
from monarch.records.shard_memory import NO_SHARDS

Array = npt.NDArray[Any]

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from monarch.loader.reader import main; main(*map(int, sys.argv[2:]))"
)
_NO_GPU: Final = {f"{name}_VISIBLE_DEVICES": "" for name in ("CUDA", "HIP", "ROCR")}
_START_S: Final = 5.0
_READY_S: Final = 20.0
"""How long a request for figures waits for a starting reader, on a busy machine."""
_PAUSE_S: Final = 0.01
_NEVER: Final = 1 << 60
"""An epoch that no rank reaches."""
_RESTARTS_MAX: Final = 3
"""How often a reader is restarted without having read anything."""

_started: list[subprocess.Popen[bytes]] = []
"""The readers that this process has started; ended ones are removed."""


@dataclass(slots=True, eq=False)
class Part:
    """A portion, as far as it is read.

    Attributes:
        table: table of type ROW.
        view: the whole buffer.
        done: whether each request is read.
        is_replaced: the portion of the reader replaces it.
    """

    table: Array
    view: memoryview
    done: Array
    is_replaced: bool = False

    def are_ready(self, rows: Array) -> Array:
        """Return which Records are read."""
        found: Array = self.done[self.table["request"][rows]]
        return found


class ReaderLink:
    """Requests the portions that a rank needs, and waits for them.

    Args:
        key: identifies the reader; equal for all ranks of a node that use it.
        settings: settings of the reader.
        rank: rank of this process.
        early: reads while the reader starts.

    Attributes:
        shards: shards in memory; the first reader gets them.
    """

    def __init__(
        self,
        key: str,
        settings: Mapping[str, Any],
        index: RecordIndex,
        rank: int,
        early: EarlyReads | None = None,
    ) -> None:
        self.restarts = 0
        self._key = key
        self._settings = settings
        self._index = index
        self._rank = rank
        self._early = early
        self._has_started = False
        self._is_offering = False
        self._owner_of_portions = rank if settings["shuffle"] == "global" else EVERYBODY
        self._channel: Channel | None = None
        self._owner = os.getpid()
        self._buffers = MappedBuffers()
        self._parts: dict[Key, Part] = {}
        self._failed: dict[Key, str] = {}
        self._spans: list[list[int]] = []
        self._serial = 0
        self._needed: dict[Key, int] = {}
        self._must_yield = False
        self._has_heard = False
        self._figures: dict[str, Any] | None = None
        self._idle_restarts = 0
        self.shards = NO_SHARDS

    def __repr__(self) -> str:
        return f"<ReaderLink {self._key}, {len(self._parts)} portions>"

    def need(self, spans: list[list[int]]) -> None:
        """Request the spans that this rank needs, see `wire`; give up all others."""
        if spans == self._spans and self._channel is not None:
            return
        self._spans = spans
        self._serial += 1
        keys = keys_of(spans, self._owner_of_portions)
        self._needed = {key: self._needed.get(key, self._serial) for key in keys}
        for parts in (self._parts, self._failed):
            for key in [key for key in parts if key not in self._needed]:
                del parts[key]
        self._say("need", self._serial, spans, False)

    def part(self, key: Key) -> Part | None:
        """Return a portion, as far as it is read."""
        return self._parts.get(key)

    def wait(
        self,
        is_enough: Callable[[], bool],
        rows: Mapping[Key, Array],
        limit_s: float,
        *,
        may_yield: bool,
    ) -> None:
        """Wait until enough is read.

        Args:
            rows: rows of the portions, none of which may fail.
            may_yield: no view of any portion is in use.

        Raises:
            LoaderError: a portion cannot be read, the time is over, or readers end
                repeatedly.
        """
        try:
            self._wait(is_enough, rows, limit_s, may_yield)
        finally:
            if self._early is not None:
                self._early.rest()

    def _wait(
        self,
        is_enough: Callable[[], bool],
        rows: Mapping[Key, Array],
        limit_s: float,
        may_yield: bool,
    ) -> None:
        deadline = time.monotonic() + limit_s
        while True:
            self._pump()
            self._read_early(rows)
            for key in self._failed.keys() & rows.keys():
                raise LoaderError(self._failed.pop(key))
            if is_enough():
                self._idle_restarts = 0
                self._rest_early()
                return
            if self._must_yield and may_yield:
                self._give_up()
            if time.monotonic() >= deadline:
                raise LoaderError(self._late(list(rows), limit_s))
            self._wait_until(deadline)

    def figures(self, limit_s: float) -> dict[str, Any]:
        """Return the reader's figures; none if it does not reply in time.

        A starting reader gets additional time for its start.
        """
        if self._channel is None:
            return {}
        self._figures = None
        restarts, has_heard = self.restarts, self._has_heard
        self._say("stats")
        deadline = time.monotonic() + (limit_s if has_heard else _READY_S)
        while time.monotonic() < deadline:
            self._pump()
            if self._figures is not None or self.restarts != restarts:
                break
            if self._has_heard and not has_heard:
                has_heard, deadline = True, time.monotonic() + limit_s
            self._wait_until(deadline)
        return self._figures or {}

    def hold(self) -> None:
        """Keep the reader for other processes of this rank, without any needs."""
        self.need([[_NEVER, 0, 0, 0]])

    def wait_for_message(self, limit_s: float) -> bool:
        """Wait for a message of the reader; return whether `hear_idly` has work."""
        channel = self._channel
        if self._must_yield:  # received while the thread of the loader waited
            return True
        try:
            return channel is None or channel.wait(limit_s)
        except (OSError, ValueError):  # closed by another thread
            return True

    def hear_idly(self) -> bool:
        """Process messages of the reader while no view of a portion is in use.

        Returns:
            False if the reader has ended: another one is started on demand.
        """
        channel = self._channel
        if channel is None:
            return False
        try:
            channel.flush()
            while (received := channel.receive()) is not None:
                self._hear(*received)
            if self._must_yield:
                self._give_up()
        except (OSError, LoaderError):
            return False
        return self._channel is not None

    def close(self) -> None:
        """Leave the reader, which ends with its last rank."""
        if self._early is not None:
            self._early.stop()
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self.shards.close()
        self._forget()
        self._parts.clear()

    # -- messages ----------------------------------------------------------------------

    def _say(self, *message: Any, fds: Sequence[int] = ()) -> None:
        try:
            self._connected().send(*message, fds=fds)
        except OSError:
            self._lost()

    def _pump(self) -> None:
        """Receive messages of the reader, and start another one if it has ended."""
        try:
            channel = self._connected()
            channel.flush()
            while (received := channel.receive()) is not None:
                self._hear(*received)
        except OSError:
            self._lost()

    def _wait_until(self, deadline: float) -> None:
        if self._channel is not None:
            fds = self._early.event_fds if self._early else ()
            self._channel.wait(min(deadline - time.monotonic(), 1.0), fds)

    def _hear(self, message: Message, fds: Sequence[int]) -> None:
        self._has_heard = True
        word, *rest = message
        if word in ("part", "failed"):
            key = Key(*rest[0])
            if rest[1] < self._needed.get(key, self._serial + 1):
                return
            if word == "part":
                self._hear_part(key, rest[2:])
            else:
                self._failed[key] = rest[2]
        elif word == "buffer":
            self._buffers.add(rest[0], fds[0], rest[1])
        elif word == "gone":
            for number in rest[0]:
                self._buffers.remove(number)
        elif word == "yield":
            self._must_yield = True
        elif word == "stats":
            self._figures = rest[0]

    def _hear_part(self, key: Key, part: list[Any]) -> None:
        buffer, rows, requests, done = part
        if key not in self._parts or self._parts[key].is_replaced:
            view = self._buffers.view(buffer)
            none = np.zeros(requests, bool)
            self._parts[key] = Part(np.frombuffer(view, ROW, rows), view, none)
        self._parts[key].done[done] = True

    def _read_early(self, rows: Mapping[Key, Array]) -> None:
        """Read in this process until the reader is ready."""
        if self._early is None:
            return
        if self._has_heard:
            self._early.stop()
        else:
            self._early.begin(rows, self._read_whole(rows))
        self._take_early(self._early)

    def _rest_early(self) -> None:
        """Offer all read portions: the reader may be ready before the next wait."""
        if self._early is not None:
            self._early.rest()
            self._take_early(self._early)
            self._go()

    def _take_early(self, early: EarlyReads) -> None:
        is_reading = early.is_reading  # before `take`, which returns all that ended
        for one in early.take():
            held = self._parts.get(one.key)
            if one.key in self._needed and (held is None or held.is_replaced):
                part = Part(one.table, one.view, one.done, one.fd is None)
                self._parts[one.key] = part
            if one.fd is None:
                self._say("read", one.sizes)
            else:
                self._say("offer", one.key, one.sizes, fds=(one.fd,))
                os.close(one.fd)
        if not is_reading:
            self._go()

    def _go(self) -> None:
        """Let the reader begin, which waits for the offers of this rank."""
        if self._has_heard and self._is_offering:
            self._is_offering = False
            self._say("go")

    def _read_whole(self, rows: Mapping[Key, Array]) -> list[Key]:
        """Return the portions that this rank reads whole until the reader is ready.

        With other ranks, only a few: otherwise it would run ahead of those that wait.
        """
        if not self._has_started:
            return []
        if self._settings["world_size"] == 1:
            return list(self._needed)
        return list(rows) if len(rows) <= WHOLE_MAX else []

    def _give_up(self) -> None:
        """Give up all portions for a rank behind this one; they are read again."""
        self._must_yield = False
        self._parts.clear()
        self._serial += 1
        self._needed = dict.fromkeys(self._needed, self._serial)
        self._say("need", self._serial, self._spans, True)

    def _forget(self) -> None:
        # Portions that are not from a reader stay.
        own = {key: part for key, part in self._parts.items() if part.is_replaced}
        self._parts = own
        self._failed.clear()
        self._buffers.clear()
        self._must_yield = False

    def _late(self, keys: Sequence[Key], limit_s: float) -> str:
        missing = [
            key for key in keys if not ((part := self.part(key)) and part.done.all())
        ]
        names = ", ".join(f"{key.position} of epoch {key.epoch}" for key in missing[:4])
        return (
            f"nothing was read for {limit_s:g} s (timeout): groups {names} are "
            "missing; the origin or the reader hangs, another rank of this node has "
            "stopped, or views of earlier batches are held (use batch.keep())"
        )

    # -- the reader --------------------------------------------------------------------

    def _lost(self) -> None:
        """Continue with another reader; undelivered portions are read again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self.restarts += self._has_heard
            self._has_heard = False
            self._idle_restarts += 1
        self._forget()
        if self._idle_restarts > _RESTARTS_MAX:
            self._idle_restarts = 0
            raise LoaderError(
                f"the reader of this node has ended {_RESTARTS_MAX + 1} times in a "
                "row; its messages on standard error say why"
            )

    def _connected(self) -> Channel:
        if self._owner != os.getpid():  # a forked child needs its own connection
            self._owner = os.getpid()
            if self._channel is not None:
                self._channel.close()
            self._channel = self._early = None
            self._forget()
        if self._channel is None:
            self._channel = self._meet_reader()
            self._is_offering = self._has_started and self._early is not None
            self._channel.send("hello", VERSION, self._rank, self._is_offering)
            for path, fd in self.shards.shards():
                self._channel.send("shard", path, fds=(fd,))
            self.shards.close()
            if self._spans:
                self._channel.send("need", self._serial, self._spans, False)
        return self._channel

    def _meet_reader(self) -> Channel:
        """Connect to the reader of the node; start it if none is running.

        Raises:
            LoaderError: both fail.
        """
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            channel = connect(self._key, _START_S)
            if channel is not None:
                return channel
            listener = listen(self._key)
            if listener is not None:
                with listener:
                    self._start(listener.fileno())
                    channel = connect(self._key, _START_S)
                if channel is not None:
                    return channel
            time.sleep(_PAUSE_S)
        raise LoaderError("the reader of this node cannot be started")

    def _start(self, listener: int) -> None:
        _started[:] = [one for one in _started if one.poll() is None]
        settings = {**self._settings, "starter_offers": self._early is not None}
        with (
            _memory(lambda file: file.write(json.dumps(settings).encode())) as given,
            _memory(self._index.write) as index,
        ):
            fds = given.fileno(), index.fileno(), listener
            command = [sys.executable, "-P", "-c", _START, json.dumps(sys.path)]
            try:
                process = subprocess.Popen(
                    [*command, *map(str, fds)],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=fds,
                    env={**os.environ, **_NO_GPU},
                )
            except OSError as error:
                text = (
                    f"the reader cannot be started: {sys.executable}: {error.strerror}"
                )
                raise LoaderError(text) from error
        _started.append(process)
        self._has_started = True


def _memory(write: Callable[[Any], Any]) -> Any:
    """Return an unnamed file in memory with the written content, at its start."""
    file = os.fdopen(os.memfd_create("monarch-loader"), "w+b")
    write(file)
    file.flush()
    file.seek(0)
    return file
