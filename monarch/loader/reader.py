"""The reader of a node: a process that reads portions for all ranks of the node.

It reads ahead the portions that the ranks request, in the order of an epoch, into
buffers that they map. Portions behind all ranks are dropped. It ends with the last
rank.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import queue
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from monarch import hint
from monarch.cluster import RUN_VARIABLE
from monarch.loader.buffers import BufferPool
from monarch.loader.loads import Begun, Load, Loads, Member
from monarch.loader.order import Batches, RecordOrder
from monarch.loader.portions import EVERYBODY, Key, Portions
from monarch.loader.reading import End, Readers, Reads
from monarch.loader.tokens import token_taker
from monarch.loader.wire import SPLIT, VERSION, Channel, Message, peer_user
from monarch.records.groups import group
from monarch.records.index import RecordIndex
from monarch.records.sources import FileSource, Source

_TICK_S: Final = 0.02
_LONELY_S: Final = 10.0
"""How long a reader waits for its first rank."""
_OFFERS_S: Final = 0.5
"""Time for a rank to offer the portions that it has read, before they are read again.
Also the time for the rank that started the reader to connect: others may be faster."""
_LOOK_S: Final = 0.002
_MADE_MAX: Final = 2
"""Buffers made between two polls for messages: each takes a while."""


class NodeReader:
    """Reads for the ranks that connect to a socket."""

    def __init__(
        self, listener: socket.socket, portions: Portions, source: Source, settings: Any
    ) -> None:
        self._listener = listener
        self._portions = portions
        self._pool = BufferPool(settings["memory_limit"])
        self._ends: queue.SimpleQueue[Sequence[End]] = queue.SimpleQueue()
        self._readers = reads_of(source, settings, self._ended)
        self._loads = Loads(portions, self._pool, self._readers, self._ended)
        self._members: dict[int, Member] = {}
        self._select = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        for sock in (self._woken, self._wake):
            sock.setblocking(False)
        self._select.register(listener, selectors.EVENT_READ)
        self._select.register(self._woken, selectors.EVENT_READ)
        self._begun_s = time.monotonic()
        offers_s = _OFFERS_S if settings["starter_offers"] else 0.0
        self._starter_until_s = self._begun_s + offers_s
        self._had_members = False
        self._files = source if isinstance(source, FileSource) else None
        self._has_files = source.index.keys is None
        self._hinted = -1
        self._short: Key | None = None
        self._again_s: float | None = None

    def __repr__(self) -> str:
        return f"<NodeReader for {len(self._members)}, {self._loads!r}>"

    def run(self) -> None:
        """Serve the ranks until the last one has left."""
        while self._members or not self._is_over():
            self.turn(_TICK_S)
            self._readers.hedge()

    def turn(self, limit_s: float) -> None:
        """Wait for messages and ends of reads, and process them."""
        again_s = self._again_s
        for key, events in self._select.select(limit_s if again_s is None else again_s):
            self._serve(key.fd, events)
        if self._take_ends() or self._again_s is not None:
            self._schedule()

    def _is_over(self) -> bool:
        lonely = time.monotonic() - self._begun_s > _LONELY_S
        return self._had_members or lonely

    def _serve(self, fd: int, events: int) -> None:
        if fd == self._listener.fileno():
            self._accept()
        elif fd == self._woken.fileno():
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        elif (member := self._members.get(fd)) is not None:
            try:
                self._hear(member, events)
            except (OSError, ValueError, TypeError, LookupError):
                self._part_with(member)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if peer_user(sock) != os.geteuid():
            sock.close()
            return
        member = Member(Channel(sock))
        self._members[sock.fileno()] = member
        self._select.register(sock, selectors.EVENT_READ)
        self._had_members = True

    def _part_with(self, member: Member) -> None:
        fd = member.channel.socket.fileno()
        self._select.unregister(fd)
        del self._members[fd]
        member.channel.close()
        self._schedule()

    # -- messages ----------------------------------------------------------------------

    def _hear(self, member: Member, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            member.channel.flush()
            self._watch(member)
        if not events & selectors.EVENT_READ:
            return
        moved = False
        while (received := member.channel.receive()) is not None:
            moved |= self._obey(member, *received)
        if moved:
            self._schedule()

    def _obey(self, member: Member, message: Message, fds: list[int]) -> bool:
        """Process a message of a rank; return whether to schedule reads again."""
        word, *rest = message
        if word == "hello":
            version, member.rank, offers = rest
            if version != VERSION:
                raise ValueError("another version")
            if offers:
                self._starter_until_s = 0.0
                member.offers_until_s = time.monotonic() + _OFFERS_S
            self._say(member, "ready")
            return False
        if word == "go":
            member.offers_until_s = 0.0
            return True
        if word in ("read", "offer"):
            for size in rest[-1]:
                self._readers.count(size)
        if word == "read":
            return False
        if word == "offer":
            key = Key(*rest[0])
            load = self._loads.adopt(key, fds[0])
            if load is not None and key in member.keys:
                member.told[key] = load.requests
            return True
        if word == "shard":
            self._put(rest[0], fds[0])
            return False
        if word == "stats":
            self._say(member, "stats", self._figures())
            return False
        serial, spans, again = rest
        if again:
            member.told.clear()
            member.yields = False
        member.needs(serial, spans, is_shared=self._portions.is_shared)
        if member.keys and RUN_VARIABLE in os.environ and self._has_files:
            self._hint(member.keys[0].epoch)
        return True

    def _put(self, path: str, fd: int) -> None:
        """Take over a shard that a rank has read whole for its index."""
        if self._files is None:
            os.close(fd)
            return
        self._files.put(path, fd)

    def _hint(self, epoch: int) -> None:
        """Send the order of the files of an epoch to the agent of the job."""
        if epoch == self._hinted:
            return
        self._hinted = epoch
        threading.Thread(
            target=lambda: hint(self._portions.paths(epoch)), name="hint", daemon=True
        ).start()

    def _say(self, member: Member, *message: Any, fds: tuple[int, ...] = ()) -> None:
        with contextlib.suppress(OSError):  # the next read detects its end
            member.channel.send(*message, fds=fds)
        self._watch(member)

    def _watch(self, member: Member) -> None:
        events = selectors.EVENT_READ
        if member.channel.has_waiting:
            events |= selectors.EVENT_WRITE
        self._select.modify(member.channel.socket, events)

    def _figures(self) -> dict[str, Any]:
        counts = self._readers.counts
        return {
            "requests": counts.requests,
            "request_bytes": counts.bytes,
            "request_sizes": counts.sizes,
            "retries": counts.retries,
            "hedges": counts.hedges,
            "most_reads_at_once": counts.most_at_once,
            **self._readers.figures(),
            "memory_bytes": self._pool.bytes + self._pool.beside,
            "memory_peak_bytes": self._pool.peak,
            "reader_pid": os.getpid(),
        }

    # -- reading and dropping portions -------------------------------------------------

    def _ended(self, ends: Sequence[End]) -> None:
        """Queue completed requests; called by any thread."""
        self._ends.put(ends)
        with contextlib.suppress(BlockingIOError):
            self._wake.send(b"x")

    def _take_ends(self) -> bool:
        found = False
        while not self._ends.empty():
            for one in self._ends.get():
                self._loads.end(one)
            found = True
        return found

    def _schedule(self) -> None:
        """Begin the next reads, as far as memory permits, and inform the ranks."""
        now = time.monotonic()
        self._again_s = None
        offers = (one.offers_until_s for one in self._members.values())
        if max(offers, default=0.0) > now or self._starter_until_s > now:
            self._again_s = _LOOK_S
            return
        self._pool.beside = self._files.memory_bytes if self._files else 0
        wanted = sorted({key for one in self._members.values() for key in one.keys})
        spare = self._sort_out(set(wanted))
        self._short = None
        self._loads.place(wanted)
        made = self._pool.made
        for key in wanted:
            if self._pool.made - made >= _MADE_MAX:
                self._again_s = 0
                break
            begun = self._loads.begin(key)
            while begun is Begun.NO_ROOM and self._drop_one(spare, key):
                begun = self._loads.begin(key)
            if begun is Begun.LATER and self._loads.free_decoder(key):
                begun = self._loads.begin(key)
            if begun is Begun.NO_ROOM:
                self._make_room(key)
            if begun is not Begun.YES:
                break
        gone = self._pool.gone()
        for member in list(self._members.values()):
            self._tell(member, gone)

    def _sort_out(self, wanted: set[Key]) -> list[Key]:
        """Drop portions that no rank will need; return those that one may need."""
        spare = []
        for key in self._loads.keys():  # noqa: SIM118
            load = self._loads.get(key)
            if key in wanted or load is None or load.is_reading:
                continue
            if load.is_decoding:  # it waits for a buffer, and blocks its decoder
                self._loads.drop(key)
                continue
            members = self._members.values()
            if key.owner == EVERYBODY and any(one.comes_to(key) for one in members):
                spare.append(key)
            else:
                self._loads.drop(key)
        return sorted(spare)

    def _drop_one(self, spare: list[Key], key: Key) -> bool:
        """Drop one portion for another; return False if none can be dropped.

        Args:
            spare: portions that no rank needs now; without any, the last portion that
                no rank holds is dropped.
        """
        if spare:
            self._loads.drop(spare.pop())
            return True
        held = {one for member in self._members.values() for one in member.told}
        later = [load.key for load in self._later(key) if load.key not in held]
        if later:
            self._loads.drop(max(later))
        return bool(later)

    def _later(self, key: Key) -> list[Load]:
        """Return the portions after this one whose memory could be used for it."""
        held = [self._loads.get(one) for one in self._loads.keys() if one > key]  # noqa: SIM118
        return [load for load in held if load and load.buffer and not load.is_reading]

    def _make_room(self, key: Key) -> None:
        """Ask the ranks that hold the last portion to give up theirs.

        They may need the missing one as well. Until it fits, later portions are not
        reported to any rank, which would hold them and wait.
        """
        last = max((load.key for load in self._later(key)), default=None)
        if last is None:
            return
        self._short = key
        for member in self._members.values():
            if last in member.told and not member.yields:
                member.yields = True
                self._say(member, "yield")

    def _tell(self, member: Member, gone: list[int]) -> None:
        """Report news of its portions to a rank."""
        left = [number for number in gone if number in member.buffers]
        if left:
            member.buffers.difference_update(left)
            self._say(member, "gone", left)
        for key in member.keys:
            load = self._loads.get(key)
            if load is None or (key not in member.told and self._is_short_of(key)):
                continue
            if load.failure and member.told.get(key, 0) >= 0:
                member.told[key] = -1
                self._say(member, "failed", key, member.serial, load.failure)
            elif not load.failure:
                self._tell_part(member, load)

    def _is_short_of(self, key: Key) -> bool:
        """Return whether a portion would block an earlier one that does not fit."""
        return self._short is not None and key > self._short

    def _tell_part(self, member: Member, load: Load) -> None:
        told = member.told.get(load.key, 0)
        buffer = load.buffer
        if buffer is None or told >= len(load.done):
            return
        if buffer.number not in member.buffers:
            member.buffers.add(buffer.number)
            self._say(
                member, "buffer", buffer.number, buffer.capacity, fds=(buffer.fd,)
            )
        member.told[load.key] = len(load.done)
        part = load.key, member.serial, buffer.number, load.rows, load.requests
        for first in range(told, len(load.done), SPLIT):
            self._say(member, "part", *part, load.done[first : first + SPLIT])


def reads_of(
    source: Source, settings: Any, ended: Callable[[Sequence[End]], None]
) -> Reads:
    """Return the reads of a source.

    Raises:
        RecordsError: the secrets of a store cannot be read.
    """
    if source.index.keys is not None:
        # Not at the top: these take some 30 ms, which readers of files can avoid.
        from monarch.loader.fetches import StoreReads
        from monarch.records.stores.window import Window

        limit, memory = settings["window"], settings["memory_limit"]
        start, by_delay = settings["batch_size"], settings["window_is_auto"]
        window = Window(start, limit, memory, by_delay=by_delay)
        return StoreReads(source, window, ended)
    return Readers(source, settings["threads"], token_taker(settings), ended)


def source_of(index: RecordIndex) -> Source:
    """Return the source of the Records of an index."""
    if index.keys is None:
        return FileSource(index)
    from monarch.records.stores.source import StoreSource

    return StoreSource(index)


def main(settings_fd: int, index_fd: int, listener_fd: int) -> None:
    """Serve the messages of the ranks until the last one has left."""
    # A terminal's interrupt is meant for the ranks; the reader ends with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(settings_fd, "rb") as file:
        settings = json.load(file)
    sys.path[:] = settings["sys_path"]
    index = RecordIndex.load(Path(f"/proc/self/fd/{index_fd}"))
    pickled = bytes.fromhex(settings["source"])
    source: Source = pickle.loads(pickled) if pickled else source_of(index)
    groups = group(index, settings["group_bytes"])
    order = RecordOrder(
        groups,
        seed=settings["seed"],
        shuffle=settings["shuffle"],
        window=settings["groups_in_flight"],
    )
    batches = Batches(
        len(index),
        settings["batch_size"],
        world_size=settings["world_size"],
        remainder=settings["remainder"],
    )
    listener = socket.socket(fileno=listener_fd)
    listener.setblocking(False)
    gc.freeze()  # all objects so far stay: exclude them from collections
    NodeReader(listener, Portions(order, batches), source, settings).run()
    os._exit(0)  # threads may hang in a read
