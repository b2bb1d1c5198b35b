"""Leftovers of dead jobs, recognised by locks that no process holds.

Programs may outlive the agent of their job. They continue to mark written files in its
flags segment, but the next agent in the same run directory reads another one. So the
old flags are marked as superseded before they are removed, and these programs open the
path again.
"""

import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from monarch.native import CONSTANTS, DTYPES, SegmentKind, is_home
from monarch.tiers.directory_lock import is_private, remove_tree, take_lock
from monarch.tiers.retained import RETAINED, has_expired

# A launcher makes the directory before it contains any lock.
NEWBORN_S: Final = 60.0

KEPT_LOG_S: Final = 3600.0
"""The time for which the log of an agent that could not start is kept."""
# All files that such an agent and its launcher leave.
_FAILED_START: Final = frozenset({"failed", "start", "lock", "agent.log"})

# The files of a run directory; the launcher makes `start` first.
_START: Final = "start"
_RUN_FILES: Final = frozenset(
    {
        *("start", "lock", "failed", "config.json", "control", "shim.so"),
        *("agent.log", "agent.log.1"),
        *("counters", "requests", "flags", "inodes", "catalog", "outline", "changes"),
        *(".counters", ".requests", ".flags", ".inodes", ".catalog", "transit"),
        *(".outline", ".changes"),
    }
)
# The paths of a program's hint, until the agent has read them.
_HINT: Final = "hint-"
# Directories that `remove_tree` has begun to remove.
_DOOMED: Final = re.compile(r"dead-[0-9a-f]{12}")

log = logging.getLogger("monarch.tiers")


def _ignore(_path: Path) -> None:
    """Do nothing."""


def collect(
    home: Path,
    now_s: float,
    *,
    keep_logs: bool = True,
    note: Callable[[Path], None] = _ignore,
) -> list[Path]:
    """Remove leftovers of dead jobs in `home`, and return their paths.

    Args:
        home: a directory `monarch-<uid>` with one directory per job and node. In any
            other, which may be the home of a user, only directories that are
            certainly run directories are removed.
        keep_logs: keep the logs of agents that could not start, for some time.
        note: called with each directory before it is removed.
    """
    if not is_private(home):
        return []
    entries = sorted(home.iterdir())
    if not is_home(home):
        entries = [entry for entry in entries if _is_run_directory(entry)]
    if keep_logs:
        entries = [entry for entry in entries if not _explains_failure(entry, now_s)]
    return [entry for entry in entries if _collect_one(entry, now_s, note)]


def collect_all(homes: list[Path]) -> None:
    """Remove leftovers in each of `homes` and log them."""
    for home in homes:
        for removed in collect(home, time.time()):
            log.info("leftover removed path=%s", removed)


def _is_run_directory(entry: Path) -> bool:
    """Return whether a private directory contains only files of a run directory.

    A half-removed one may have lost any file; its name is enough then.
    """
    try:
        if not is_private(entry):
            return False
        names = {item.name for item in os.scandir(entry)}
    except OSError:
        return False
    begins = _START in names or _DOOMED.fullmatch(entry.name) is not None
    return begins and {n for n in names if not n.startswith(_HINT)} <= _RUN_FILES


def _explains_failure(entry: Path, now_s: float) -> bool:
    """Return whether a directory holds only the log of a recently failed agent."""
    try:
        names = set(os.listdir(entry))
        is_known = {"failed", "agent.log"} <= names <= _FAILED_START
        return is_known and now_s - (entry / "failed").stat().st_mtime < KEPT_LOG_S
    except OSError:
        return False


def _collect_one(entry: Path, now_s: float, note: Callable[[Path], None]) -> bool:
    if entry.is_symlink() or not entry.is_dir():
        return False
    if _DOOMED.fullmatch(entry.name):
        note(entry)
        shutil.rmtree(entry, ignore_errors=True)
        return True
    if entry.name.startswith(RETAINED):
        return has_expired(entry, now_s) and _remove(entry, note)
    try:
        return _collect_dead(entry, now_s, note)
    except FileNotFoundError:
        return False  # its owner, or another collector, has removed it meanwhile


def _remove(entry: Path, note: Callable[[Path], None]) -> bool:
    note(entry)
    return remove_tree(entry)


def _collect_dead(entry: Path, now_s: float, note: Callable[[Path], None]) -> bool:
    with ExitStack() as held:
        found = False
        for name in ("start", "lock"):
            try:
                fd = take_lock(entry, name, create=False)
            except FileNotFoundError:
                continue
            except OSError:
                return False
            if fd is None:
                return False
            held.callback(os.close, fd)
            found = True
        if not found and now_s - entry.stat().st_mtime < NEWBORN_S:
            return False
        if has_programs(entry):
            return False  # a program that joins their job must see their writes
        supersede(entry)
        return _remove(entry, note)


def supersede(run: Path) -> None:
    """Redirect marks of surviving programs to the next agent of a run directory."""
    for name in ("flags", "changes"):
        with suppress(OSError):
            _supersede(run / name)


def _supersede(flags: Path) -> None:
    fd = os.open(flags, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _is_segment(os.pread(fd, DTYPES["flags"].itemsize, 0), "flags"):
            os.pwrite(fd, np.uint32(1).tobytes(), _place_of("flags", "superseded"))
    finally:
        os.close(fd)


def has_programs(run: Path) -> bool:
    """Return whether a running process has loaded the Shim of a run directory.

    Its mappings show that, even if the file was removed. A slot in the counters may be
    missing, or its process number may have been reused.
    """
    shim = run / "shim.so"
    wanted = f" {os.path.realpath(run)}/shim.so".encode()
    if shim.is_symlink():  # the run directory is on a file system mounted noexec
        wanted = f" {os.path.realpath(shim)}".encode()
    processes = (name for name in os.listdir("/proc") if name.isdigit())
    return any(_maps(process, wanted) for process in processes)


def _place_of(segment: str, field: str) -> int:
    fields = DTYPES[segment].fields
    assert fields is not None
    return fields[field][1]


def _is_segment(head: bytes, name: str) -> bool:
    """Return whether these bytes are the head of a segment of this kind and version."""
    dtype = DTYPES["segment"]
    if len(head) < dtype.itemsize:
        return False
    seg: Any = np.frombuffer(head[: dtype.itemsize], dtype)[0]
    found = (bytes(seg["magic"]), int(seg["version"]), int(seg["kind"]))
    known = (CONSTANTS["LAYOUT_VERSION"], int(SegmentKind[name.upper()]))
    return found == (b"MONARCH", *known)


def _maps(process: str, wanted: bytes) -> bool:
    """Return whether a process has mapped a file; False if its maps are unreadable."""
    try:
        return wanted in Path("/proc", process, "maps").read_bytes()
    except OSError:
        return False
