"""Other jobs of this user on this node, whose staged Files are linked and not copied.

They are looked for often at the start, and later once a second: where run directories
of this job are, and nowhere else, so that no other user's files are believed.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from monarch import native
from monarch.background import in_thread, log_failure
from monarch.cluster import find_run
from monarch.errors import UsageError
from monarch.native import node_name
from monarch.tiers.directory_lock import is_locked

PERIOD_S: Final = 1.0
FIRST_PERIOD_S: Final = 0.1
FIRST_LOOKS: Final = 50
"""Jobs of one array begin at once: none has a Catalog when the others look first."""

log = logging.getLogger("monarch.agent")


class Siblings:
    """Tells the data plane of the jobs that run beside this one.

    Args:
        run: the run directory of this job.
        shares: whether it looks for others at all.
    """

    def __init__(self, run: Path, engine: native.Engine, *, shares: bool) -> None:
        self._run = run
        # What begins so is of this job: another node that shares the directory.
        self._job = run.name.removesuffix(node_name(os.environ))
        self._engine = engine
        self._known: set[tuple[Path, int, int]] = set()
        self._engine_lock = threading.Lock()
        self._stopped = not shares

    def __repr__(self) -> str:
        return f"<Siblings {len(self._known)} seen beside {self._run.name}>"

    def begin(self) -> "asyncio.Task[None]":
        """Look once a second, until stop() is called."""
        task = asyncio.create_task(self._run_on())
        task.add_done_callback(log_failure)
        return task

    async def _run_on(self) -> None:
        for looks in itertools.count():
            if self._stopped:
                return
            await asyncio.sleep(FIRST_PERIOD_S if looks < FIRST_LOOKS else PERIOD_S)
            await in_thread(self.look)

    def look(self) -> None:
        """Look for jobs that have begun since, and have a Catalog."""
        for run, catalog in () if self._stopped else self._others():
            if catalog in self._known or not is_locked(run):
                continue
            self._known.add(catalog)
            with self._engine_lock:
                if self._stopped:
                    return
                added = self._engine.add_sibling(os.fsencode(run))
            if added:
                log.info("sibling job run=%s", run)

    def stop(self) -> None:
        """Look no more: the engine ends."""
        with self._engine_lock:
            self._stopped = True

    def _others(self) -> Iterator[tuple[Path, tuple[Path, int, int]]]:
        """Yield the run directories of other jobs, and which Catalog each has."""
        environ = {
            name: value
            for name, value in os.environ.items()
            if name == "MONARCH_STAGING_RUN_DIR"
        }
        with contextlib.suppress(UsageError, OSError):
            for run in find_run(environ, None):
                if run.name.startswith(self._job):
                    continue
                with contextlib.suppress(OSError):
                    seen = (run / "catalog").stat()
                    yield run, (run, seen.st_ino, seen.st_mtime_ns)
