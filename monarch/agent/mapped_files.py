"""Finds the large Files that programs of the job have mapped, by looking at them.

A mapping is not announced by anything that the Shim sees. So once a second the mappings
of some of the processes in which it is active are read from /proc.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from monarch import native
from monarch.agent.namespace import Namespace
from monarch.agent.whole_files import WholeFiles
from monarch.background import in_thread, log_failure
from monarch.catalog.inventory import Prefix, prefixes_of
from monarch.metrics import AgentCounters
from monarch.tiers import Tier

PERIOD_S: Final = 1.0
PROCESSES_MAX: Final = 32
"""Of more, each round looks at others."""
ROUND_S: Final = 0.02
"""After so much time the other processes wait for the next round: the kernel takes 1 ms
for 50 KB of mappings."""
MAPPINGS_BYTES_MAX: Final = 4 << 20
"""What is read of one process: a program with PyTorch has 300 KB."""

KNOWN_MAX: Final = 1 << 16
"""Mappings that are not looked up again; then all are, once more."""

_DELETED: Final = b" (deleted)"
_INODE_FIELD: Final = 4
_PATH_FIELD: Final = 5


class Mapping(NamedTuple):
    """A file that a process has mapped."""

    path: bytes
    ino: int


def mappings_below(text: bytes, directory: bytes) -> Iterator[Mapping]:
    """Yield what is mapped below a directory, by the content of /proc/PID/maps.

    A line looks like ``7f00-7f20 r--s 00000000 08:01 1234    /pfs/data/a.bin``. The
    lines of other files are not taken apart: there may be thousands.
    """
    below = b" " + directory + b"/"
    at = text.find(below)
    while at >= 0:
        start = text.rfind(b"\n", 0, at) + 1
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        fields = text[start:end].split(None, _PATH_FIELD)
        if len(fields) > _PATH_FIELD and fields[_PATH_FIELD].startswith(below[1:]):
            path = fields[_PATH_FIELD].removesuffix(_DELETED)
            yield Mapping(path, int(fields[_INODE_FIELD]))
        at = text.find(below, end)


class MappedFiles:
    """Looks for mappings while there are large Files of which it matters.

    Args:
        tiers: the Tiers by number, the Pool the last.
        pids: returns the processes in which the Shim is active.
    """

    def __init__(
        self,
        namespace: Namespace,
        whole: WholeFiles,
        tiers: Sequence[Tier],
        pids: Callable[[], list[int]],
        counters: AgentCounters,
    ) -> None:
        self._namespace = namespace
        self._whole = whole
        self._prefixes = prefixes_of(namespace.roots)
        self._tiers = [os.fsencode(tier.directory) for tier in tiers]
        self._pids = pids
        self._counters = counters
        self._known: set[Mapping] = set()
        self._at_origin = False
        self._next = 0

    def __repr__(self) -> str:
        return f"<MappedFiles {len(self._known)} mappings seen>"

    def begin(self) -> "asyncio.Task[None]":
        """Look once a second, until the task is cancelled."""
        task = asyncio.create_task(self._run())
        task.add_done_callback(log_failure)
        return task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            if self._whole.lacking or (self._at_origin and self._whole.unready):
                await in_thread(self.look)

    def look(self) -> None:
        """Look at some processes, and flag what they have mapped."""
        deadline_s = time.monotonic() + ROUND_S
        pids = self._pids()
        for _ in range(min(len(pids), PROCESSES_MAX)):
            self._next = (self._next + 1) % len(pids)
            self._look_at(pids[self._next])
            if time.monotonic() >= deadline_s:
                break

    def _look_at(self, pid: int) -> None:
        text = _read_mappings(pid)
        for prefix in self._prefixes:
            for mapping in self._unknown(text, prefix.path):
                files = self._files_of_origin(prefix, mapping)
                self._note(files)
                self._note_at_origin(files)
        for tier, directory in enumerate(self._tiers):
            for mapping in self._unknown(text, directory):
                files = self._namespace.segments.files_of_inode(tier, mapping.ino)
                self._note(files)

    def _unknown(self, text: bytes, directory: bytes) -> list[Mapping]:
        """Return what is mapped below a directory and was not looked at."""
        found = set(mappings_below(text, directory)) - self._known
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known |= found
        return list(found)

    def _files_of_origin(self, prefix: Prefix, mapping: Mapping) -> list[int]:
        """Return the File that a path of the Origin names, if there is one."""
        block = self._namespace.roots[prefix.root].block
        entry = native.index_find(block.memory, mapping.path[len(prefix.path) + 1 :])
        if entry < 0:
            return []
        return [self._namespace.inventory.number_of(prefix.root, entry)]

    def _note(self, files: list[int]) -> None:
        for file in filter(self._whole.may_learn, files):
            self._counters.mapped_files += 1
            self._whole.flag_mapped(file)

    def _note_at_origin(self, files: list[int]) -> None:
        for file in files:
            self._at_origin = True
            self._whole.flag_mapped_at_origin(file)


def _read_mappings(pid: int) -> bytes:
    """Return what /proc tells of a process; nothing if it has ended."""
    text = bytearray()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb", 0) as file:
        while len(text) < MAPPINGS_BYTES_MAX and (part := file.read(1 << 16)):
            text += part
    return bytes(text)
