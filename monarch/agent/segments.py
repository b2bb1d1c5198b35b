"""The run directory of a job on this node, and the shared-memory segments in it."""

import errno
import logging
import mmap
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import monarch.native
from monarch.errors import MonarchError
from monarch.native import CONSTANTS, DTYPES, SegmentKind, rights_store
from monarch.tiers.directory_lock import lock_directory, make_private, remove_tree
from monarch.tiers.leftovers import has_programs, supersede

# Files of the launcher; all others are the agent's.
_LAUNCHER_FILES: Final = frozenset({"start", "lock", "agent.log", "failed"})
# Files for programs that run longer than the agent.
_SHIM_FILES: Final = frozenset({"shim.so"})
_SHIM_LIBRARY: Final = "libmonarch_shim.so"
LOCK_POLL_S: Final = 0.02

Bytes = npt.NDArray[np.uint8]

log = logging.getLogger("monarch.agent")


class AlreadyStarting(MonarchError):
    """Another process is starting the agent of this run directory, or is that agent."""


class StartLock:
    """Prevents launchers from starting another agent while this one starts.

    Args:
        wait_s: how long to wait for another process, whose start may fail.

    Raises:
        AlreadyStarting: another process has the lock.
        MonarchError: the directory or its parent is not private.
    """

    def __init__(self, run_dir: Path, wait_s: float = 0.0) -> None:
        make_private(run_dir.parent)
        deadline_s = time.monotonic() + wait_s
        while (fd := lock_directory(run_dir, "start")) is None:
            if time.monotonic() >= deadline_s:
                break
            time.sleep(LOCK_POLL_S)
        self._fd = fd
        if fd is None:
            raise AlreadyStarting(f"{run_dir}: another agent is starting")
        # Launchers check whether this process is stopped.
        os.pwrite(fd, f"{os.getpid():10}\n".encode(), 0)

    def __repr__(self) -> str:
        return f"<StartLock {self._fd}>"

    def release(self) -> None:
        """Allow launchers to find the agent."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


class RunDirectory:
    """A private directory, locked until this process ends.

    Attributes:
        segments: the segments in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments = Segments(path)
        lock = lock_directory(path)
        if lock is None:
            raise MonarchError(f"{path}: another agent is already running")
        self._lock = lock
        self._remove_agent_files()

    def __repr__(self) -> str:
        return f"<RunDirectory {self.path}>"

    def _remove_agent_files(self) -> None:
        """Remove all files of an agent: those of a dead one may be incomplete."""
        supersede(self.path)
        self._clear(_LAUNCHER_FILES)

    def _clear(self, kept: frozenset[str]) -> None:
        for entry in os.scandir(self.path):
            if entry.name in kept:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)

    def write(self, name: str, content: str) -> None:
        """Write a small text file."""
        fd = os.open(
            self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(fd, "w") as file:
            file.write(content)

    def place_shim(self) -> None:
        """Copy the Shim here: LD_PRELOAD allows no space or colon in its path."""
        source = Path(monarch.native.__file__).parent / _SHIM_LIBRARY
        target = self.path / "shim.so"
        if not source.exists():
            raise MonarchError(f"{source} is missing; install Monarch again")
        if os.statvfs(self.path).f_flag & os.ST_NOEXEC:
            target.symlink_to(source)
            return
        try:
            shutil.copyfile(source, target)
            os.chmod(target, stat.S_IRUSR | stat.S_IXUSR)
        except OSError as error:
            raise MonarchError(
                f"{self.path}: no room for shim.so: {error.strerror}"
            ) from error

    def clear(self) -> None:
        """Remove the agent's files, but not the launcher's, and release the lock."""
        self._remove_agent_files()
        os.close(self._lock)

    def remove(self) -> None:
        """Remove the directory, then release its lock.

        While programs of the job are running the Shim stays, because they may start
        others; the next collection of leftovers removes it.
        """
        supersede(self.path)
        if has_programs(self.path):
            self._clear(_LAUNCHER_FILES | _SHIM_FILES)
        elif not remove_tree(self.path):
            log.warning("run directory not removed path=%s", self.path)
        os.close(self._lock)


class Segments:
    """Creates the segments of one agent and keeps their mappings."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.generation = secrets.randbits(63) | 1
        self.memory: dict[str, Bytes] = {}

    def __repr__(self) -> str:
        return f"<Segments {' '.join(self.memory)} generation {self.generation:#x}>"

    def create_first(self) -> None:
        """Create the two segments that launchers need before the Catalog is ready."""
        self.create("counters", DTYPES["counters"].itemsize, self._write_header)
        self.create("requests", DTYPES["requests"].itemsize, self._write_requests)

    def create(
        self, name: str, length: int, write: Callable[[str, Bytes], None]
    ) -> Bytes:
        """Create a segment, which gets its name when it is complete."""
        temporary = self._directory / f".{name}"
        fd = os.open(
            temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        try:
            # Pages that are not allocated now could end a program by SIGBUS later.
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

    def whole(self, count: int) -> Bytes:
        """Return the flags for whole Replicas of all Files; empty: no flags."""
        start = int(self.record("flags")["whole"])
        return self.memory["flags"][start : start + count if start else 0]

    def files_of_inode(self, tier: int, ino: int) -> list[int]:
        """Return the File whose Replica in a Tier has this inode, if any."""
        slots = self._inodes()
        places = np.flatnonzero((slots["ino"] == ino) & (slots["tier"] == tier))
        found: list[int] = slots["file"][places].tolist()
        return found

    def marks(self) -> tuple[Bytes, Bytes]:
        """Return the marks of all roots, and those of all Files and directories."""
        roots: Bytes = self.record("flags")["roots"]
        return roots, self.written(int(self.record("flags")["count"]))

    def note_marks(self) -> None:
        """Set the word that makes programs read the marks."""
        dtype = DTYPES["flags"]
        self.memory["flags"][: dtype.itemsize].view(dtype)["marked"] = 1

    def inodes_of(self, files: Sequence[int], tier: int) -> list[int]:
        """Return the inodes of the Replicas of some Files in a Tier."""
        slots = self._inodes()
        in_tier = (slots["tier"] == tier) & (slots["ino"] > 1)
        chosen = in_tier & np.isin(slots["file"], files)
        found: list[int] = slots["ino"][chosen].tolist()
        return found

    def inodes_in(self, tier: int) -> list[int]:
        """Return the inodes of all Replicas in a Tier."""
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
