"""Finds the large Files that programs of the job have mapped, by looking at them.

A mapping is not announced by anything that the Shim sees. So once a second the mappings
of some of the processes in which it is active are read from /proc.
"""

import asyncio
import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

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
_FILE: Final = re.compile(rb" (\d+) +(/[^\n]*)")
"""The inode number and the path at the end of a line."""


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


def mappings_of(text: bytes, inodes: Collection[int]) -> Iterator[Mapping]:
    """Yield the mapped files with some inode numbers."""
    for found in _FILE.finditer(text):
        if (ino := int(found[1])) in inodes:
            yield Mapping(found[2].removesuffix(_DELETED), ino)


def behind_links(namespace: Namespace, large_bytes: int) -> dict[int, int]:
    """Return the large Files outside of their roots by their inode numbers.

    The kernel shows mappings of them by paths that are not those of a dataset. Another
    file with the same inode number is on another file system: it would be waited for
    without need.
    """
    found = {}
    for number, root in enumerate(namespace.roots):
        block = root.block
        outer = slice(block.name_count, block.hop_start)
        kinds = block.modes()[outer] & 0o170000
        large = block.entries["size"][outer] > large_bytes
        for entry in np.flatnonzero(large & (kinds == stat.S_IFREG)) + outer.start:
            ino = int(block.entries["ino"][entry])
            found[ino] = namespace.inventory.number_of(number, int(entry))
    return found


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
        self._outer = behind_links(namespace, whole.large_bytes)
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
            for mapping in self._unknown(mappings_below(text, prefix.path)):
                self._note_at_origin(self._files_of_origin(prefix, mapping))
        if self._outer:
            for mapping in self._unknown(mappings_of(text, self._outer)):
                self._note_at_origin([self._outer[mapping.ino]])
        for tier, directory in enumerate(self._tiers):
            for mapping in self._unknown(mappings_below(text, directory)):
                files = self._namespace.segments.files_of_inode(tier, mapping.ino)
                self._note(files)

    def _unknown(self, mappings: Iterable[Mapping]) -> list[Mapping]:
        """Return those mappings that were not looked at."""
        found = set(mappings) - self._known
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
        self._note(files)
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
