"""The shared-memory segments of a job, created complete or not at all."""

import errno
import mmap
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from monarch.errors import MonarchError
from monarch.native import CONSTANTS, DTYPES, SegmentKind, rights_store

Bytes = npt.NDArray[np.uint8]


class Segments:
    """Creates the segments of one agent's life and keeps their mappings."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.generation = secrets.randbits(63) | 1
        self.memory: dict[str, Bytes] = {}

    def __repr__(self) -> str:
        return f"<Segments {' '.join(self.memory)} generation {self.generation:#x}>"

    def create_first(self) -> None:
        """Create the two segments that launchers look for before there is a catalog."""
        self.create("counters", DTYPES["counters"].itemsize, self._write_header)
        self.create("requests", DTYPES["requests"].itemsize, self._write_requests)

    def create(
        self, name: str, length: int, write: Callable[[str, Bytes], None]
    ) -> Bytes:
        """Create a segment: under its own name it is complete from the first moment."""
        temporary = self._directory / f".{name}"
        fd = os.open(
            temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        try:
            # Memory that is promised only would end a program by SIGBUS later.
            _allocate(fd, length)
            mapping = mmap.mmap(fd, length)
        except OSError as error:
            raise MonarchError(
                f"{self._directory}: no room for {name}: {error.strerror}"
            ) from error
        finally:
            os.close(fd)
        memory = np.frombuffer(mapping, np.uint8)
        write(name, memory)
        os.rename(temporary, self._directory / name)
        self.memory[name] = memory
        return memory

    def record(self, name: str) -> Any:
        """Return the struct at the head of a segment."""
        dtype = DTYPES[name]
        return self.memory[name][: dtype.itemsize].view(dtype)[0]

    def words(self, count: int) -> npt.NDArray[np.uint32]:
        """Return the state words of all Files."""
        start = int(self.record("catalog")["states"])
        return self.memory["catalog"][start : start + 4 * count].view(np.uint32)

    def written(self, count: int) -> Bytes:
        """Return the written marks of all Files."""
        start = DTYPES["flags"].itemsize
        return self.memory["flags"][start : start + count]

    def marks(self) -> tuple[Bytes, Bytes]:
        """Return the marks of all roots, and those of all Files and directories."""
        roots: Bytes = self.record("flags")["roots"]
        return roots, self.written(int(self.record("flags")["count"]))

    def note_marks(self) -> None:
        """Tell programs that something is marked."""
        dtype = DTYPES["flags"]
        self.memory["flags"][: dtype.itemsize].view(dtype)["marked"] = 1

    def inodes_of(self, files: Sequence[int], tier: int) -> list[int]:
        """Return the inodes under which Replicas that are there are recognised."""
        slots = self._inodes()
        mine = (slots["tier"] == tier) & (slots["ino"] > 1)
        found: list[int] = slots["ino"][mine & np.isin(slots["file"], files)].tolist()
        return found

    def inodes_in(self, tier: int) -> list[int]:
        """Return the inodes of all Replicas that are there in a Tier."""
        slots = self._inodes()
        found: list[int] = slots["ino"][
            (slots["tier"] == tier) & (slots["ino"] > 1)
        ].tolist()
        return found

    def _inodes(self) -> npt.NDArray[Any]:
        return self.memory["inodes"][DTYPES["inodes"].itemsize :].view(DTYPES["inode"])

    def _write_requests(self, name: str, memory: Bytes) -> None:
        self._write_header(name, memory)
        requests = memory.view(DTYPES["requests"])
        requests[0]["agent_pid"] = os.getpid()
        rights_store(requests["agent"])

    def _write_header(self, name: str, memory: Bytes) -> None:
        seg = memory[: DTYPES["segment"].itemsize].view(DTYPES["segment"])[0]
        seg["magic"] = b"MONARCH"
        seg["version"] = CONSTANTS["LAYOUT_VERSION"]
        seg["kind"] = SegmentKind[name.upper()]
        seg["length"] = len(memory)
        seg["generation"] = self.generation


def _allocate(fd: int, length: int) -> None:
    try:
        os.posix_fallocate(fd, 0, length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(fd, length)
