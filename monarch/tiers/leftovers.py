"""What dead jobs have left behind, recognised by locks that nobody holds."""

import logging
import os
import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from monarch.native import is_home
from monarch.tiers.directory_lock import is_private, remove_tree, take_lock
from monarch.tiers.outlived import has_programs, supersede
from monarch.tiers.retained import RETAINED, has_expired

# A launcher makes the directory before there is any lock in it.
NEWBORN_S: Final = 60.0

# What a run directory holds; the launcher makes `start` before anything else in it.
_START: Final = "start"
_RUN_FILES: Final = frozenset(
    {
        *("start", "lock", "failed", "config.json", "control", "shim.so"),
        *("agent.log", "agent.log.1"),
        *("counters", "requests", "flags", "inodes", "catalog"),
        *(".counters", ".requests", ".flags", ".inodes", ".catalog", "transit"),
    }
)
_DOOMED: Final = re.compile(r"dead-[0-9a-f]+")

log = logging.getLogger("monarch.tiers")


def collect(home: Path, now_s: float) -> list[Path]:
    """Remove what dead jobs left in `home`, and return it; living ones keep theirs.

    Args:
        home: a directory `monarch-<uid>` that holds one directory per job and node; in
            any other, which may be somebody's home, only what is a run directory beyond
            doubt is touched.
    """
    if not is_private(home):
        return []
    entries = sorted(home.iterdir())
    if not is_home(home):
        entries = [entry for entry in entries if _is_run_directory(entry)]
    return [entry for entry in entries if _collect_one(entry, now_s)]


def collect_all(homes: list[Path]) -> None:
    """Remove leftovers in each of `homes` and log them."""
    for home in homes:
        for removed in collect(home, time.time()):
            log.info("leftover removed path=%s", removed)


def _is_run_directory(entry: Path) -> bool:
    """Return whether a private directory holds what a run directory does, no more."""
    try:
        if not is_private(entry):
            return False
        names = {item.name for item in os.scandir(entry)}
    except OSError:
        return False
    return _START in names and names <= _RUN_FILES


def _collect_one(entry: Path, now_s: float) -> bool:
    if entry.is_symlink() or not entry.is_dir():
        return False
    if _DOOMED.fullmatch(entry.name):
        shutil.rmtree(entry, ignore_errors=True)
        return True
    if entry.name.startswith(RETAINED):
        return has_expired(entry, now_s) and remove_tree(entry)
    try:
        return _collect_dead(entry, now_s)
    except FileNotFoundError:
        return False  # its owner, or another collector, has removed it meanwhile


def _collect_dead(entry: Path, now_s: float) -> bool:
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
            return False  # who joins their job is to see what they write
        supersede(entry)
        return remove_tree(entry)
