"""Hints of programs: the paths that they will open next, as Files of the Catalog."""

import errno
import logging
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from monarch.agent.control import HINT_PREFIX
from monarch.agent.staging import Staging
from monarch.background import in_thread
from monarch.errors import MonarchError
from monarch.native import hint_files
from monarch.stager.policy import Files

_NOTHING: Final = np.zeros(0, np.uint32)
LASTING: Final = 0
"""The id for programs that may end before others open the named files."""

log = logging.getLogger("monarch.agent")


class Hints:
    """Takes hints, and passes them to the data plane once the Catalog is ready.

    Args:
        directory: the run directory, where programs store their paths.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._staging: Staging | None = None
        self._early: dict[int, bytes] = {}
        self._programs: set[int] = set()

    def __repr__(self) -> str:
        return f"<Hints of {len(self._programs)} programs>"

    async def take(self, asked: dict[str, Any], pid: int) -> dict[str, Any]:
        """Replace the hints of a program with the paths that it will open next.

        Args:
            asked: `file`, the name of a file in the run directory with absolute paths,
                each ended by NUL; `lasting`: the program does not open them itself.
            pid: the id of the program.

        Returns:
            The number of paths, and of those that name a File; None: the Catalog is
            not ready yet.

        Raises:
            MonarchError: no such file.
        """
        name = str(asked.get("file"))
        if not name.startswith(HINT_PREFIX) or "/" in name:
            raise MonarchError(f"{name!r} is not the name of a list of paths")
        paths = await in_thread(_take_file, self._directory / name)
        program = LASTING if asked.get("lasting") else pid
        known = None
        if self._staging is None:
            self._early[program] = paths
        else:
            self._early.pop(program, None)
            known = await self._give(self._staging, program, paths)
        return {"paths": paths.count(b"\0"), "files": known}

    async def begin(self, staging: Staging) -> None:
        """Pass hints that arrived before the Catalog was ready to the data plane."""
        self._staging = staging
        while self._early:
            program, paths = self._early.popitem()
            try:
                await self._give(staging, program, paths)
            except MonarchError as error:  # a job continues without hints
                log.warning("hints refused program=%d error=%s", program, error)

    def look(self) -> None:
        """Drop the hints of programs that have ended."""
        ended = {pid for pid in self._programs if not _lives(pid)}
        self._programs -= ended
        for pid in ended:
            log.info("hints forgotten program=%d", pid)
            self._hint(pid, _NOTHING)

    async def _give(self, staging: Staging, program: int, paths: bytes) -> int:
        catalog = staging.namespace.segments.memory["catalog"]
        files = await in_thread(hint_files, catalog, paths)
        if program != LASTING:
            self._programs.add(program)
        self._hint(program, files)
        log.info("hints program=%d files=%d", program, len(files))
        return len(files)

    def _hint(self, program: int, files: Files) -> None:
        assert self._staging is not None
        if not self._staging.engine.is_open:
            return
        try:
            self._staging.stager.reading_ahead.hint(program, files)
        except OSError as error:
            full = error.errno == errno.ENOSPC
            reason = "too many programs give hints" if full else error.strerror
            raise MonarchError(f"the hints are not followed: {reason}") from error


def _take_file(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        path.unlink(missing_ok=True)
    except OSError as error:
        raise MonarchError(f"{path}: {error.strerror}") from error
    return content


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
